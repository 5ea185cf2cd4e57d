//! WebSocket connections (RFC 6455): messages for the application or for the client that the connection carries, heartbeats, and
//! the end.

use super::client::{Flow, TransportStatus};
use super::clients::Clients;
use super::dialect::{Handled, Heartbeat, Plain, Rest, SocketProfile, Upgraded};
use super::message::scope_of;
use crate::app::{HandlerScope, Message};
use crate::budget::MESSAGE_BYTES;
use crate::encode::Encoding;
use crate::executor::{Effect, Executor, SMALL_INPUT_BYTES, ToConnection};
use crate::identity::{ClientId, End};
use crate::millis::Millis;
use crate::model::{ConnId, Disconnect, SessionId};
use stentor_wire::ws::{self, Event, Opcode};

/// Buffered input of a WebSocket.
#[derive(Default)]
pub(crate) struct Unread {
    bytes: Vec<u8>,
    /// Remaining messages of the WebSocket message before `bytes`.
    rest: Option<Rest>,
}

impl Unread {
    fn held_bytes(&self) -> usize {
        let rest = self.rest.as_ref().map_or(0, |(text, _)| text.capacity());
        size_of::<Self>() + self.bytes.capacity() + rest
    }
}

/// The environment of a connection that handles input.
pub struct SocketContext<'a> {
    /// The executor.
    pub ex: &'a mut Executor,
    /// The clients of the core.
    pub clients: &'a mut Clients,
    /// The connection.
    pub conn: ConnId,
    /// The session of the connection.
    pub session: Option<SessionId>,
}

/// A WebSocket connection.
pub struct WebSocket {
    ws: ws::Connection,
    /// The client whose packets the connection carries or will carry. `None` if messages are for the application.
    client: Option<ClientId>,
    profile: SocketProfile,
    /// The encoding of the connection's own session.
    encoding: Encoding,
    /// The time at which bytes were last received, or the kernel last accepted bytes.
    alive_at: Millis,
    /// The time of the last ping. `None` after a sign of life.
    pinged_at: Option<Millis>,
    /// The time at which an incomplete message began. `None` if no message is incomplete.
    message_since: Option<Millis>,
    /// Input that waits until the answers and publications of earlier messages have been sent.
    unread: Option<Box<Unread>>,
}

impl WebSocket {
    pub(crate) fn new(now: Millis, upgraded: Upgraded) -> Self {
        let Upgraded { client, profile, encoding, deflate } = upgraded;
        Self {
            ws: ws::Connection::new(ws::Role::Server, deflate),
            client,
            profile,
            encoding,
            alive_at: now,
            pinged_at: profile.dialect.is_paced().then_some(now),
            message_since: None,
            unread: None,
        }
    }

    /// Returns the connection for another core, where its client has another handle.
    pub fn moved_to(mut self, now: Millis, client: ClientId) -> Self {
        self.client = Some(client);
        self.alive_at = now;
        self.message_since = self.ws.is_mid_message().then_some(now);
        self
    }

    /// The client whose packets the connection carries, or will carry.
    #[inline]
    pub fn client(&self) -> Option<ClientId> {
        self.client
    }

    /// The framing and service of the messages.
    #[inline]
    pub fn profile(&self) -> SocketProfile {
        self.profile
    }

    /// The encoding of messages to the client.
    #[inline]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The reason why the connection ends, unless the server ends it.
    pub fn end_reason(&self) -> End {
        if self.ws.has_failed() {
            End::Fault
        } else if self.ws.is_closed() {
            End::Closed
        } else {
            End::Gone
        }
    }

    /// Returns `true` if input waits to be handled.
    #[inline]
    pub fn has_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Returns `true` if a message is incomplete.
    #[inline]
    pub fn is_mid_message(&self) -> bool {
        self.ws.is_mid_message()
    }

    /// Returns `true` if the connection waits until no other message is partly decompressed.
    pub fn waits_for_step_slot(&self) -> bool {
        self.ws.waits_for_step_slot()
    }

    /// Allows another connection to decompress its message.
    pub fn leave_step_slot(&mut self) {
        self.ws.leave_step_slot();
    }

    /// Returns `true` if the connection holds no memory besides its fixed size.
    #[inline]
    pub fn holds_nothing(&self) -> bool {
        self.unread.is_none() && self.ws.holds_nothing()
    }

