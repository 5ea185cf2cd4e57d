//! The common part of all client sessions that outlive their connections.
//!
//! ```text
//!  messages ──────► queue ──┐                   ┌─► the response to a poll, which is then complete
//!  publications ──► hub ────┴─► flush ──────────┼─► a streaming response, which continues
//!                                               └─► a WebSocket
//! ```
//!
//! **Invariants.** A client ends once: first its sessions end, then the connection that carries the client is notified. For a
//! limited time, later requests of the client receive the reason as well. While a WebSocket carries the client, `queue` holds
//! records only until the next flush.

use crate::app::{Decided, Message, Sent};
use crate::executor::{
    Effect, Executor, PollAnswer, SEND_BYTES_MAX, SEND_FRAMES_MAX, ToClient, ToConnection,
};
use crate::identity::{ClientId, End, Service, Sid};
use crate::ledger::{Held, Holding};
use crate::millis::Millis;
use crate::model::{ConnId, CoreId, Disconnect, Frame, SessionId, TimerId};
use std::time::Duration;

/// Maximum size of publications in one response to a poll, in bytes, unless a single publication is larger.
pub(crate) const POLL_BYTES_MAX: usize = 1 << 20;
/// Maximum number of publications in one response to a poll.
pub(crate) const POLL_FRAMES_MAX: usize = 1_024;

/// The connection that carries a client's packets now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActiveTransport {
    /// No connection: the client's next poll is awaited.
    None,
    /// The response to a waiting request.
    Poll(ConnId),
    /// A streaming response.
    Stream(ConnId),
    /// A WebSocket.
    WebSocket(ConnId),
}

impl ActiveTransport {
    /// The connection. `None` if no connection carries the client.
    #[inline]
    pub fn conn(self) -> Option<ConnId> {
        match self {
            Self::None => None,
            Self::Poll(conn) | Self::Stream(conn) | Self::WebSocket(conn) => Some(conn),
        }
    }

    /// The name in lists of sessions.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Poll(_) => "polling",
            Self::Stream(_) => "stream",
            Self::WebSocket(_) => "websocket",
        }
    }
}

/// The next step of handling an input, after a message, a packet, or all handled messages of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Handles the next message.
    Continue,
    /// Drops the rest of the input.
    Stop,
    /// The client moves to another core, where this packet is handled again.
    Migrate(CoreId),
    /// Keeps the rest, which begins with a packet that must wait for earlier messages of its client.
    Wait,
    /// Keeps the rest for the next turn.
    Yield,
}

impl Flow {
    pub(crate) fn if_continues(continues: bool) -> Self {
        if continues { Self::Continue } else { Self::Stop }
    }
}

/// The status of the connection that carries a client, for a timeout.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransportStatus {
    /// `true` if the kernel has accepted bytes since the last check.
    pub progressed: bool,
    /// `true` while bytes are in flight.
    pub in_flight: bool,
    /// `true` if the server has paused reading, so it can't see the client's input.
    pub paused_by_server: bool,
}

impl TransportStatus {
    /// The next deadline for progress of a response. `None` if the response has made no progress since the last check. So a
    /// slow client isn't disconnected, a stalled one is.
    pub fn idle_deadline(self, ex: &Executor) -> Option<Millis> {
        let is_alive = !self.in_flight || self.progressed;
        is_alive.then(|| ex.millis().after(ex.options().limits.idle_timeout))
    }
}

/// The timer of a client. Only the core sets it.
#[derive(Clone, Copy)]
pub struct ClientTimer {
    /// The driver's number of the timer.
    pub id: TimerId,
    /// The time for which the timer is set. It may fire a little later.
    pub at: Millis,
}

