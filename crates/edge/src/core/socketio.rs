//! Socket.IO, protocols 5 and 4, upon Engine.IO: namespaces, events, acknowledgements, and recovery.
//!
//! A client has a *socket* in each namespace that it is connected to; to the application and the hub each is a session
//! of its own. What a client may not send ends its connection, as in socket.io 4: a second CONNECT, a packet for a
//! namespace that isn't connected, anything that can't be parsed.
//!
//! **Recovery** (protocol 5). When a client is lost, not when it leaves, its sockets are *suspended*: the hub keeps their
//! rooms, and its log has what is published meanwhile. A client that comes back shows the `pid` that it was given and
//! the last offset that it has seen, and gets what it missed before the answer to its CONNECT ([`super::recovery`]), whether its loss
//! had been noticed or not. What a core keeps it keeps to itself: a client that comes back to another one is moved ([`super::engine::moving`]).

use super::client::{Client, ClientId, Clients, Sid, Upper};
use super::engine::session::End;
use super::recovery::{Recovery, Suspension};
use super::wishes::Feeds;
use super::{About, CLIENT_TAG, Core, Later, SUSPENDED_TAG, client_tag};
use crate::app::{AT_ONCE_BYTES_MAX, Ack, Admission, Arguments, Envelope, Event, Hello, take_at_once};
use crate::encode::Format;
use crate::encode::{EngineWriter, Writer};
use crate::millis::Millis;
use bytes::Bytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use stentor_driver::Driver;
use stentor_hub::{CoreId, Disconnect, FormatId, Room, SessionId, Topic};
use stentor_json as json;
use stentor_wire::engineio::{Data, Version};
use stentor_wire::http1::{self, Request};
use stentor_wire::socketio::{self, Attachments, Body, Decoder, Role};

/// Maximum number of parameters in a namespace's query, as in Node.
const QUERY_PAIRS_MAX: usize = 1_000;

/// What Socket.IO knows of a client.
pub(super) struct SocketIo {
    /// A packet with missing attachments, and the deadline for them.
    unfinished: Option<(Decoder, Millis)>,
    pub(super) sockets: SmallVec<[Socket; 1]>,
    /// When it has to be connected to some namespace.
    pub(super) connect_until: Millis,
    /// The feeds of the handshake's query, for the main namespace.
    feeds: Option<Box<Feeds>>,
    /// The core that keeps what it lost, where it is to go before it connects.
    leaving: Option<CoreId>,
    /// It couldn't go there.
    pub(super) stays: bool,
}

impl SocketIo {
    pub(super) fn new(connect_until: Millis, feeds: Option<Box<Feeds>>) -> Self {
        let sockets = SmallVec::new();
        Self { unfinished: None, sockets, connect_until, feeds, leaving: None, stays: false }
    }

    /// Whether nothing has happened yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.sockets.is_empty() && self.unfinished.is_none()
    }

    /// The deadline for missing attachments, if any.
    pub(super) fn packet_until(&self) -> Option<Millis> {
        self.unfinished.as_ref().map(|(_, until)| *until)
    }

    /// Sets the deadline for the missing attachments.
    pub(super) fn extend_packet(&mut self, until: Millis) {
        if let Some((_, current)) = &mut self.unfinished {
            *current = until;
        }
    }

    /// Bytes of a packet with missing attachments.
    pub(super) fn held_bytes(&self) -> usize {
        self.unfinished.as_ref().map_or(0, |(decoder, _)| decoder.held_bytes())
    }

    pub(super) fn into_feeds(self) -> Option<Box<Feeds>> {
        self.feeds
    }

    pub(super) fn find(&self, namespace: &str) -> Option<&Socket> {
        self.sockets.iter().find(|socket| socket.namespace() == namespace)
    }
}

/// A client in a namespace.
pub(super) struct Socket {
    pub(super) session: SessionId,
    /// `None` for the main one.
    namespace: Option<Arc<str>>,
    pub(super) recovery: Option<Box<Recovery>>,
}

impl Socket {
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("/")
    }
}

/// Where sockets are found by their sessions, for those who write to them.
#[derive(Clone, Copy)]
pub(crate) struct Sockets<'a> {
    clients: &'a Clients,
    suspended: &'a Suspension,
}

impl<'a> Sockets<'a> {
    pub(super) fn new(clients: &'a Clients, suspended: &'a Suspension) -> Self {
        Self { clients, suspended }
    }