    /// Size in bytes of buffered input, and size of an incomplete message together with the window of a client that keeps its
    /// compression context.
    pub fn held_bytes(&self) -> (usize, usize) {
        (self.unread.as_ref().map_or(0, |unread| unread.held_bytes()), self.ws.held_bytes())
    }

    /// Records that bytes of the connection have been received or sent.
    pub fn handle_sent(&mut self, now: Millis) {
        self.alive_at = now;
    }

    #[inline]
    fn scope(&self, session: SessionId, conn: ConnId) -> HandlerScope<'static> {
        let asker = Some(conn);
        HandlerScope { asker, ..scope_of(session, self.encoding, self.profile.service, None) }
    }

    /// Handles received bytes. Answers are appended to `out`. The WebSockets of a core share `shared` to decompress
    /// messages. Input that would cause too many answers or publications at once waits. After [`Flow::Stop`], the
    /// connection ends when `out` has been sent.
    #[inline]
    pub fn handle_input(
        &mut self,
        cx: &mut SocketContext<'_>,
        shared: &mut ws::Shared,
        data: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Flow {
        self.alive_at = cx.ex.millis();
        self.handle_sign_of_life();
        let may_be_lone = self.unread.is_none()
            && data.len() <= SMALL_INPUT_BYTES
            && !cx.ex.budget.published_much()
            && !cx.ex.questions.waiting.is_waiting(cx.conn);
        if may_be_lone {
            self.handle_lone_message(cx, shared, data, out)
        } else {
            self.handle_frames(cx, shared, data, out)
        }
    }

    /// Handles received bytes if they are one short message, which is the most frequent case. Without this shortcut, an
    /// echo takes 10 % more instructions.
    #[inline]
    fn handle_lone_message(
        &mut self,
        cx: &mut SocketContext<'_>,
        shared: &mut ws::Shared,
        data: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Flow {
        let input_bytes = data.len();
        let Some(received) = self.ws.receive_lone(shared, data, out) else {
            return self.handle_frames(cx, shared, data, out);
        };
        let Some(Event::Message(message)) = received.event else {
            cx.ex.metrics().protocol_errors.add(1);
            return Flow::Stop;
        };
        cx.ex.budget.count(input_bytes + MESSAGE_BYTES);
        self.message_since = None;
        match self.handle_message(cx, message, out) {
            (Flow::Continue | Flow::Stop, _) => Flow::Continue,
            (flow, rest) => {
                let bytes = if flow == Flow::Yield { Vec::new() } else { frame_again(message) };
                self.unread = Some(Box::new(Unread { bytes, rest }));
                flow
            }
        }
    }

    /// Handles a message. With [`Flow::Yield`], also returns the remaining messages, if the dialect puts several into one.
    #[inline(always)] // Two callers. A call takes 45 of the 1,200 instructions of an echo.
    fn handle_message(
        &mut self,
        cx: &mut SocketContext<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> (Flow, Option<Rest>) {
        let session = match (self.client, cx.session) {
            (Some(client), _) => {
                let flow = cx.clients.handle_frame(cx.ex, cx.conn, client, message, out);
                return (flow.unwrap_or_else(|| refuse_frame(cx.ex, cx.conn)), None);
            }
            (None, Some(session)) if !self.profile.push_only => session,
            (None, session) => {
                if let Some(session) = session {
                    cx.ex.close(session, Disconnect::NotAccepted);
                }
                return (Flow::Stop, None);
            }
        };
        let scope = self.scope(session, cx.conn);
        match self.profile.dialect.handle_message(cx.ex, scope, message, out) {
            Handled::Flow(flow) => (flow, None),
            Handled::Rest(rest) => (Flow::Yield, Some(rest)),
            Handled::Refused(code, reason) => {
                self.refuse(cx, code, reason);
                (Flow::Stop, None)
            }
        }
    }

    /// Handles received bytes of any kind.
    #[inline(never)]
    fn handle_frames(
        &mut self,
        cx: &mut SocketContext<'_>,
        shared: &mut ws::Shared,
        data: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Flow {
        let now = cx.ex.millis();
        let replies_bytes_max = cx.ex.options().limits.replies_bytes_max;
        shared.set_steps(cx.ex.budget.steps());
        let mut is_paused = self.ws.is_paused();
        let (mut at, mut ended, mut yields) = (0, false, false);
        while at < data.len() || is_paused {
            yields = cx.ex.budget.is_used();
            let is_much = yields || out.len() > replies_bytes_max || cx.ex.budget.published_much();
            if is_much || cx.ex.questions.waiting.is_waiting(cx.conn) {
                self.unread = Some(Box::new(Unread { bytes: data[at..].to_vec(), rest: None }));
                break;
            }
            is_paused = false;
            let held_context = self.ws.holds_context();
            let received = self.ws.receive(shared, &mut data[at..], out);
            at += received.consumed;
            cx.ex.budget.count(received.consumed + MESSAGE_BYTES);
            match received.event {
                Some(Event::Message(message)) => {
                    ended = true;
                    // The compression window of a client that keeps its context is allocated with its first message.
                    let grew = !held_context && self.ws.holds_context();
                    if cx.ex.is_too_large_now(message.bytes().len()) || grew && cx.ex.is_memory_short() {
                        cx.ex.push(Effect::Connection(cx.conn, ToConnection::RefuseInput));
                        break;
                    }
                    let (flow, rest) = self.handle_message(cx, message, out);
                    let again = match flow {
                        Flow::Continue => continue,
                        Flow::Stop => break,
                        Flow::Yield => Vec::new(),
                        Flow::Wait | Flow::Migrate(_) => frame_again(message),
                    };
                    yields = flow == Flow::Yield;
                    let bytes = [&again, &data[at..]].concat();
                    self.unread = Some(Box::new(Unread { bytes, rest }));
                    break;
                }
                Some(Event::Ping | Event::Pong(_)) => {}
                Some(Event::Closed { error, .. }) => {
                    cx.ex.metrics().protocol_errors.add(u64::from(error.is_some()));
                    break;
                }
                None if self.ws.is_paused() => {
                    yields = true;
                    self.unread = Some(Box::new(Unread { bytes: data[at..].to_vec(), rest: None }));
                    break;
                }
                None if received.consumed == 0 => break,
                None => {}
            }
        }
        cx.ex.budget.count(shared.take_stepped_bytes());
        if ended || !self.ws.is_mid_message() {
            self.message_since = None;
        }
        if self.ws.is_mid_message() && self.message_since.is_none() {
            self.message_since = Some(now);
        }
        match &self.unread {
            _ if self.ws.is_closed() => Flow::Stop,
            Some(_) if yields => Flow::Yield,
            Some(_) => Flow::Wait,
            None => Flow::Continue,
        }
    }

    /// Continues with buffered input.
    pub fn resume_input(
        &mut self,
        cx: &mut SocketContext<'_>,
        shared: &mut ws::Shared,
        out: &mut Vec<u8>,
    ) -> Flow {
        let Some(mut unread) = self.unread.take() else { return Flow::Continue };
        if let (Some(rest), Some(session)) = (unread.rest.take(), cx.session) {
            let scope = self.scope(session, cx.conn);
            match self.profile.dialect.get_mut().resume(cx.ex, scope, rest, out) {
                Handled::Flow(Flow::Continue) => {}
                Handled::Flow(_) => return Flow::Continue,
                Handled::Rest(rest) => {
                    unread.rest = Some(rest);
                    self.unread = Some(unread);
                    return Flow::Yield;
                }
                Handled::Refused(code, reason) => {
                    self.refuse(cx, code, reason);
                    return Flow::Continue;
                }
            }
        }
        self.handle_input(cx, shared, &mut unread.bytes, out)
    }

    /// Ends the connection after an invalid message.
    fn refuse(&mut self, cx: &mut SocketContext<'_>, code: u16, reason: &'static str) {
        self.profile.dialect = Plain.into();
        cx.ex.push(Effect::Connection(cx.conn, ToConnection::Close(code, reason)));
    }

    /// Appends the dialect's closing message, if it has one, and a Close frame.
    pub fn close(&mut self, code: u16, reason: &str, out: &mut Vec<u8>) {
        self.profile.dialect.get().close(code, reason, out);
        self.ws.close(code, reason, out);
    }

    /// Records that bytes were received, which answer a ping unless the dialect has answers of its own.
    fn handle_sign_of_life(&mut self) {
        if self.profile.dialect.is_paced() {
            self.profile.dialect.get_mut().handle_sign_of_life();
        } else {
            self.pinged_at = None;
        }
    }

    /// The deadline for the end of a message.
    fn message_due(&self, ex: &Executor) -> Option<Millis> {
        self.message_since.map(|since| since.after(ex.options().limits.message_timeout))
    }

    /// The time of the next ping, or the deadline for the answer to the last one.
    fn heartbeat_due(&self, ex: &Executor) -> Millis {
        let heartbeat = ex.options().heartbeat;
        match (self.profile.dialect.get().heartbeat(ex.options()), self.pinged_at) {
            (Heartbeat::OfClient, _) => self.alive_at.after(heartbeat.interval + heartbeat.timeout),
            (Heartbeat::Paced { interval, .. }, pinged_at) => {
                pinged_at.unwrap_or(self.alive_at).after(interval)
            }
            (Heartbeat::AfterSilence, Some(pinged_at)) => pinged_at.after(heartbeat.timeout),
            (Heartbeat::AfterSilence, None) => self.alive_at.after(heartbeat.interval),
        }
    }

    /// The time of the next timeout. A client that the connection carries has heartbeats of its own.
    pub fn poll_timeout(&self, ex: &Executor) -> Option<Millis> {
        let message_due = self.message_due(ex);
        if self.client.is_some() {
            return message_due;
        }
        let mut due = self.heartbeat_due(ex);
        if self.pinged_at.is_some() && !self.profile.dialect.is_paced() {
            // Checks after the interval, even if the timeout is longer, so that a late answer doesn't delay the next ping.
            due = due.earlier(ex.millis().after(ex.options().heartbeat.interval));
        }
        Some(message_due.map_or(due, |message| message.earlier(due)))
    }

    /// Handles timeouts that are due: the end of a message, a ping, the answer to a ping. Pings are appended to `out`.
    pub fn handle_timeout(
        &mut self,
        ex: &mut Executor,
        session: Option<SessionId>,
        status: TransportStatus,
        out: &mut Vec<u8>,
    ) {
        let now = ex.millis();
        if status.paused_by_server {
            // The server has paused reading, so the client's silence means nothing.
            self.alive_at = now;
            self.message_since = self.message_since.map(|_| now);
        }
        if self.message_due(ex).is_some_and(|due| !now.is_before(due)) {
            let why = Disconnect::MessageTimeout;
            return match (self.client, session) {
                (Some(client), _) => ex.end_client(client, End::Because(why)),
                (None, Some(session)) => ex.close(session, why),
                (None, None) => {}
            };
        }
        let (None, Some(session)) = (self.client, session) else { return };
        if status.progressed {
            self.alive_at = now;
        }
        if !self.profile.dialect.is_paced()
            && self.pinged_at.is_some_and(|pinged_at| pinged_at.is_before(self.alive_at))
        {
            self.pinged_at = None;
        }
        if now.is_before(self.heartbeat_due(ex)) {
            return;
        }
        let is_silent = match self.profile.dialect.get().heartbeat(ex.options()) {
            Heartbeat::AfterSilence => self.pinged_at.is_some(),
            Heartbeat::OfClient => true,
            Heartbeat::Paced { is_awaited: false, .. } => false,
            // Pings have a fixed interval, so the time without an answer is counted in pings since the last sign of life.
            Heartbeat::Paced { interval, is_awaited: true } => {
                let pinged_at = self.pinged_at;
                pinged_at.filter(|pinged_at| !pinged_at.is_before(self.alive_at)).is_some_and(|pinged_at| {
                    let waited = pinged_at.from(self.alive_at);
                    // A timer is late by at most a 256th of its time.
                    let pings = (waited - waited / 128).as_micros().div_ceil(interval.as_micros().max(1));
                    interval * (pings as u32).max(1) >= ex.options().heartbeat.timeout
                })
            }
        };
        if is_silent {
            return ex.close(session, Disconnect::HeartbeatTimeout);
        }
        self.pinged_at = Some(now);
        let clock = ex.context.now.saturating_duration_since(ex.context.clock.start());
        self.profile.dialect.get_mut().write_ping(clock, out);
    }
}

/// Returns the frame of a client's message, without a mask, so that the message can be handled again.
fn frame_again(message: Message<'_>) -> Vec<u8> {
    let opcode = if message.text().is_some() { Opcode::Text } else { Opcode::Binary };
    let bytes = message.bytes();
    let mut frame = Vec::with_capacity(bytes.len() + 14);
    ws::encode(&mut frame, opcode, bytes, false, Some([0; 4]));
    frame
}

/// Handles a message on a connection whose client has been removed.
#[cold]
fn refuse_frame(ex: &mut Executor, conn: ConnId) -> Flow {
    ex.close_socket(conn);
    Flow::Stop
}
