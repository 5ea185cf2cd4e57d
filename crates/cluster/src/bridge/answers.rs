//! Answers requests of other servers. A request that has an answer is always answered, even with "none", because its caller waits
//! for 5 seconds otherwise.

use super::Bridge;
use super::namespace::Namespace;
use super::refused::Refused;
use crate::metrics::count;
use crate::socketio::{
    Event, RemoteSession, Request, RequestBody, Response, ResponseBody, Selection, SessionDetails,
    Target as Asked,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Data, Rooms};
use stentor_json as json;
use stentor_ports::{
    Acknowledged, Command, Concerned, Done, LocalNode, Principal, PublicId, ROOMS_LISTED_MAX, RoomList,
    RoomsQuery, SESSIONS_LISTED_MAX, SessionInfo, SessionList, Target,
};
use tokio::sync::oneshot;

/// Maximum number of requests that are answered at the same time. Further requests wait.
pub(super) const ANSWERS_MAX: usize = 64;
/// Maximum number of bytes of answers per second.
const BYTES_PER_SECOND: f64 = 32e6;
/// Minimum cost of a request, in bytes of its answer.
const REQUEST_BYTES: usize = 16_384;

/// Maximum time for clients to acknowledge an event, whatever the server requests.
const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// The handshake that other servers receive for a client that doesn't speak Socket.IO.
const HANDSHAKE: &[u8] = br#"{"headers":{},"time":"","address":"","xdomain":false,"secure":false,"issued":0,"url":"","query":{},"auth":{}}"#;

/// A server that waits for an answer, with the request.
#[derive(Clone)]
struct Asker {
    uid: Option<Arc<str>>,
    id: Arc<str>,
}

/// The number of bytes that answers may still have.
pub(super) struct Allowance(Mutex<(f64, Instant)>);

impl Default for Allowance {
    fn default() -> Self {
        Self(Mutex::new((BYTES_PER_SECOND, Instant::now())))
    }
}

impl Allowance {
    /// Takes the cost of a request or an answer. Returns `true` if there was any allowance left.
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
    fn take(&self, now: Instant, bytes: usize) -> bool {
        let (left, at) = &mut *self.0.lock();
        *left = (*left + now.saturating_duration_since(*at).as_secs_f64() * BYTES_PER_SECOND)
            .min(BYTES_PER_SECOND);
        *at = now;
        let has_some = *left > 0.0;
        if has_some {
            *left -= bytes as f64;
        }
        has_some
    }

    /// Takes the cost of an answer, whether or not there is any allowance left.
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
    fn charge(&self, bytes: usize) {
        self.0.lock().0 -= bytes as f64;
    }
}