    /// A room of the namespace of a socket that can be recovered; `tag` is its session's.
    pub(crate) fn recoverable(self, session: SessionId, tag: u64) -> Option<&'a Room> {
        if tag & CLIENT_TAG == 0 && tag & SUSPENDED_TAG != 0 {
            let suspended = self.suspended.slots.get((tag & !SUSPENDED_TAG) as usize)?;
            return (suspended.session == session).then_some(&suspended.recovery.room);
        }
        let Upper::SocketIo(io) = &self.clients.of_tag(tag)?.upper else { return None };
        let socket = io.sockets.iter().find(|socket| socket.session == session)?;
        socket.recovery.as_ref().map(|recovery| &recovery.room)
    }
}

impl Client {
    /// The format of publications for a session of this client; `recovers`: where lost clients get what they missed.
    pub(super) fn format(&self, recovers: bool) -> Option<FormatId> {
        let recovers = recovers && self.version() == Version::V4;
        let envelope = match &self.upper {
            Upper::None => return None,
            Upper::Plain { envelope, .. } => *envelope,
            Upper::SocketIo(_) => Envelope::SocketIo,
        };
        Some(Format::engine_io(self.writer(), envelope, recovers).into())
    }
}

impl<D: Driver> Core<D> {
    /// What a client's messages mean begins.
    pub(super) fn open_upper(
        &mut self,
        id: ClientId,
        request: &Request<'_>,
        feeds: Feeds,
        raw: bool,
        out: &mut Vec<u8>,
    ) {
        let envelope = if raw { Envelope::Raw } else { self.app.envelope() };
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Upper::SocketIo(io) = &mut client.upper {
            io.feeds = (!feeds.keys.is_empty()).then(|| feeds.into());
            // Clients of protocol 4 are connected to the main namespace unasked.
            if client.version() == Version::V3 {
                self.socketio_connect(id, "/", None, Some(request.query()), Some(request), out);
            }
            return;
        }
        let writer = client.writer();
        let session = self.hub.handle_open(Format::engine_io(writer, envelope, false).into(), client_tag(id));
        self.hub.set_source(session, client.source);
        client.upper = Upper::Plain { session, envelope };
        let about = About {
            session: Some(session),
            writer: Writer::Engine(writer),
            envelope,
            request: Some(request),
            ..About::default()
        };
        self.tell_app(about, out, |app, ctx| app.opened(ctx, session, envelope));
        self.subscribe_feeds(session, feeds);
    }