/// The common state of clients.
pub struct ClientState {
    /// The id that the client knows.
    pub sid: Sid,
    /// The handle, which the table sets.
    pub id: ClientId,
    /// The connection that carries the client now.
    pub transport: ActiveTransport,
    /// Packets or messages that wait to be sent, as the encoding of the client's sessions writes them.
    pub queue: Vec<u8>,
    /// A number for the address of the client's first connection.
    pub source: u64,
    /// The time of the last input.
    pub(crate) alive_at: Millis,
    /// The deadline for the next heartbeat, the answer to the last one, or the next request.
    pub(crate) due_at: Millis,
    /// `true` if the client has ended. The next request receives the reason.
    pub ended: bool,
    /// `true` if the client has ended and was removed from the index.
    pub removed: bool,
    /// `true` if the client has ended and may reconnect at once.
    pub(crate) may_reconnect: bool,
    /// Charge for the memory that the client holds besides its fixed size.
    pub holding: Holding,
    /// The timer that is set, if there is one.
    pub timer: Option<ClientTimer>,
}

impl ClientState {
    pub(crate) fn new(
        sid: Sid,
        source: u64,
        transport: ActiveTransport,
        now: Millis,
        due_at: Millis,
    ) -> Self {
        Self {
            sid,
            id: ClientId::NONE,
            transport,
            queue: Vec::new(),
            source,
            alive_at: now,
            due_at,
            ended: false,
            removed: false,
            may_reconnect: false,
            holding: Holding::default(),
            timer: None,
        }
    }

    /// Marks the client as ended, for this reason. Returns `false` if it had ended before.
    pub(crate) fn begin_end(&mut self, ex: &Executor, end: End) -> bool {
        if self.ended {
            return false;
        }
        if let End::Because(why) = end {
            ex.count_disconnect(why);
        }
        self.ended = true;
        self.may_reconnect = end.may_reconnect();
        true
    }

    /// Bytes that the client holds besides its fixed size, by [`crate::ledger::HOLDING_CLASSES`].
    pub fn held(&self, attachments: usize) -> Held {
        [0, 0, 0, attachments, 0, self.queue.capacity()]
    }
}

/// A client session that outlives its connections.
pub trait Client {
    /// The part of the state that all clients have.
    fn state(&self) -> &ClientState;
    /// The common state, mutable.
    fn state_mut(&mut self) -> &mut ClientState;
    /// The common state of a client that is removed.
    fn into_state(self) -> ClientState
    where
        Self: Sized;

    /// Number of bytes that count for each client besides its own size.
    fn beside() -> usize
    where
        Self: Sized,
    {
        0
    }

    /// Calls `each` with each session of the client.
    fn each_session(&self, each: &mut dyn FnMut(SessionId));

    /// The service through which the client connected.
    fn service(&self) -> Service {
        Service::default()
    }

    /// The client's session in a namespace.
    fn session_in(&self, namespace: &str) -> Option<SessionId>;

    /// The namespace of a session.
    fn namespace_of(&self, _session: SessionId) -> Option<&str> {
        Some("/")
    }

    /// The id that the client uses for a session, if it differs from the public id.
    fn id_of(&self, _session: SessionId) -> Option<String> {
        None
    }

    /// The client's handshake, as other servers of Socket.IO request it. `None` if it isn't kept.
    fn handshake(&self) -> Option<&str> {
        None
    }

    /// Size of packets that the client can't handle yet, in bytes: the received part of a packet whose attachments are
    /// incomplete, and a CONNECT that waits for a decision.
    fn attachment_bytes(&self) -> usize {
        0
    }

    /// Size of the client's messages that another part of the process holds and charges, in bytes.
    fn queued_bytes(&self) -> usize {
        0
    }

    /// The close code and reason of a client that has ended. `None` if its protocol has none.
    fn closed(&self) -> Option<(u16, &str)> {
        None
    }

    /// Sets the close code and the reason, if the client's protocol has them.
    fn set_closed(&mut self, _code: u16, _reason: &str) {}

    /// Handles a message on a WebSocket that carries or will carry the client. Answers are appended to `out`. By default, closes the
    /// connection, because a WebSocket can't carry the client.
    fn handle_frame(&mut self, ex: &mut Executor, conn: ConnId, _: Message<'_>, _out: &mut Vec<u8>) -> Flow {
        ex.close_socket(conn);
        Flow::Stop
    }

