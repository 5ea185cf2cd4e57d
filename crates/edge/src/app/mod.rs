//! Applications: what a server does with its sessions.
//!
//! One value of an [`Application`] lives on each core; its handlers run on that core's thread and return at
//! once (no futures, no locks). It acts through a [`Context`].
//!
//! A *plain* session sends and gets messages: over WebSocket, Engine.IO or SockJS. A Socket.IO client has a session in each
//! namespace that it is connected to, which sends and gets events.

mod chat;
mod echo;
mod refused;
mod rooms;
mod rules;
mod scalar;

pub use chat::Chat;
pub use echo::Echo;
pub use refused::{NotPublished, NotSubscribed};
pub use rooms::RoomsApp;
pub use rules::{Rule, Template, TemplateError};

use crate::core::{Facts, Sockets};
use crate::encode::Writer;
use crate::encode::{Formats, json_string};
use crate::ledger::Pressure;
use crate::options::Service;
use crate::ports::{Access, PublicId};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_driver::ConnId;
use stentor_hub::{
    Data, Disconnect, Emit, Hub, Notice, Policy, Position, Room, SessionId, SubscribeError, SubscribeOptions,
    Topic,
};
use stentor_wire::http1::Request;

/// A message as it came from a client, or goes to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Text in UTF-8.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

/// The arguments of a Socket.IO event or acknowledgement, as they travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// JSON texts joined by commas, perhaps none.
    pub json: &'a str,
    /// The bytes that `{"_placeholder":true,"num":N}` in `json` stands for, by number.
    pub attachments: &'a [Bytes],
}

impl Arguments<'_> {
    /// The same, to be published.
    pub fn to_data(&self) -> Data {
        let json = Bytes::copy_from_slice(self.json.as_bytes());
        Data::Arguments { json, attachments: self.attachments.into() }
    }

    /// One after the other: the text of a JSON value each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        stentor_json::elements(self.json)
    }
}

/// Where the acknowledgement of an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack(pub(crate) u64);

/// An event as it came from a Socket.IO client.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its name.
    pub name: &'a str,
    /// What came with it.
    pub arguments: Arguments<'a>,
    /// The client wants to hear that it was dealt with: [`Context::ack`].
    pub ack: Option<Ack>,
}

/// A Socket.IO client that wants to connect to a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The Engine.IO session's id: the same as in [`Context::client`] when its request was accepted.
    pub client: &'a str,
    /// Which namespace, `/` or what begins with it.
    pub namespace: &'a str,
    /// What the client says of itself: the text of a JSON object.
    pub auth: &'a str,
    /// The namespace's own query (clients of Engine.IO 3 only).
    pub query: &'a str,
    /// The client has come back, has its rooms, and has been sent what it missed.
    pub recovered: bool,
}

/// The answer to [`Hello`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Welcome.
    #[default]
    Accept,
    /// There is no such namespace.
    Unknown,
    /// Not welcome.
    Refuse {
        /// Why.
        message: String,
        /// More of it: the text of a JSON value.
        data: Option<String>,
    },
}

/// A request whose answer is [`Connect::Pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) ConnId);

/// The answer to a client that wants to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// Welcome.
    #[default]
    Accept,
    /// Welcome, with these headers in the first answer.
    AcceptWith(Vec<(String, String)>),
    /// [`Context::admit`] will say it, within `limits.request_timeout`.
    Pending,
    /// Not welcome.
    Refuse {
        /// An HTTP status, 400–599.
        status: u16,
        /// Why, for people.
        message: String,
    },
}

/// An answer of the application's own to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// An HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// Other headers.
    pub headers: Vec<(String, String)>,
    /// The content, or what of it there is at once.
    pub body: Bytes,
    /// More of it, each piece so long after the one before. The answer is chunked then.
    pub later: Vec<(Duration, Bytes)>,
}

/// How publications are written for the plain sessions of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// `stentor.v1` messages.
    V1,
    /// Bodies only.
    Raw,
    /// Socket.IO events.
    SocketIo,
}

