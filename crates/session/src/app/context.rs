//! The interface of an application's handlers to the core.

use super::actions::{Acks, Sent, Waiter};
use super::effect::{Alarm, Effect, Effects, ToConnection, ToSession};
use super::{AT_ONCE_BYTES_MAX, Outlet, Questions, take_at_once, take_before_leave};
use super::{Ack, Arguments, Connect, Envelope, Message, RequestId};
use crate::budget::Budget;
use crate::drain::DrainState;
use crate::encode::{Encoding, Encodings, json_string};
use crate::identity::{Owner, Service, Sid, Sids};
use crate::ledger::Pressure;
use crate::limits::rates::{Counted, SessionRates};
use crate::limits::{LimitPolicy, TOO_MANY_REQUESTS};
use crate::millis::{Clock, Millis};
use crate::ports::{Denial, IdKey, PublicId, SessionRooms};
use crate::recovery::RecoverableSockets;
use crate::timelines::{Problem, Timelines, own_code};
use crate::tracked::Tracked;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};
use stentor_frame::ConnId;
use stentor_hub::{CoreId, Disconnect, Emit, Hub, KeyRule, Policy, Room, SessionId, SubscribeError, Topic};
use stentor_wire::http1::Request;

/// State of the core that handlers use.
pub struct CoreContext {
    /// The time at which the turn began.
    pub now: Instant,
    /// The time at which the turn began, in milliseconds.
    pub millis: Millis,
    pub(crate) clock: Clock,
    /// Draws the ids of clients.
    pub(crate) sids: Sids,
    /// The number of the core.
    pub core: CoreId,
    /// The state of the node's drain.
    pub(crate) drain: DrainState,
    /// The key of the ids of this node's sessions.
    pub(crate) id_key: IdKey,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) message_bytes_max: usize,
    pub(crate) json_depth_max: usize,
    pub(crate) keys: KeyRule,
    /// The current memory pressure.
    pub pressure: Pressure,
    /// Number of publications refused because memory is short.
    pub refusals: Cell<u64>,
    /// The rates of the core's sessions. `None` if they aren't limited.
    pub rates: Option<Box<RefCell<SessionRates>>>,
    /// Events of the core's sessions, for operators.
    pub(crate) timelines: RefCell<Timelines>,
}

/// The public id of a session of this core. A session that moved from another node keeps the id that it had there.
pub(crate) fn public_id(
    hub: &Hub<Encodings>,
    recovery: &RecoverableSockets,
    core: &CoreContext,
    session: SessionId,
) -> PublicId {
    let moved = recovery.moved_id(hub.tag(session));
    moved.unwrap_or_else(|| PublicId::of(core.id_key, core.core, session))
}

/// The session on whose behalf a question is asked.
pub struct AskingSession<'a> {
    pub(super) id: PublicId,
    /// The number of its client's address.
    pub(super) source: u64,
    hub: &'a Hub<Encodings>,
    session: SessionId,
}

impl AskingSession<'_> {
    /// Copies the names of at most `count_max` of the session's rooms.
    pub(super) fn rooms(&self, count_max: usize) -> SessionRooms {
        SessionRooms::take(self.hub.rooms_of(self.session), count_max)
    }
}

/// The session on whose behalf a question is asked.
pub fn asking<'a>(
    hub: &'a Hub<Encodings>,
    recovery: &RecoverableSockets,
    core: &CoreContext,
    session: SessionId,
) -> AskingSession<'a> {
    AskingSession {
        id: public_id(hub, recovery, core, session),
        source: hub.source(session).map_or(0, |(source, _)| source),
        hub,
        session,
    }
}

impl CoreContext {
    /// Counts a publication refused because the process is above its memory budget.
    pub(super) fn count_refusal(&self) {
        self.refusals.set(self.refusals.get() + 1);
    }

    /// Counts an input of a session.
    ///
    /// # Errors
    /// The input exceeds a limit: the configured policy and the limit's key.
    pub(crate) fn count_sent(
        &self,
        session: SessionId,
        counted: Counted,
    ) -> Result<(), (LimitPolicy, &'static str)> {
        let Some(rates) = &self.rates else { return Ok(()) };
        let mut rates = rates.borrow_mut();
        let policy = rates.policy;
        rates.count(session, counted, self.now).map_err(|key| {
            self.note(session, Problem::RateLimited, key);
            (policy, key)
        })
    }