    /// Handles a message like [`Self::handle_frame`] if it is of the most frequent kind, which changes no timeout of the client.
    /// `None` for any other message.
    #[inline]
    fn handle_frequent(
        &mut self,
        _ex: &mut Executor,
        _conn: ConnId,
        _: Message<'_>,
        _out: &mut Vec<u8>,
    ) -> Option<Flow> {
        None
    }

    /// Continues with the client's packet on a connection that waited for these decisions.
    fn handle_decided(&mut self, _ex: &mut Executor, _conn: ConnId, _decided: Vec<Decided>) {}

    /// The time of the next timeout.
    fn poll_timeout(&self) -> Millis {
        self.state().due_at
    }

    /// Returns `true` if the timer must be set again, because a timeout is due before the timer fires.
    #[inline]
    fn is_due_earlier(&self) -> bool {
        self.state().timer.is_none_or(|timer| self.poll_timeout().is_before(timer.at))
    }

    /// Handles all timeouts that are due.
    fn handle_timeout(&mut self, ex: &mut Executor, status: TransportStatus);

    /// Drops the client's state for a connection that has ended and doesn't carry the client.
    fn forget_connection(&mut self, _conn: ConnId) {}

    /// Handles the end of a connection that belongs to the client. `why` is [`End::Closed`] if the client has closed the connection, or
    /// else [`End::Gone`]. `unsent` is `true` if the kernel hasn't accepted all bytes.
    fn handle_connection_lost(&mut self, ex: &mut Executor, conn: ConnId, why: End, unsent: bool) {
        self.forget_connection(conn);
        let is_carrier = self.state().transport.conn() == Some(conn);
        if is_carrier {
            self.state_mut().transport = ActiveTransport::None;
        }
        if is_carrier || unsent {
            self.end(ex, why);
        }
    }

    /// Sets the connection that carries the client. Without one, volatile messages skip its sessions.
    fn set_transport(&mut self, ex: &mut Executor, transport: ActiveTransport) {
        self.state_mut().transport = transport;
        let is_writable = transport != ActiveTransport::None;
        self.each_session(&mut |session| ex.hub.set_writable(session, is_writable));
    }

    /// Handles the end of the response that carried the client.
    fn handle_response_end(&mut self, ex: &mut Executor) {
        self.set_transport(ex, ActiveTransport::None);
    }

    /// Sends a message to one session, outside the handling of the client's own messages.
    fn send(&mut self, ex: &mut Executor, session: SessionId, what: &Sent);

    /// Keeps encoded messages until they can be sent.
    fn keep(&mut self, ex: &mut Executor, encoded: &[u8]) {
        self.state_mut().queue.extend_from_slice(encoded);
        self.charge(ex);
    }

    /// Ends the client if its queue is too large after a flush. `is_in_flight` is `true` while a send is in flight on its
    /// connection.
    fn check_queue(&mut self, ex: &mut Executor, _is_in_flight: bool) {
        let state = self.state();
        if !state.ended && state.queue.len() > ex.options().limits.send_buffer_bytes_max {
            self.end(ex, End::Because(Disconnect::SlowConsumer));
        }
    }

    /// Called when the kernel has accepted all sent bytes. Returns `true` if more bytes wait.
    fn handle_sent(&mut self, ex: &mut Executor) -> bool {
        let mut has_more = !self.state().queue.is_empty();
        self.each_session(&mut |session| has_more |= ex.hub.handle_sent(session));
        if !has_more {
            self.handle_drained(ex);
        }
        has_more
    }

    /// Called when the kernel has accepted all sent bytes, and no more wait.
    fn handle_drained(&mut self, _ex: &mut Executor) {}

    /// Moves the client's queue, and the deliveries of its sessions, into `frames`.
    fn take_frames(&mut self, ex: &mut Executor, frames: &mut Vec<Frame>) {
        if !self.state().queue.is_empty() {
            frames.push(Frame::owned(self.take_queue()));
        }
        self.each_session(&mut |session| {
            ex.take(session, SEND_BYTES_MAX, SEND_FRAMES_MAX, |_, frame| frames.push(frame.clone()));
        });
    }