impl Bridge {
    /// Carries out a request, in order with other messages, or begins to answer it.
    pub(super) async fn handle_request(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        request: Request,
        plane: &Arc<dyn LocalNode>,
    ) -> Result<(), Refused> {
        count(&self.counters.requests_received);
        if !self.allowance.take(Instant::now(), REQUEST_BYTES) {
            return Err(Refused::Rate);
        }
        let Request { id, body, uid } = request;
        let asker = id.map(|id| Asker { uid, id });
        match body {
            RequestBody::Join { target, rooms } => {
                let rooms = self.rooms(namespace, &rooms)?;
                let join = |done| Command::Join { rooms: rooms.clone(), done };
                namespace.expect_members(&rooms);
                self.act(namespace, target, asker, plane, join).await?;
            }
            RequestBody::Leave { target, rooms } => {
                let rooms = self.rooms(namespace, &rooms)?;
                self.act(namespace, target, asker, plane, |done| Command::Leave {
                    rooms: rooms.clone(),
                    done,
                })
                .await?;
            }
            RequestBody::Disconnect { target, close } => {
                self.act(namespace, target, asker, plane, |done| Command::Disconnect { close, done }).await?;
            }
            RequestBody::Sessions { rooms } => {
                let selection = Selection { rooms, except: Vec::new() };
                let target = namespace.local(&selection, &**plane)?;
                self.answer(namespace, asker, plane, move |plane, _| async move {
                    let ids = sessions(&*plane, target).await.into_iter();
                    ResponseBody::Sessions(
                        ids.map(|info| RemoteSession { id: info.id.into(), details: None }).collect(),
                    )
                })
                .await;
            }
            RequestBody::Fetch(selection) => {
                let target = namespace.local(&selection, &**plane)?;
                self.answer(namespace, asker, plane, move |plane, _| async move {
                    let sessions = sessions(&*plane, target).await;
                    ResponseBody::Sessions(sessions.into_iter().map(remote_session).collect())
                })
                .await;
            }
            RequestBody::Rooms => {
                self.answer(namespace, asker, plane, |plane, namespace| async move {
                    ResponseBody::Rooms(rooms(&*plane, &namespace).await)
                })
                .await;
            }
            RequestBody::ServerSideEmit(_) => {
                // No application code of this node could receive the event.
                let nothing = Data::Arguments { json: Bytes::from_static(b"null"), attachments: [].into() };
                if let Some(asker) = asker {
                    self.respond(namespace, asker, ResponseBody::ServerSideEmit(nothing));
                }
            }
            RequestBody::Broadcast { selection, flags, event, .. } => {
                let Some(asker) = asker else {
                    return self.deliver(namespace, &selection, event, flags.volatile, plane).await;
                };
                let timeout = flags.timeout_ms.map_or(CALL_TIMEOUT_MAX, Duration::from_millis);
                self.call(namespace, &selection, event, timeout.min(CALL_TIMEOUT_MAX), asker, plane).await?;
            }
        }
        Ok(())
    }

    /// Sends an event to sessions of this node, and their acknowledgements to the requesting server.
    async fn call(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        selection: &Selection,
        event: Event,
        timeout: Duration,
        asker: Asker,
        plane: &Arc<dyn LocalNode>,
    ) -> Result<(), Refused> {
        let target = namespace.local(selection, &**plane)?;
        let mut clients = 0;
        if !target.is_empty() {
            count(&self.counters.received);
            let answered: Acknowledged = {
                let (bridge, namespace, asker) = (self.clone(), namespace.clone(), asker.clone());
                Arc::new(move |data| {
                    bridge.respond(&namespace, asker.clone(), ResponseBody::Acknowledged(data))
                })
            };
            let call = |done| {
                let (event, data) = (event.name.clone(), event.arguments.clone());
                Command::Call { event, data, timeout, answered: answered.clone(), done }
            };
            clients =
                self.ordered.carry_out(plane, &target, call).await.map_or(0, |concerned| concerned.sessions);
        }
        self.respond(namespace, asker, ResponseBody::ClientCount(clients as u64));
        Ok(())
    }

    fn rooms(&self, namespace: &Namespace, names: &[Arc<str>]) -> Result<Rooms, Refused> {
        let rooms = names.iter().map(|name| namespace.all_members.sibling(name));
        let rooms: Vec<_> = rooms.collect::<Result<_, _>>().map_err(|_| Refused::RoomName)?;
        // A request without rooms has no effect.
        Rooms::try_from(rooms).map_err(|_| Refused::RoomName)
    }

    /// Carries out a command for sessions of this node. Later messages wait until it has been carried out.
    async fn act(
        &self,
        namespace: &Namespace,
        target: Asked,
        asker: Option<Asker>,
        plane: &Arc<dyn LocalNode>,
        command: impl Fn(Done<Concerned>) -> Command,
    ) -> Result<(), Refused> {
        let (target, is_single) = match target {
            Asked::Selection(selection) => {
                (Some(namespace.local(&selection, &**plane)?).filter(|target| !target.is_empty()), false)
            }
            Asked::Session(session) => {
                let target = Target::of_rooms(namespace.all_members.clone(), Vec::new(), Vec::new());
                (PublicId::parse(&session).map(|session| target.session(session)), true)
            }
        };
        let Some(target) = target else { return Ok(()) };
        let result = self.ordered.carry_out(plane, &target, command).await;
        if let (Some(asker), true, Ok(concerned)) = (asker, is_single, result)
            && concerned.sessions > 0
        {
            self.respond(namespace, asker, ResponseBody::Done);
        }
        Ok(())
    }

