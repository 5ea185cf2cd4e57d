//! Connects clients to namespaces.

use super::{Carrier, Flow, Input, Socket, SocketIo};
use crate::app::{Admission, Decided, Envelope, HandlerScope, NamespaceRequest, Refused, renews};
use crate::encode::{Encoding, EngineFraming};
use crate::executor::Executor;
use crate::identity::{End, Owner, Sid};
use crate::model::{CoreId, Disconnect, Room};
use crate::ports::{ClientFacts, Credentials, Denial, Identity};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use stentor_json as json;
use stentor_wire::engineio::Version;
use stentor_wire::http1::{self, Request};
use stentor_wire::socketio;

/// Maximum number of permanently refused CONNECTs of a client.
const REFUSED_MAX: u8 = 100;
/// Maximum number of parameters in a namespace's query, as in Node.
const QUERY_PAIRS_MAX: usize = 1_000;

/// A CONNECT, and how far it has been decided. While a decision is pending, the client keeps this state.
pub(super) struct Connecting<'a> {
    namespace: Cow<'a, str>,
    /// The room of all members of the namespace.
    room: Room,
    auth: Cow<'a, str>,
    query: Cow<'a, str>,
    /// The `pid` of the socket that the client wants to recover.
    pid: Option<Sid>,
    identity: Option<Arc<Identity>>,
    next: Step,
}

/// The next step of a CONNECT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Verifies the client's identity.
    Identify,
    /// Decides whether the client may connect.
    Authorize,
    /// Prepares the rooms that the client joins.
    Prepare,
    /// Looks for the client's socket on other nodes.
    Find,
}

impl<'a> Connecting<'a> {
    fn new(namespace: Cow<'a, str>, room: Room, auth: Cow<'a, str>, pid: Option<Sid>) -> Self {
        Self { namespace, room, auth, query: Cow::Borrowed(""), pid, identity: None, next: Step::Identify }
    }

    fn into_owned(self) -> Connecting<'static> {
        let [namespace, auth, query] =
            [self.namespace, self.auth, self.query].map(|text| Cow::Owned(text.into_owned()));
        let Self { room, pid, identity, next, .. } = self;
        Connecting { namespace, room, auth, query, pid, identity, next }
    }

    /// Size of the state, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.namespace.len() + self.auth.len() + self.query.len()
    }

    /// Carries out the steps up to the next decision that isn't known at once. `decided` are the decisions for which the CONNECT
    /// waited; the first step takes them. Returns the number of the question to which the client's socket has arrived.
    fn decide(
        &mut self,
        ex: &mut Executor,
        carrier: Carrier,
        decided: Vec<Decided>,
    ) -> Result<Option<u64>, Refused> {
        let mut decided = decided.into_iter();
        if self.next == Step::Identify {
            self.identity = identify(ex, carrier, &self.namespace, &self.auth, decided.next())?;
            self.next = Step::Authorize;
        } else if let Some(identity) = &self.identity {
            // The identity may have been revoked while the CONNECT waited.
            ex.check_identity(identity).map_err(Refused::Denied)?;
        }
        if self.next == Step::Authorize {
            ex.authorize_connect(carrier.conn, self.identity.as_deref(), &self.namespace, decided.next())?;
            self.next = Step::Prepare;
        }
        if self.next == Step::Prepare {
            // The client is connected even if a room couldn't be prepared in time.
            let has_waited = decided.by_ref().count() > 0;
            if !has_waited {
                ex.prepare_rooms(carrier.conn, self.identity.as_deref(), &self.namespace)?;
            }
            self.next = Step::Find;
        }
        let Some(pid) = self.pid else { return Ok(None) };
        let offset = json::string_member(&self.auth, "offset");
        let identity = self.identity.as_deref();
        ex.find_socket(carrier.conn, pid, offset.as_deref(), &self.namespace, identity, decided.next())
    }
}