    /// Takes all records and deliveries of a polling client, as records.
    fn take_records(&mut self, ex: &mut Executor) -> Vec<u8> {
        let mut records = self.take_queue();
        self.each_session(&mut |session| {
            ex.take(session, POLL_BYTES_MAX, POLL_FRAMES_MAX, |_, frame| {
                records.extend_from_slice(&frame.bytes());
            });
        });
        records
    }

    /// Ends the client: first its sessions, then the connection that carries it.
    fn end(&mut self, ex: &mut Executor, end: End);

    /// Ends one session for one of the server's reasons.
    fn end_session(&mut self, ex: &mut Executor, _session: SessionId, why: Disconnect) {
        self.end(ex, End::Because(why));
    }

    /// Ends the client and its connection for the application.
    fn close(&mut self, ex: &mut Executor) {
        self.end(ex, End::Because(Disconnect::ClosedByApplication));
    }

    /// Takes all waiting records.
    fn take_queue(&mut self) -> Vec<u8> {
        let queue = std::mem::take(&mut self.state_mut().queue);
        let held = self.state().held(self.attachment_bytes());
        self.state_mut().holding.lower(held);
        queue
    }

    /// Charges the memory that the client holds now. Returns the increase in bytes.
    fn charge(&mut self, ex: &Executor) -> usize {
        let held = self.state().held(self.attachment_bytes());
        self.state_mut().holding.set(&ex.shared.ledger, held)
    }

    /// Charges the memory that the client holds after handling its own input. While memory is short, ends the client if its
    /// memory has grown by more than a small input.
    fn weigh(&mut self, ex: &mut Executor) {
        let grown = self.charge(ex);
        let state = self.state();
        if grown > 0 && !state.ended && ex.is_too_large_now(state.holding.bytes()) {
            ex.metrics().inputs_refused.add(1);
            ex.end_client(state.id, End::Because(Disconnect::Overloaded));
        }
    }

    /// Marks the client as removed from the index of clients.
    fn remove(&mut self, ex: &mut Executor) {
        self.state_mut().removed = true;
        ex.push(Effect::Client(self.state().id, ToClient::Remove));
    }
}

/// Handles a message on a WebSocket that carries or will carry the client, after the client's earlier messages.
#[inline]
pub(super) fn handle_frame(
    client: &mut impl Client,
    ex: &mut Executor,
    conn: ConnId,
    message: Message<'_>,
    out: &mut Vec<u8>,
) -> Flow {
    let id = client.state().id;
    if ex.questions.waiting.waits_for_earlier(conn, id) {
        return Flow::Wait;
    }
    if let Some(flow) = client.handle_frequent(ex, conn, message, out) {
        return flow;
    }
    let flow = client.handle_frame(ex, conn, message, out);
    if let Flow::Migrate(core) = flow {
        ex.push(Effect::Client(id, ToClient::Migrate(core)));
    }
    if client.is_due_earlier() {
        ex.arm_client(id);
    }
    flow
}

/// Handles the timeout of a client over HTTP with one session: a heartbeat is due, or the time is over within which the next request must
/// arrive, or that for which the client's end is remembered.
pub(super) fn handle_http_timeout(
    client: &mut impl Client,
    ex: &mut Executor,
    status: TransportStatus,
    heartbeat: Duration,
) {
    let (now, state) = (ex.millis(), client.state_mut());
    if now.is_before(state.due_at) {
        return;
    }
    match state.transport {
        _ if state.ended => client.remove(ex),
        ActiveTransport::Poll(conn) | ActiveTransport::Stream(conn) => {
            state.due_at = now.after(heartbeat);
            // While bytes are in flight, no heartbeat is needed.
            if !status.in_flight {
                ex.push(Effect::Connection(conn, ToConnection::Answer(PollAnswer::Heartbeat)));
            }
        }
        ActiveTransport::None | ActiveTransport::WebSocket(_) => {
            client.end(ex, End::Gone);
            client.remove(ex);
        }
    }
}