    /// Records a problem of a session in its timeline.
    pub(crate) fn note(&self, session: SessionId, problem: Problem, reason: &'static str) {
        let now = self.clock.seconds(self.now);
        self.timelines.borrow_mut().note(session, problem, reason, 1, now);
    }

    /// Number of problems in timelines so far.
    pub(super) fn noted(&self) -> u64 {
        self.timelines.borrow().noted
    }

    /// Records the refusal of a session's request, unless its steps have done so: then more problems are noted than `noted`.
    pub(super) fn note_refused(&self, session: SessionId, result: &Result<bool, Denial>, noted: u64) {
        if let Err(denial) = result
            && noted == self.noted()
        {
            self.note_refusal(session, Problem::RequestRefused, denial);
        }
    }

    /// Records the refusal of a session's request in its timeline. [`Self::count_sent`] records those by a rate.
    pub(crate) fn note_refusal(&self, session: SessionId, problem: Problem, denial: &Denial) {
        if denial.code != TOO_MANY_REQUESTS {
            self.note(session, problem, own_code(denial));
        }
    }
}

/// Context of one handler call: the session, its encoding and namespace, and the HTTP request of the input.
#[derive(Clone, Copy)]
pub struct HandlerScope<'a> {
    /// The session whose message is being handled. Answers to it are sent with the message's answer.
    pub session: Option<SessionId>,
    /// The encoding of this session.
    pub encoding: Encoding,
    /// The Socket.IO namespace of the session.
    pub namespace: Option<&'a str>,
    /// The request that carried the current input. `None` if no request did.
    pub request: Option<&'a Request<'a>>,
    /// The request that the application may accept later, by [`Context::admit`].
    pub pending: Option<RequestId>,
    /// The id of the client.
    pub client: Option<Sid>,
    /// The service by which the client connected.
    pub service: Service,
    /// The connection that waits for decisions about the client's message. `None` if the message can't wait.
    pub asker: Option<ConnId>,
}

impl Default for HandlerScope<'_> {
    fn default() -> Self {
        Self {
            session: None,
            encoding: Encoding::RAW,
            namespace: None,
            request: None,
            pending: None,
            client: None,
            service: Service::default(),
            asker: None,
        }
    }
}

/// The interface of a handler to the core.
pub struct Context<'a> {
    pub(crate) hub: &'a mut Tracked<Hub<Encodings>>,
    /// Framed answers to the client whose message is being handled.
    pub out: &'a mut Vec<u8>,
    pub(crate) scope: HandlerScope<'a>,
    pub(crate) prefix: Option<&'a str>,
    pub(crate) recovery: &'a RecoverableSockets,
    pub(crate) acks: &'a mut Acks,
    pub(crate) effects: &'a mut Effects,
    pub(crate) core: &'a CoreContext,
    pub(crate) outlet: &'a mut Outlet,
    pub(crate) questions: &'a mut Questions,
    pub(crate) budget: &'a mut Budget,
}

/// Approximate size of a message besides its data, if it is counted before it is encoded.
pub const ENVELOPE_BYTES: usize = 64;

impl<'a> Context<'a> {
    /// The time of this turn of the core.
    pub fn now(&self) -> Instant {
        self.core.now
    }

    /// Returns `true` if the process is above its memory budget (`limits.memory_bytes_max`). [`Context::publish`] checks this
    /// itself.
    pub fn is_overloaded(&self) -> bool {
        self.core.pressure == Pressure::Full
    }

    /// The envelope of publications for the session of this call.
    pub fn envelope(&self) -> Envelope {
        self.scope.encoding.envelope()
    }

    /// The Socket.IO namespace of the session of this call.
    pub fn namespace(&self) -> Option<&str> {
        self.scope.namespace
    }