/// Returns `true` if sockets of clients of this version can be recovered.
fn recovers(ex: &Executor, version: Version) -> bool {
    ex.options().engine.recovery.is_some() && version == Version::V4
}

/// Verifies a client's identity in a namespace, by the token in the CONNECT or by that of the handshake. For the main
/// namespace, the handshake has already verified its own token. `decided` is the decision for which the CONNECT waited.
fn identify(
    ex: &mut Executor,
    carrier: Carrier,
    namespace: &str,
    auth: &str,
    decided: Option<Decided>,
) -> Result<Option<Arc<Identity>>, Refused> {
    if !ex.questions.identities.is_on() {
        return Ok(None);
    }
    let token = json::string_member(auth, "token").filter(|token| !token.is_empty());
    let token = token.as_deref();
    let known = ex.questions.identities.client(carrier.client).cloned();
    let of_handshake = known.as_ref().and_then(|client| client.identity.clone());
    if let (None, "/", Some(identity)) = (token, namespace, &of_handshake) {
        ex.check_identity(identity).map_err(Refused::Denied)?;
        return Ok(of_handshake);
    }
    let address = known.as_ref().map(|client| client.address);
    let client =
        ClientFacts { address, protocol: "socketio", namespace: Some(namespace), ..ClientFacts::default() };
    let of_client = known.as_ref().and_then(|client| client.token.as_deref());
    let user = known.as_ref().and_then(|client| client.user.as_ref());
    let credentials = Credentials { user, token: token.or(of_client), client, session: None };
    let identity = ex.identify(carrier.conn, &credentials, decided, true)?;
    if let (Some(_), Some(identity), Some(of_handshake)) = (token, &identity, &of_handshake) {
        renews(of_handshake, identity).map_err(Refused::Denied)?;
    }
    Ok(identity)
}

impl SocketIo {
    /// Connects a client of protocol 4 to the main namespace, without a CONNECT. Its handshake has been authorized.
    pub(crate) fn connect_unasked(
        &mut self,
        ex: &mut Executor,
        carrier: Carrier,
        request: &Request<'_>,
        identity: Result<Option<Arc<Identity>>, Denial>,
        out: &mut Vec<u8>,
    ) {
        let input = Input { carrier, request: Some(request) };
        let (Ok(room), query) = (Room::all_members("/"), request.query().into()) else { return };
        let connecting =
            Connecting { query, identity: None, ..Connecting::new("/".into(), room, "{}".into(), None) };
        match identity {
            Ok(identity) => {
                self.connect(ex, &input, Connecting { identity, ..connecting }, None, out);
            }
            Err(denial) => _ = refuse_denied(carrier, "/", &denial, out),
        }
    }

    /// Handles a CONNECT.
    pub(super) fn handle_connect(
        &mut self,
        ex: &mut Executor,
        input: &Input<'_>,
        namespace: &str,
        payload: Option<&str>,
        query: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let carrier = input.carrier;
        if self.sockets.len() >= ex.options().engine.namespaces_max {
            return refuse(carrier, namespace, "Too many namespaces (socketio.namespaces_max)", None, out);
        }
        // A namespace with a longer name can't have rooms.
        let Ok(room) = Room::all_members(namespace) else {
            return refuse(carrier, namespace, "Invalid namespace", None, out);
        };
        let auth = payload.unwrap_or("{}");
        let pid = if recovers(ex, carrier.version) {
            json::string_member(auth, "pid").and_then(|pid| Sid::parse(&pid))
        } else {
            None
        };
        if let Some(core) = pid.and_then(|pid| self.kept_elsewhere(ex, carrier.sid, pid)) {
            return Flow::Migrate(core);
        }
        let query = query.unwrap_or("").into();
        let connecting = Connecting { query, ..Connecting::new(namespace.into(), room, auth.into(), pid) };
        self.proceed(ex, input, connecting, Vec::new(), out)
    }