/// What a server does with its sessions. All handlers run on the core that owns the session.
pub trait Application {
    /// How publications reach plain sessions that don't ask for something else.
    fn envelope(&self) -> Envelope {
        Envelope::Raw
    }

    /// Somebody asks (GET) for a path that is none of the server's own. Without an answer it is 404.
    fn page(&mut self, _ctx: &mut Context<'_>, _request: &Request<'_>) -> Option<Page> {
        None
    }

    /// A client wants to connect.
    fn connect(&mut self, _ctx: &mut Context<'_>, _request: &Request<'_>) -> Connect {
        Connect::Accept
    }

    /// A Socket.IO client wants to connect to a namespace. There is only the main one unless the application says so.
    /// One that comes back to a node of several cores may have been moved to this one after another one's `connect` and
    /// that one's [`Application::gone`]. One that comes back before its loss was noticed is asked about before `closed` and
    /// `gone` are said of its connection of before.
    fn hello(&mut self, _ctx: &mut Context<'_>, hello: &Hello<'_>) -> Admission {
        if hello.namespace == "/" { Admission::Accept } else { Admission::Unknown }
    }

    /// A Socket.IO client has connected to a namespace, and been told so; `id` is its socket's. One that is `recovered` is in the
    /// rooms that it was in, whatever it says of itself now.
    fn joined(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _hello: &Hello<'_>, _id: &str) {}

    /// A Socket.IO client has sent an event.
    fn event(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _event: &Event<'_>) {}

    /// A client has answered an event of [`Context::emit_with_ack`], or not in time.
    fn acked(
        &mut self,
        _ctx: &mut Context<'_>,
        _session: SessionId,
        _token: u64,
        _answer: Option<Arguments<'_>>,
    ) {
    }

    /// An Engine.IO client has gone, with all of its sessions.
    fn gone(&mut self, _ctx: &mut Context<'_>, _client: &str) {}

    /// A plain session has begun.
    fn opened(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _envelope: Envelope) {}

    /// A client has sent a message.
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>);

    /// A session has to be told about one of its subscriptions.
    fn notice(&mut self, _ctx: &mut Context<'_>, _notice: &Notice) {}

    /// A session has ended.
    fn closed(&mut self, _ctx: &mut Context<'_>, _session: SessionId) {}

    /// A timer of [`Context::after`] has fired.
    fn timer(&mut self, _ctx: &mut Context<'_>, _token: u64) {}
}

/// What a handler may do.
pub struct Context<'a> {
    pub(crate) hub: &'a mut Hub<Formats>,
    /// Answers to the client whose message is being handled, framed.
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) current: Option<SessionId>,
    /// How `current` is written to.
    pub(crate) writer: Writer<'a>,
    pub(crate) envelope: Envelope,
    pub(crate) request: Option<&'a Request<'a>>,
    pub(crate) pending: Option<RequestId>,
    pub(crate) client: Option<&'a str>,
    pub(crate) service: Service,
    pub(crate) prefix: Option<&'a str>,
    pub(crate) sockets: Sockets<'a>,
    pub(crate) acks: &'a mut Acks,
    pub(crate) actions: &'a mut Vec<Action>,
    pub(crate) facts: &'a Facts,
    /// About how many bytes the handler has published: its connection may have to wait for other cores.
    pub(crate) published_bytes: usize,
}

/// About how many bytes a message takes besides its data, where it is counted before it is encoded.
pub(crate) const ENVELOPE_BYTES: usize = 64;

/// A session that is owed no more than this is sent all of it together with the answers to its client, which then
/// overtake nothing. One that is owed more doesn't keep up, and is sent it by and by.
pub(crate) const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Appends all that a session is owed to what leaves for it now.
pub(crate) fn take_at_once(hub: &mut Hub<Formats>, session: SessionId, out: &mut Vec<u8>) {
    let is_in_flight = hub.is_in_flight(session);
    hub.take(session, usize::MAX, usize::MAX, |_, frame| out.extend_from_slice(&frame.bytes()));
    // The kernel tells of what was in flight before, and of this with it.
    if !is_in_flight {
        hub.handle_sent(session);
    }
}

/// What a handler asked for that concerns other connections, done after it has returned.
pub(crate) enum Action {
    Send { session: SessionId, what: Sent },
    Close { session: SessionId, why: Disconnect },
    Dismiss { session: SessionId, code: u16, reason: String },
    After { at: Instant, service: Service, token: u64 },
    AckDue { at: Instant, number: u64 },
    Admit { request: RequestId, answer: Connect },
}

/// What is to be sent to a session other than the one that is being dealt with.
pub(crate) enum Sent {
    Text(String),
    Binary(Vec<u8>),
    Event { name: String, json: String, attachments: Vec<Bytes>, ack: Option<u64> },
    Ack { number: u64, json: String, attachments: Vec<Bytes> },
}

impl Sent {
    pub(crate) fn write(&self, writer: Writer<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => writer.message(out, Message::Text(text)),
            Self::Binary(bytes) => writer.message(out, Message::Binary(bytes)),
            Self::Event { name, json, attachments, ack } => {
                writer.event(out, name, Arguments { json, attachments }, *ack);
            }
            Self::Ack { number, json, attachments } => {
                writer.ack(out, *number, Arguments { json, attachments });
            }
        }
    }
}

/// Acknowledgements that the application waits for, on one core. Their numbers are never used again, so that a late
/// answer isn't taken for another's.
#[derive(Default)]
pub(crate) struct Acks {
    awaited: slab::Slab<Awaited>,
    serial: u32,
}

struct Awaited {
    number: u64,
    session: SessionId,
    token: u64,
}

/// Numbers stay below 2⁵³, which a JavaScript client can count to: a serial number above the place in the table.
const ACK_PLACE_BITS: u32 = 24;

impl Acks {
    /// A number for an answer of `session`; `None` where too many are awaited.
    fn expect(&mut self, session: SessionId, token: u64) -> Option<u64> {
        let entry = self.awaited.vacant_entry();
        let place = entry.key() as u64;
        if place >= 1 << ACK_PLACE_BITS {
            return None;
        }
        self.serial = self.serial.wrapping_add(1) & 0x1fff_ffff;
        let number = u64::from(self.serial) << ACK_PLACE_BITS | place;
        entry.insert(Awaited { number, session, token });
        Some(number)
    }

    /// The answer of this number has come, from `session`, or will not: who asked, and for what.
    pub(crate) fn take(&mut self, number: u64, from: Option<SessionId>) -> Option<(SessionId, u64)> {
        let place = (number & ((1 << ACK_PLACE_BITS) - 1)) as usize;
        let awaited = self.awaited.get(place)?;
        if awaited.number != number || from.is_some_and(|from| from != awaited.session) {
            return None;
        }
        let Awaited { session, token, .. } = self.awaited.remove(place);
        Some((session, token))
    }
}

impl<'a> Context<'a> {
    /// The time of this turn of the core.
    pub fn now(&self) -> Instant {
        self.facts.now
    }

    /// Whether the process is above its memory budget (`limits.memory_bytes_max`). [`Context::publish`] checks this
    /// itself.
    pub fn is_overloaded(&self) -> bool {
        self.facts.pressure == Pressure::Full
    }

    /// How publications are written for the session that this call is about.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// The Socket.IO namespace of the session that the call is about.
    pub fn namespace(&self) -> Option<&str> {
        match self.writer {
            Writer::SocketIo { namespace, .. } => Some(namespace),
            _ => None,
        }
    }

    /// The request that carried what is being dealt with, where one did: a handshake, or a POST of a polling client.
    pub fn request(&self) -> Option<&Request<'_>> {
        self.request
    }

    /// The public id of a session of this core, by which its client and the admin API know it.
    pub fn public_id(&self, session: SessionId) -> PublicId {
        self.facts.public_id(session)
    }

    /// The id of the Engine.IO session that the call is about.
    pub fn client(&self) -> Option<&str> {
        self.client
    }

    /// The SockJS prefix ([`crate::SockJs::prefix`]) by which the session that the call is about came in.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix
    }