    /// The request with the current input: a handshake, or a POST of a polling client. `None` if no request carried the input.
    pub fn request(&self) -> Option<&Request<'_>> {
        self.scope.request
    }

    /// The public id of a session of this core, for its client and the admin API.
    pub(crate) fn public_id(&self, session: SessionId) -> PublicId {
        public_id(self.hub, self.recovery, self.core, session)
    }

    /// The id of the Engine.IO session of this call.
    pub fn client(&self) -> Option<Sid> {
        self.scope.client
    }

    /// The SockJS prefix ([`crate::options::SockJs::prefix`]) through which the client of this call connected.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix
    }

    /// The id of the request for which [`Application::connect`](crate::app::Application::connect) is called, for a later
    /// [`Context::admit`].
    pub fn request_id(&self) -> Option<RequestId> {
        self.scope.pending
    }

    /// Answers a request after [`Connect::Pending`]. No effect if its client has disconnected.
    pub fn admit(&mut self, request: RequestId, answer: Connect) {
        self.effects.push(Effect::Connection(request.0, ToConnection::Admit(answer)));
    }

    /// Sends a message to one session of this core, before its pending deliveries. Socket.IO clients receive the
    /// event `message`, like that of [`Context::emit`].
    pub fn send(&mut self, session: SessionId, message: Message<'_>) {
        // A plain session can't be recovered, so its message is written directly.
        if self.scope.session == Some(session) && !self.scope.encoding.is_socketio() {
            return self.scope.encoding.message(self.scope.namespace.unwrap_or("/"), self.out, message);
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
        if self.scope.session == Some(session) {
            return self.scope.encoding.message(self.scope.namespace.unwrap_or("/"), self.out, message);
        }
        let what = match message {
            Message::Text(text) => Sent::Text(text.to_owned()),
            Message::Binary(bytes) => Sent::Binary(bytes.to_vec()),
        };
        self.effects.push(Effect::Session(session, ToSession::Send(what)));
    }

    /// Sends an event to one session of this core, before its pending deliveries. If the session can be recovered, the
    /// event is ordered with its deliveries and kept for recovery like a publication, also while its client is
    /// disconnected.
    ///
    /// While the process is above its memory budget, events aren't queued. Only the client whose message is being handled
    /// receives its event, and only if no earlier delivery is pending.
    #[inline]
    pub fn emit(&mut self, session: SessionId, name: &str, arguments: Arguments<'_>) {
        match self.recoverable(session) {
            None => self.emit_numbered(session, name, arguments, None),
            Some(room) => self.emit_recoverable(session, room, name, arguments),
        }
    }

    /// Like [`Self::emit`], for a session that can be recovered. `room` is a room of its namespace.
    #[inline(never)]
    fn emit_recoverable(&mut self, session: SessionId, room: &Room, name: &str, arguments: Arguments<'_>) {
        // Earlier effects send to this session after the handler has returned, and the event must follow them.
        if self.scope.session != Some(session) && self.effects.sends_to(session) {
            return self.emit_numbered(session, name, arguments, None);
        }
        let behind = self.hub.pending_bytes_of(session);
        if self.is_overloaded() {
            if self.scope.session == Some(session) && behind == 0 {
                return self.emit_numbered(session, name, arguments, None);
            }
            self.core.count_refusal();
            return;
        }
        let data = arguments.to_data();
        self.budget.count_published(data.len() + ENVELOPE_BYTES);
        self.hub.handle_send(self.core.now, &[session], room, Some(name.into()), data, false);
        // The event is sent with the answers, so that later answers don't overtake it.
        if self.scope.session == Some(session) && behind <= AT_ONCE_BYTES_MAX {
            take_at_once(self.hub, session, self.out);
        }
    }

    /// A room of the session's namespace. `None` if the session can't be recovered.
    #[inline]
    fn recoverable(&self, session: SessionId) -> Option<&'a Room> {
        if self.recovery.is_empty() {
            return None;
        }
        match Owner::of_tag(self.hub.tag(session)?) {
            Owner::Socket(slot) => self.recovery.room_of(slot),
            Owner::Connection(..) | Owner::Client(_) => None,
        }
    }

    #[inline]
    fn emit_numbered(&mut self, session: SessionId, name: &str, arguments: Arguments<'_>, ack: Option<u64>) {
        if self.scope.session == Some(session) {
            return self.scope.encoding.event(
                self.scope.namespace.unwrap_or("/"),
                self.out,
                name,
                arguments,
                ack,
            );
        }
        self.emit_later(session, name, arguments, ack);
    }

    /// Sends an event to a session other than the one whose input is being handled.
    #[inline(never)]
    fn emit_later(&mut self, session: SessionId, name: &str, arguments: Arguments<'_>, ack: Option<u64>) {
        let Arguments { json, attachments } = arguments;
        let (name, json, attachments) = (name.to_owned(), json.to_owned(), attachments.to_vec());
        let what = Sent::Event { name, json, attachments, ack };
        self.effects.push(Effect::Session(session, ToSession::Send(what)));
    }

    /// Like [`Self::emit`]. Calls [`Application::acked`](crate::app::Application::acked) with `token` and the arguments
    /// when the client acknowledges the event, or without arguments after `timeout`.
    pub fn emit_with_ack(
        &mut self,
        session: SessionId,
        name: &str,
        arguments: Arguments<'_>,
        timeout: Duration,
        token: u64,
    ) {
        let number = self.acks.expect(session, Waiter::App(token));
        self.emit_numbered(session, name, arguments, number);
        if let Some(number) = number {
            self.effects.push(Effect::Alarm(self.core.now + timeout, Alarm::Ack(number)));
        }
    }

    /// Acknowledges an event.
    pub fn ack(&mut self, session: SessionId, ack: Ack, arguments: Arguments<'_>) {
        if self.scope.session == Some(session) {
            return self.scope.encoding.ack(self.scope.namespace.unwrap_or("/"), self.out, ack.0, arguments);
        }
        let Arguments { json, attachments } = arguments;
        let what = Sent::Ack { number: ack.0, json: json.to_owned(), attachments: attachments.to_vec() };
        self.effects.push(Effect::Session(session, ToSession::Send(what)));
    }

    /// Ends a session after this handler. Further input of the session is dropped.
    pub fn close(&mut self, session: SessionId, why: Disconnect) {
        self.effects.push(Effect::Session(session, ToSession::Close(why)));
    }

    /// Like [`Self::close`]. Clients of WebSocket and SockJS receive the application's close code (3000–4999) and reason (for
    /// people, at most 123 bytes); other protocols have neither.
    pub fn close_with(&mut self, session: SessionId, code: u16, reason: &str) {
        self.effects.push(Effect::Session(session, ToSession::CloseWith(code, reason.to_owned())));
    }

    /// Makes a session of this core a member of a room, on behalf of the application: the
    /// [`Authorizer`](crate::ports::Authorizer) isn't asked.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn join(&mut self, session: SessionId, room: &Room, policy: Policy) -> Result<(), SubscribeError> {
        self.hub.handle_subscribe(session, &Topic::Room(room.clone()), policy, None)
    }

    /// Returns `true` if the authorizers of clients' identities decide about publishing, in place of `rooms.publish`.
    pub(crate) fn has_permissions(&self) -> bool {
        self.questions.identities.decides_publishing()
    }

    /// Returns `true` if clients have identities, whose authorizers decide about all actions
    /// ([`crate::options::Options::authenticator`]).
    pub fn has_identities(&self) -> bool {
        self.questions.identities.is_on()
    }

    /// Ends a subscription. Returns `false` if there was none. The session still receives earlier messages of a room.
    pub fn unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        self.questions.identities.revoke_grant(session, topic);
        self.hub.handle_leave(session, topic)
    }

    /// Ends a subscription at the request of the client, which is answered next. Earlier messages of a room are sent before the
    /// answer, unless they are large. After the answer, no message of the topic is sent.
    pub(crate) fn end_subscription(&mut self, session: SessionId, topic: &Topic) {
        self.send_pending_of(session, topic);
        self.questions.identities.revoke_grant(session, topic);
        self.hub.handle_unsubscribe(session, topic);
    }

    /// Sends the pending deliveries of the current session before the answer to its client, if one of them is of this room and
    /// all of them together are small ([`AT_ONCE_BYTES_MAX`]).
    pub(crate) fn send_pending_of(&mut self, session: SessionId, topic: &Topic) {
        take_before_leave(self.hub, session, topic, self.out);
    }

    /// Options for a publication that leave `session` out.
    pub fn except(&self, session: SessionId) -> Emit {
        Emit::default().except_session(self.core.core, session)
    }

    /// Calls [`Application::timer`](crate::app::Application::timer) with `token` after `duration`.
    pub fn after(&mut self, duration: Duration, token: u64) {
        let alarm = Alarm::App(self.scope.service, token);
        self.effects.push(Effect::Alarm(self.core.now + duration, alarm));
    }
}