    /// Continues with the CONNECT that waited for these decisions.
    pub(crate) fn handle_decided(
        &mut self,
        ex: &mut Executor,
        carrier: Carrier,
        decided: Vec<Decided>,
        out: &mut Vec<u8>,
    ) {
        if let Some(connecting) = self.connecting.take() {
            self.proceed(ex, &Input { carrier, request: None }, *connecting, decided, out);
        }
    }

    /// Carries out a CONNECT up to the next decision that isn't known at once.
    fn proceed(
        &mut self,
        ex: &mut Executor,
        input: &Input<'_>,
        mut connecting: Connecting<'_>,
        decided: Vec<Decided>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let client = input.carrier.client;
        match connecting.decide(ex, input.carrier, decided) {
            Ok(arrival) => self.connect(ex, input, connecting, arrival, out),
            Err(Refused::Pending) => {
                ex.questions.waiting.hold_client(input.carrier.conn, client);
                self.connecting = Some(Box::new(connecting.into_owned()));
                Flow::Continue
            }
            Err(Refused::Denied(denial)) => {
                self.refused += u8::from(!denial.retry);
                if self.refused > REFUSED_MAX {
                    ex.end_client(client, End::Because(Disconnect::TooManyRequests));
                    return Flow::Stop;
                }
                refuse_denied(input.carrier, &connecting.namespace, &denial, out)
            }
        }
    }

    /// Connects a client to a namespace, as all decisions but the application's have been made. `arrival` is the number of the
    /// question to which the client's socket has arrived from another node.
    fn connect(
        &mut self,
        ex: &mut Executor,
        input: &Input<'_>,
        connecting: Connecting<'_>,
        arrival: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let carrier @ Carrier { client, sid, source, framing, version, .. } = input.carrier;
        let Connecting { namespace, room, auth, query, pid, identity, .. } = connecting;
        let (namespace, auth, query) = (&*namespace, &*auth, &*query);
        let recovers = recovers(ex, version);
        let encoding = Encoding::engine_io(framing, Envelope::SocketIo, recovers);
        let mut request = NamespaceRequest { client: sid, namespace, auth, query, recovered: false };
        let scope =
            HandlerScope { client: Some(sid), encoding, request: input.request, ..HandlerScope::default() };
        let offset = json::string_member(auth, "offset");
        match ex.notify_app(scope, |app, ctx| app.connect_namespace(ctx, &request)) {
            Admission::Accept => {}
            Admission::Unknown => return refuse(carrier, namespace, "Invalid namespace", None, out),
            Admission::Refuse { message, data } => {
                return refuse(carrier, namespace, &message, data.as_deref(), out);
            }
        }
        let recovered = match (arrival, pid) {
            (Some(number), _) => {
                ex.adopt(client, number, offset.as_deref(), encoding, source, identity.clone())
            }
            (None, Some(pid)) => {
                ex.recover(client, pid, offset.as_deref(), namespace, encoding, identity.clone())
            }
            (None, None) => None,
        };
        request.recovered = recovered.is_some();
        let (slot, session) = match recovered {
            Some((slot, session)) => (Some(slot), session),
            None => {
                if let Err(reached) = ex.check_socket(source, identity.as_deref()) {
                    return refuse_denied(carrier, namespace, &reached.denial(), out);
                }
                let session = ex.open_session(encoding, Owner::Client(client), source, identity);
                (recovers.then(|| ex.make_recoverable(session, client, room)), session)
            }
        };
        // The answer to the CONNECT ends a waiting poll.
        ex.hub.set_writable(session, framing != EngineFraming::Record);
        let pid = slot.and_then(|slot| ex.recovery.get(slot)).map(|socket| socket.pid.to_string());
        let socket_id = match version {
            Version::V3 => id_of_version_3(&sid.to_string(), namespace),
            // A recovered session keeps its id.
            Version::V4 => ex.public_id(session).to_string(),
        };
        if request.recovered {
            // Missed messages are sent before the answer to the CONNECT.
            ex.take_at_once(session, out);
        }
        framing.packet(out, 80, |out| {
            out.push(b'4');
            socketio::write_connected(out, version.into(), namespace, &socket_id, pid.as_deref());
        });
        let stored = (namespace != "/").then(|| Arc::from(namespace));
        self.sockets.push(Socket { session, namespace: stored, recovery: slot.map(|slot| slot as u32) });
        let feeds = if namespace == "/" { self.feeds.take() } else { None };
        let scope = HandlerScope { session: Some(session), namespace: Some(namespace), ..scope };
        let asked = ex.effects.mark();
        ex.call_app(scope, out, |app, ctx| app.joined(ctx, session, &request, &socket_id));
        ex.join_rooms(session, namespace);
        if let Some(feeds) = feeds {
            ex.subscribe_feeds(carrier.conn, session, *feeds);
        }
        Flow::if_continues(!ex.effects.closes_since(asked, session))
    }