    /// Names the request that [`Application::connect`] is called for, for a later [`Context::admit`].
    pub fn request_id(&self) -> Option<RequestId> {
        self.pending
    }

    /// Answers a request that was [`Connect::Pending`]. Does nothing where its client has gone.
    pub fn admit(&mut self, request: RequestId, answer: Connect) {
        self.actions.push(Action::Admit { request, answer });
    }

    /// Sends a message to one session of this core, before what it is owed of its topics. Socket.IO clients get it as
    /// the event `message`, as by [`Context::emit`].
    pub fn send(&mut self, session: SessionId, message: Message<'_>) {
        // The session of a WebSocket without more is none that can be recovered.
        if self.current == Some(session) && matches!(self.writer, Writer::WebSocket) {
            return self.writer.message(self.out, message);
        }
        if self.recoverable(session).is_some() {
            let text;
            let bytes;
            let arguments = match message {
                Message::Text(string) => {
                    text = json_string(string);
                    Arguments { json: std::str::from_utf8(&text).unwrap_or("\"\""), attachments: &[] }
                }
                Message::Binary(binary) => {
                    bytes = [Bytes::copy_from_slice(binary)];
                    Arguments { json: r#"{"_placeholder":true,"num":0}"#, attachments: &bytes }
                }
            };
            return self.emit(session, "message", arguments);
        }
        if self.current == Some(session) {
            return self.writer.message(self.out, message);
        }
        let what = match message {
            Message::Text(text) => Sent::Text(text.to_owned()),
            Message::Binary(bytes) => Sent::Binary(bytes.to_vec()),
        };
        self.actions.push(Action::Send { session, what });
    }

    /// Sends an event to one session of this core, before what it is owed of its topics. Where its client can be
    /// recovered, it comes in order with what it is owed, and is kept for it like what is published: also when the
    /// connection is gone, until it is back or has been away for too long.
    ///
    /// While the process is above its memory budget, no event is queued: it is sent only to the client whose message
    /// is being handled, and only if no earlier delivery is pending.
    pub fn emit(&mut self, session: SessionId, name: &str, arguments: Arguments<'_>) {
        let Some(room) = self.recoverable(session) else {
            return self.emit_numbered(session, name, arguments, None);
        };
        // After answers to it that have to wait until this handler has returned.
        let is_its = |action: &Action| matches!(action, Action::Send { session: s, .. } if *s == session);
        if self.current != Some(session) && self.actions.iter().any(is_its) {
            return self.emit_numbered(session, name, arguments, None);
        }
        let behind = self.hub.pending_bytes_of(session);
        if self.is_overloaded() {
            if self.current == Some(session) && behind == 0 {
                return self.emit_numbered(session, name, arguments, None);
            }
            self.facts.count_refusal();
            return;
        }
        let data = arguments.to_data();
        self.published_bytes += data.len() + ENVELOPE_BYTES;
        self.hub.handle_send(self.facts.now, &[session], room, Some(name.into()), data, false);
        // With the answers, so that what follows doesn't overtake it.
        if self.current == Some(session) && behind <= AT_ONCE_BYTES_MAX {
            take_at_once(self.hub, session, self.out);
        }
    }

    /// In which namespace a socket is that can be recovered, as a room of it.
    fn recoverable(&self, session: SessionId) -> Option<&'a Room> {
        self.sockets.recoverable(session, self.hub.tag(session)?)
    }