    /// Answers a request while others are handled.
    async fn answer<F>(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        asker: Option<Asker>,
        plane: &Arc<dyn LocalNode>,
        body: impl FnOnce(Arc<dyn LocalNode>, Arc<Namespace>) -> F,
    ) where
        F: Future<Output = ResponseBody> + Send + 'static,
    {
        // The decoder requires a requester.
        let Some(asker) = asker else { return };
        let Ok(permit) = self.answers.clone().acquire_owned().await else { return };
        let body = body(plane.clone(), namespace.clone());
        let (bridge, namespace) = (self.clone(), namespace.clone());
        tokio::spawn(async move {
            bridge.respond(&namespace, asker, body.await);
            drop(permit);
        });
    }

    /// Sends an answer.
    fn respond(&self, namespace: &Namespace, asker: Asker, body: ResponseBody) {
        if matches!(body, ResponseBody::ClientCount(_)) && namespace.protocol.count_servers().is_none() {
            // Servers in Python use the first acknowledgement, and don't count.
            return;
        }
        let Asker { uid, id } = asker;
        let published = namespace.protocol.response(uid.as_deref(), Response { id, body });
        self.allowance.charge(published.as_ref().map_or(0, |(_, payload)| payload.len()));
        self.publish_now(published);
    }
}

/// Sessions of this node. Empty if the node is overloaded or stops.
async fn sessions(plane: &dyn LocalNode, target: Target) -> Vec<SessionInfo> {
    if target.is_empty() {
        return Vec::new();
    }
    let (done, answered) = oneshot::channel();
    let done = Done::new(move |result: Result<SessionList, _>| _ = done.send(result));
    plane.command(target, Command::Sessions { limit: SESSIONS_LISTED_MAX, done });
    answered.await.ok().and_then(Result::ok).unwrap_or_default().sessions
}

/// Rooms with members on this node, including the rooms of single sessions.
async fn rooms(plane: &dyn LocalNode, namespace: &Namespace) -> Vec<Arc<str>> {
    let (done, answered) = oneshot::channel();
    let done = Done::new(move |result: Result<RoomList, _>| _ = done.send(result));
    let (prefix, after) = (String::new(), String::new());
    let query = RoomsQuery { namespace: namespace.name.to_string(), prefix, after, limit: ROOMS_LISTED_MAX };
    plane.list_rooms(query, done);
    let list = answered.await.ok().and_then(Result::ok).unwrap_or_default();
    let all = vec![namespace.all_members.clone()];
    let all = Target::of_rooms(namespace.all_members.clone(), all, Vec::new());
    let own = sessions(plane, all).await.into_iter().map(|session| session.id.into());
    list.rooms.into_iter().map(|(name, _)| name.into()).chain(own).collect()
}

/// The data that an application would keep with a socket: the client's identity, in the form that hooks receive.
fn data(details: &stentor_ports::SessionDetails) -> Bytes {
    let mut data = vec![b'{'];
    if let Some(Principal { issuer, subject }) = &details.user {
        data.extend_from_slice(br#""user":{"id":"#);
        json::write_string(&mut data, subject);
        data.extend_from_slice(br#","issuer":"#);
        json::write_string(&mut data, issuer);
        data.push(b'}');
    }
    if let Some(info) = &details.info {
        data.extend_from_slice(if data.len() > 1 { br#","info":"# } else { br#""info":"# });
        data.extend_from_slice(info.as_bytes());
    }
    data.push(b'}');
    data.into()
}

fn remote_session(info: SessionInfo) -> RemoteSession {
    let data = data(&info.details);
    let SessionInfo { id, rooms, handshake, .. } = info;
    let id: Arc<str> = id.into();
    let rooms = std::iter::once(id.clone()).chain(rooms.into_iter().map(Arc::from)).collect();
    let handshake = handshake.map_or(Bytes::from_static(HANDSHAKE), |json| String::from(json).into());
    let details = SessionDetails { handshake, rooms, data };
    RemoteSession { id, details: Some(details) }
}