    /// The other core that has a client's missed messages. `None` if this core has them, the client isn't fresh, or it
    /// can't move.
    fn kept_elsewhere(&self, ex: &Executor, sid: Sid, pid: Sid) -> Option<CoreId> {
        let (core, cores) = (ex.context.core, ex.shared.cores);
        if !self.is_fresh() || self.stays || sid.core(cores) != core || ex.is_draining() {
            return None;
        }
        ex.shared.core_of_socket(pid).filter(|other| *other != core)
    }
}

/// The `data` of a CONNECT_ERROR for a denial.
fn denial_data(denial: &Denial) -> String {
    let mut code = Vec::new();
    json::write_string(&mut code, &denial.code);
    let code = String::from_utf8(code).unwrap_or_default();
    format!(r#"{{"code":{code},"retry":{}}}"#, denial.retry)
}

/// The id that a client of Engine.IO 3 uses for its socket in a namespace.
pub(crate) fn id_of_version_3(sid: &str, namespace: &str) -> String {
    if namespace == "/" { sid.to_owned() } else { format!("{namespace}#{sid}") }
}

/// Notifies a client that it may not connect to a namespace, with the denial's message and data.
fn refuse_denied(carrier: Carrier, namespace: &str, denial: &Denial, out: &mut Vec<u8>) -> Flow {
    refuse(carrier, namespace, &denial.message, Some(&denial_data(denial)), out)
}

/// Notifies a client that it isn't connected to a namespace.
fn refuse(carrier: Carrier, namespace: &str, message: &str, data: Option<&str>, out: &mut Vec<u8>) -> Flow {
    carrier.framing.packet(out, namespace.len() + message.len() + 32, |out| {
        out.push(b'4');
        socketio::write_connect_error(out, carrier.version.into(), namespace, message, data);
    });
    Flow::Continue
}

/// Returns a query as a JSON object of strings, with arrays for repeated names, as Node's `querystring` parses it.
pub(super) fn object_of_query(query: &str) -> String {
    let mut names: BTreeMap<Cow<'_, str>, usize> = BTreeMap::new();
    let mut members: Vec<(Cow<'_, str>, Vec<Cow<'_, str>>)> = Vec::new();
    let pairs = http1::query_pairs(query).filter(|(name, value)| !(name.is_empty() && value.is_empty()));
    for (name, value) in pairs.take(QUERY_PAIRS_MAX) {
        let place = *names.entry(name.clone()).or_insert(members.len());
        match members.get_mut(place) {
            Some((_, values)) => values.push(value),
            None => members.push((name, vec![value])),
        }
    }
    let mut out = b"{".to_vec();
    for (n, (name, values)) in members.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        json::write_string(&mut out, name);
        out.push(b':');
        let is_list = values.len() > 1;
        out.extend(is_list.then_some(b'['));
        for (n, value) in values.iter().enumerate() {
            out.extend((n > 0).then_some(b','));
            json::write_string(&mut out, value);
        }
        out.extend(is_list.then_some(b']'));
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_else(|_| "{}".to_owned())
}