    fn emit_numbered(&mut self, session: SessionId, name: &str, arguments: Arguments<'_>, ack: Option<u64>) {
        if self.current == Some(session) {
            return self.writer.event(self.out, name, arguments, ack);
        }
        let Arguments { json, attachments } = arguments;
        let (name, json, attachments) = (name.to_owned(), json.to_owned(), attachments.to_vec());
        self.actions.push(Action::Send { session, what: Sent::Event { name, json, attachments, ack } });
    }

    /// The same, and [`Application::acked`] is called with `token` when the client has answered, or with nothing when
    /// it has not within `timeout`.
    pub fn emit_with_ack(
        &mut self,
        session: SessionId,
        name: &str,
        arguments: Arguments<'_>,
        timeout: Duration,
        token: u64,
    ) {
        let number = self.acks.expect(session, token);
        self.emit_numbered(session, name, arguments, number);
        if let Some(number) = number {
            self.actions.push(Action::AckDue { at: self.facts.now + timeout, number });
        }
    }

    /// Answers an event.
    pub fn ack(&mut self, session: SessionId, ack: Ack, arguments: Arguments<'_>) {
        if self.current == Some(session) {
            return self.writer.ack(self.out, ack.0, arguments);
        }
        let Arguments { json, attachments } = arguments;
        let what = Sent::Ack { number: ack.0, json: json.to_owned(), attachments: attachments.to_vec() };
        self.actions.push(Action::Send { session, what });
    }