    /// A message of a Socket.IO client. Says whether to go on with what follows it.
    pub(super) fn socketio_message(
        &mut self,
        id: ClientId,
        data: Data<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let limits = socketio::Limits {
            attachments_max: self.shared.options.engine.attachments_max,
            packet_bytes_max: self.shared.options.limits.message_bytes_max,
        };
        let Some(client) = self.clients.get_mut(id) else { return false };
        let version = client.version();
        let Upper::SocketIo(io) = &mut client.upper else { return false };
        let was_mid_packet = io.unfinished.is_some();
        let (mut decoder, until) = match io.unfinished.take() {
            Some((decoder, until)) => (decoder, Some(until)),
            None => (Decoder::new(version.into(), Role::Server), None),
        };
        let assembled;
        let decoded = match data {
            Data::Text(text) => decoder.text(text, &limits),
            Data::Binary(bytes) => match decoder.binary(bytes, &limits) {
                Ok(Some(whole)) => {
                    assembled = whole;
                    Ok(Some(assembled.packet()))
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
        };
        let goes_on = match decoded {
            Ok(Some(packet)) => self.socketio_packet(id, packet.namespace, packet.body, request, out),
            Ok(None) => true,
            Err(_) => self.socketio_fault(id),
        };
        let weighs = was_mid_packet || decoder.is_mid_packet();
        if decoder.is_mid_packet() {
            self.await_attachments(id, decoder, until);
        }
        if weighs {
            self.weigh_client(id);
        }
        goes_on
    }

    /// Keeps a packet until its attachments have arrived. As for a fragmented WebSocket message, the time limit
    /// starts with its first part.
    fn await_attachments(&mut self, id: ClientId, decoder: Decoder, until: Option<Millis>) {
        let until = until.unwrap_or_else(|| self.millis().after(self.shared.options.limits.message_timeout));
        if let Some(Client { upper: Upper::SocketIo(io), .. }) = self.clients.get_mut(id) {
            io.unfinished = Some((decoder, until));
            self.arm_client(id, until);
        }
    }

    /// The client has broken the protocol: its connection ends.
    fn socketio_fault(&mut self, id: ClientId) -> bool {
        self.metrics().protocol_errors.add(1);
        self.later.push(Later::End(id, End::Because(Disconnect::ProtocolError)));
        false
    }

    fn socketio_packet(
        &mut self,
        id: ClientId,
        namespace: &str,
        body: Body<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let Upper::SocketIo(io) = &client.upper else { return false };
        let engine = client.writer();
        let found = io.find(namespace);
        let (session, body) = match (found, body) {
            (None, Body::Connect { payload, query }) => {
                // Clients of protocol 4 authenticate with the namespace's query, as in socket.io 4.
                let auth = query.map(object_of_query);
                let payload = payload.or(auth.as_deref());
                return self.socketio_connect(id, namespace, payload, query, request, out);
            }
            (Some(socket), body) => (socket.session, body),
            (None, _) => return self.socketio_fault(id),
        };
        let writer = Writer::SocketIo { engine, namespace };
        let about = About {
            session: Some(session),
            writer,
            envelope: Envelope::SocketIo,
            request,
            ..About::default()
        };
        match body {
            Body::Event(event) => {
                let attachments = owned(event.attachments);
                let event = Event {
                    name: &event.name(),
                    arguments: Arguments { json: event.arguments.raw(), attachments: &attachments },
                    ack: event.id.map(Ack),
                };
                let asked = self.actions.len();
                self.tell_app(about, out, |app, ctx| app.event(ctx, session, &event));
                !self.asks_to_close(asked, session)
            }
            Body::Ack(ack) => {
                // Late, made up, or another's: nobody waits for it.
                let Some((_, token)) = self.acks.take(ack.id, Some(session)) else { return true };
                let attachments = owned(ack.attachments);
                let answer = Arguments { json: ack.arguments.raw(), attachments: &attachments };
                let asked = self.actions.len();
                self.tell_app(about, out, |app, ctx| app.acked(ctx, session, token, Some(answer)));
                !self.asks_to_close(asked, session)
            }
            Body::Disconnect => {
                self.leave_namespace(id, session);
                true
            }
            Body::Connect { .. } | Body::ConnectError { .. } => self.socketio_fault(id),
        }
    }

    /// A client wants to connect to a namespace. Says whether to go on with what follows.
    fn socketio_connect(
        &mut self,
        id: ClientId,
        namespace: &str,
        payload: Option<&str>,
        query: Option<&str>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let Upper::SocketIo(io) = &client.upper else { return false };
        let (version, engine) = (client.version(), client.writer());
        let sid = client.sid;
        if io.sockets.len() >= self.shared.options.engine.namespaces_max {
            refuse(engine, namespace, "Too many namespaces (socketio.namespaces_max)", None, out);
            return true;
        }
        // Longer ones can't have rooms.
        let Ok(room) = Room::all_members(namespace) else {
            refuse(engine, namespace, "Invalid namespace", None, out);
            return true;
        };
        let auth = payload.unwrap_or("{}");
        let recovers = self.shared.options.engine.recovery.is_some() && version == Version::V4;
        if recovers && let Some(core) = self.kept_elsewhere(id, auth) {
            if let Some(Client { upper: Upper::SocketIo(io), .. }) = self.clients.get_mut(id) {
                io.leaving = Some(core);
            }
            return false;
        }
        let name = sid.to_string();
        let mut hello =
            Hello { client: &name, namespace, auth, query: query.unwrap_or(""), recovered: false };
        let envelope = Envelope::SocketIo;
        let about = About { client: Some(&name), envelope, request, ..About::default() };
        match self.ask_app(about, |app, ctx| app.hello(ctx, &hello)) {
            Admission::Accept => {}
            Admission::Unknown => {
                refuse(engine, namespace, "Invalid namespace", None, out);
                return true;
            }
            Admission::Refuse { message, data } => {
                refuse(engine, namespace, &message, data.as_deref(), out);
                return true;
            }
        }
        let format = Format::engine_io(engine, envelope, recovers).into();
        let resumed = if recovers { self.resume(id, auth, namespace, format) } else { None };
        let (session, recovery) = match resumed {
            Some((session, recovery)) => {
                hello.recovered = true;
                self.hub.set_tag(session, client_tag(id));
                (session, Some(recovery))
            }
            None => {
                let session = self.hub.handle_open(format, client_tag(id));
                let source = self.clients.get(id).map_or(0, |client| client.source);
                self.hub.set_source(session, source);
                let (core, cores) = (self.facts.core, self.shared.cores);
                let recovery = recovers.then(|| {
                    let pid = self.sids.draw(core, cores);
                    self.suspended.connected(pid, id);
                    Box::new(Recovery { pid, room })
                });
                (session, recovery)
            }
        };
        let socket_id = match version {
            Version::V3 => id_of_version_3(&name, namespace),
            // A session that is recovered has the id that it had.
            Version::V4 => self.facts.public_id(session).to_string(),
        };
        if hello.recovered {
            // What it missed comes before the answer.
            take_at_once(&mut self.hub, session, out);
        }
        engine.packet(out, 80, |out| {
            out.push(b'4');
            let pid = recovery.as_ref().map(|recovery| recovery.pid.to_string());
            socketio::write_connected(out, version.into(), namespace, &socket_id, pid.as_deref());
        });
        let writer = Writer::SocketIo { engine, namespace };
        let stored = (namespace != "/").then(|| Arc::from(namespace));
        let mut feeds = None;
        if let Some(Client { upper: Upper::SocketIo(io), .. }) = self.clients.get_mut(id) {
            io.sockets.push(Socket { session, namespace: stored, recovery });
            if namespace == "/" {
                feeds = io.feeds.take();
            }
        }
        let about = About {
            session: Some(session),
            client: Some(&name),
            writer,
            envelope,
            request,
            ..About::default()
        };
        let asked = self.actions.len();
        self.tell_app(about, out, |app, ctx| app.joined(ctx, session, &hello, &socket_id));
        if let Some(feeds) = feeds {
            self.subscribe_feeds(session, *feeds);
        }
        !self.asks_to_close(asked, session)
    }

    /// The client leaves a namespace; its connection stays.
    pub(super) fn leave_namespace(&mut self, id: ClientId, session: SessionId) {
        let now = self.millis();
        let connect_timeout = self.shared.options.engine.connect_timeout;
        let Some(Client { upper: Upper::SocketIo(io), .. }) = self.clients.get_mut(id) else { return };
        let left = io.sockets.iter().position(|socket| socket.session == session);
        if let Some(recovery) = left.and_then(|at| io.sockets.remove(at).recovery) {
            self.suspended.ended(recovery.pid);
        }
        if io.sockets.is_empty() {
            io.connect_until = now.after(connect_timeout);
            self.arm_client(id, now.after(connect_timeout));
        }
        self.hub.handle_close(session);
        self.ask_app(About::default(), |app, ctx| app.closed(ctx, session));
    }

    /// Ends one socket for a reason of ours: where its client may come back, by ending the connection, so that it
    /// does.
    pub(super) fn disconnect_socket(&mut self, id: ClientId, session: SessionId, why: Disconnect) {
        let Some(client) = self.clients.get(id) else { return };
        let Upper::SocketIo(io) = &client.upper else { return self.end_client(id, End::Because(why)) };
        if why.reconnect() {
            return self.end_client(id, End::Because(why));
        }
        let Some(socket) = io.sockets.iter().find(|socket| socket.session == session) else { return };
        let namespace = socket.namespace().to_owned();
        self.metrics().disconnects[why as usize].add(1);
        let last_words = self.take_before_answers(session);
        self.leave_namespace(id, session);
        self.write_to_client(id, |engine, out| {
            out.extend_from_slice(&last_words);
            write_disconnect(engine, &namespace, out);
        });
    }

    /// Sends an event to a socket that can be recovered; says whether it is one.
    pub(super) fn send_recoverable(
        &mut self,
        session: SessionId,
        name: &str,
        arguments: Arguments<'_>,
    ) -> bool {
        let sockets = Sockets::new(&self.clients, &self.suspended);
        let room = self.hub.tag(session).and_then(|tag| sockets.recoverable(session, tag));
        if let Some(room) = room {
            let (now, data) = (self.facts.now, arguments.to_data());
            self.hub.handle_send(now, &[session], room, Some(name.into()), data, false);
        }
        room.is_some()
    }

    /// What a socket that can be recovered was sent already, and what is written to it now must not overtake.
    pub(super) fn take_before_answers(&mut self, session: SessionId) -> Vec<u8> {
        let mut out = Vec::new();
        let sockets = Sockets::new(&self.clients, &self.suspended);
        let is_recoverable =
            self.hub.tag(session).is_some_and(|tag| sockets.recoverable(session, tag).is_some());
        if is_recoverable && self.hub.pending_bytes_of(session) <= AT_ONCE_BYTES_MAX {
            take_at_once(&mut self.hub, session, &mut out);
        }
        out
    }

    /// How to write to a session of a client, from outside of the handling of its messages.
    pub(super) fn write_to_session(
        &mut self,
        id: ClientId,
        session: SessionId,
        write: impl FnOnce(Writer<'_>, &mut Vec<u8>),
    ) {
        let Some(client) = self.clients.get(id) else { return };
        match &client.upper {
            Upper::None => {}
            Upper::Plain { .. } => self.write_to_client(id, |engine, out| write(Writer::Engine(engine), out)),
            Upper::SocketIo(io) => {
                let Some(socket) = io.sockets.iter().find(|socket| socket.session == session) else { return };
                let namespace = socket.namespace.clone();
                let before = self.take_before_answers(session);
                self.write_to_client(id, |engine, out| {
                    out.extend_from_slice(&before);
                    let namespace = namespace.as_deref().unwrap_or("/");
                    write(Writer::SocketIo { engine, namespace }, out);
                });
            }
        }
    }

    pub(super) fn subscribe_feeds(&mut self, session: SessionId, Feeds { keys, terms }: Feeds) {
        for key in keys {
            if let Err(error) = self.hub.handle_subscribe(session, &Topic::Feed(key), terms, None) {
                self.actions.push(crate::app::Action::Close { session, why: super::why_refused(error) });
                break;
            }
        }
    }

    /// The other core that keeps what a client lost, if it says so before anything has happened and can go there.
    fn kept_elsewhere(&self, id: ClientId, auth: &str) -> Option<CoreId> {
        let Some(Client { sid, upper: Upper::SocketIo(io), .. }) = self.clients.get(id) else { return None };
        let is_home = sid.core(self.shared.cores) == self.facts.core;
        if !io.is_fresh() || io.stays || !is_home || self.draining {
            return None;
        }
        let pid = Sid::parse(&json::string_member(auth, "pid")?)?;
        Some(pid.core(self.shared.cores)).filter(|core| *core != self.facts.core)
    }

    /// Whether a client has to go to another core before its last packet is looked at, and to which. Asked once.
    pub(super) fn leaving(&mut self, id: ClientId) -> Option<CoreId> {
        match self.clients.get_mut(id) {
            Some(Client { upper: Upper::SocketIo(io), .. }) => io.leaving.take(),
            _ => None,
        }
    }
}

/// Tells a client that its socket in a namespace is disconnected.
pub(super) fn write_disconnect(engine: EngineWriter, namespace: &str, out: &mut Vec<u8>) {
    engine.packet(out, namespace.len() + 3, |out| {
        out.push(b'4');
        socketio::write_disconnect(out, namespace);
    });
}

/// The id that a client of Engine.IO 3 gives its socket in a namespace.
pub(super) fn id_of_version_3(sid: &str, namespace: &str) -> String {
    if namespace == "/" { sid.to_owned() } else { format!("{namespace}#{sid}") }
}

/// Tells a client that it isn't connected to a namespace.
fn refuse(engine: EngineWriter, namespace: &str, message: &str, data: Option<&str>, out: &mut Vec<u8>) {
    engine.packet(out, namespace.len() + message.len() + 32, |out| {
        out.push(b'4');
        socketio::write_connect_error(out, engine.version.into(), namespace, message, data);
    });
}

/// A query as a JSON object of strings, with arrays for repeated names, as Node's `querystring` parses it.
fn object_of_query(query: &str) -> String {
    let mut names: HashMap<Cow<'_, str>, usize> = HashMap::new();
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

fn owned(attachments: Attachments<'_>) -> SmallVec<[Bytes; 1]> {
    attachments.iter().map(Bytes::copy_from_slice).collect()
}