    /// Ends a session after this handler. Nothing more of it is handled.
    pub fn close(&mut self, session: SessionId, why: Disconnect) {
        self.actions.push(Action::Close { session, why });
    }

    /// The same, with a close code of the application's (3000–4999) and words for people (at most 123 bytes), where the
    /// session's protocol has a place for them: WebSocket and SockJS.
    pub fn dismiss(&mut self, session: SessionId, code: u16, reason: &str) {
        self.actions.push(Action::Dismiss { session, code, reason: reason.to_owned() });
    }

    /// Makes a session of this core a member of a room, because the application wants it so: the
    /// [`Authorizer`](crate::Authorizer) isn't asked.
    pub fn join(&mut self, session: SessionId, room: &Room, policy: Policy) -> Result<(), SubscribeError> {
        self.hub.handle_subscribe(session, &Topic::Room(room.clone()), policy, None)
    }

    /// Subscribes a session of this core, as its client requests; `since` is what the client has.
    ///
    /// # Errors
    /// If it may not, or a limit is reached.
    pub fn subscribe(
        &mut self,
        session: SessionId,
        topic: &Topic,
        terms: impl Into<SubscribeOptions>,
        since: Option<Position>,
    ) -> Result<(), NotSubscribed> {
        self.facts.authorize(session, Access::Subscribe(topic)).map_err(NotSubscribed::Denied)?;
        self.hub.handle_subscribe(session, topic, terms, since).map_err(NotSubscribed::Limit)
    }

    /// Ends a subscription and says whether there was one.
    pub fn unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        self.hub.handle_unsubscribe(session, topic)
    }

    /// Publishes to a room, on all cores. All publications of clients pass through here, so this function checks for
    /// overload, and whether the session that the call is about may publish.
    ///
    /// # Errors
    /// No client receives the message.
    pub fn publish(
        &mut self,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
    ) -> Result<(), NotPublished> {
        if self.is_overloaded() {
            self.facts.count_refusal();
            return Err(NotPublished::Overloaded);
        }
        if let Some(session) = self.current {
            self.facts.authorize(session, Access::Publish(room)).map_err(NotPublished::Denied)?;
        }
        self.published_bytes += data.len() + ENVELOPE_BYTES;
        self.hub.handle_publish(self.facts.now, room, event, data, how);
        Ok(())
    }

    /// Leaves `session` out of what is published with the result.
    pub fn except(&self, session: SessionId) -> Emit {
        Emit::default().except_session(self.facts.core, session)
    }

    /// Calls [`Application::timer`] with `token` after `duration`.
    pub fn after(&mut self, duration: Duration, token: u64) {
        self.actions.push(Action::After { at: self.facts.now + duration, service: self.service, token });
    }
}
