//! What leaves: answers to what a client sent, then what its session is owed; and when a connection isn't
//! read from, because what it causes doesn't leave.
//!
//! ```text
//!  received ──► handlers ──► answer ──┬─► in flight ──► sent ──► flush ─┐
//!                                     └─► replies (one is in flight) ───┤
//!  a publication ──► ready ──► flush ───────────────────────────────────┴─► resume_deferred ──► next input, or the end
//! ```
//!
//! **Invariants.** `replies` is there only while a send is in flight (but for moments within a function). A
//! connection with [`Held::INPUT`] has unhandled input, and [`Core::resume_deferred`] or the release of another
//! reason puts it in line for [`Core::resume_input`]: so it never waits for bytes that don't come.

use super::Core;
use super::table::{Conn, Held, Machine};
use crate::executor::{Executor, SEND_BYTES_MAX, SEND_FRAMES_MAX, SMALL_INPUT_BYTES};
use crate::identity::Owner;
use crate::protocols::client::ActiveTransport;
use crate::protocols::http::Waiting;
use crate::protocols::response::ResponseContext;
use std::time::Duration;
use stentor_driver::{Driver, Frame, Sending};
use stentor_hub::SessionId;

/// How long a peer is waited for to close its side while the node drains. Browsers keep what could have been used again, such
/// as the connection of a stream of events; and what was sent has left by then.
const DRAINING_LINGER: Duration = Duration::from_secs(1);

/// The same time while the number of connections is near the maximum.
const FULL_LINGER: Duration = Duration::from_millis(100);

/// Where the status of a response ends.
const STATUS_LINE_BYTES: usize = "HTTP/1.1 200".len();

/// What the cork keeps of its memory after an unusually large answer.
const CORK_BYTES: usize = 16 * 1024;
const CORK_BYTES_MAX: usize = 1 << 20;

impl<D: Driver> Core<D> {
    /// Sends what has gathered in the cork, before what the session is owed.
    pub(super) fn answer(&mut self, index: usize, mut out: Vec<u8>) {
        if !out.is_empty() {
            self.send_new_mail();
        }
        if self.ex.access.is_on {
            self.log_sent(index, &out);
        }
        if !out.is_empty()
            && let Some(conn) = self.table.get_mut(index)
        {
            if conn.in_flight || conn.replies.is_some() {
                let replies = conn.replies.get_or_insert_default();
                replies.extend_from_slice(&out);
                if replies.len() > self.ex.options().limits.replies_bytes_max {
                    self.hold(index, Held::REPLIES);
                }
            } else if self.driver.send_bytes(conn.id, &out) == Sending::InFlight {
                conn.in_flight = true;
                if out.len() > SMALL_INPUT_BYTES {
                    self.report_memory();
                }
            } else if matches!(conn.machine, Machine::Http(_)) {
                // It may have been a poll's.
                self.taken(index);
            }
            out.clear();
        }
        if out.capacity() > CORK_BYTES_MAX {
            out = Vec::with_capacity(CORK_BYTES);
        }
        self.cork = out;
        self.weigh(index);
        self.resume_deferred(index);
    }

    /// The kernel has taken what was in flight.
    pub(super) fn sent(&mut self, index: usize) {
        let now = self.ex.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        conn.in_flight = false;
        conn.in_flight_bytes = 0;
        if let Machine::WebSocket(socket) = &mut conn.machine {
            socket.handle_sent(now);
        }
        self.taken(index);
        self.flush(index);
    }

    /// What was in flight on a connection is with the kernel. Returns whether more may be waiting for it.
    fn taken(&mut self, index: usize) -> bool {
        let Some(conn) = self.table.get(index) else { return false };
        // Over HTTP, what follows may be the end of a response.
        let is_http = !matches!(conn.machine, Machine::WebSocket(_));
        let has_more = match (conn.client(), conn.session) {
            (Some(client), _) => {
                self.clients.get_mut(client).is_some_and(|client| client.handle_sent(&mut self.ex))
            }
            (None, Some(session)) => self.ex.hub.handle_sent(session),
            (None, None) => false,
        };
        has_more || is_http
    }

    /// Sends answers that waited and what the session is owed, until something is in flight.
    pub(super) fn flush(&mut self, index: usize) {
        loop {
            let Some(conn) = self.table.get_mut(index) else { return };
            if conn.in_flight {
                return;
            }
            if let Some(replies) = conn.replies.take() {
                self.frames.push(Frame::owned(replies));
                conn.weigh(&self.ex.shared.ledger);
            }
            let conn_id = conn.id;
            match &mut conn.machine {
                Machine::WebSocket(socket) => match (socket.client(), conn.session) {
                    (Some(client), _) => {
                        if let Some(client) = self.clients.get_mut(client)
                            && client.state().transport == ActiveTransport::WebSocket(conn_id)
                        {
                            client.take_frames(&mut self.ex, &mut self.frames);
                        }
                    }
                    (None, Some(session)) => take(&mut self.ex, session, &mut self.frames),
                    (None, None) => {}
                },
                Machine::Http(connection) => {
                    if let Some(response) = connection.http.response_mut() {
                        let client = response.client().and_then(|id| self.clients.get_mut(id));
                        let (ex, session) = (&mut self.ex, conn.session);
                        let mut cx = ResponseContext { ex, conn: conn_id, session, client };
                        response.take_frames(&mut cx, &mut self.frames);
                    }
                }
                Machine::Preface(_) | Machine::Closing { .. } => {}
            }
            if self.frames.is_empty() {
                break;
            }
            if self.ex.access.is_on && self.ex.access.awaits_status(index) {
                let begin: Vec<u8> = self.frames[0].bytes().iter().take(STATUS_LINE_BYTES).copied().collect();
                self.log_sent(index, &begin);
            }
            let sending = self.driver.send(conn_id, &mut self.frames);
            self.ex.record_latencies();
            if let Some(conn) = self.table.get_mut(index) {
                conn.in_flight = sending == Sending::InFlight;
            }
            if sending == Sending::InFlight {
                return;
            }
            if !self.taken(index) {
                break;
            }
        }
        self.resume_deferred(index);
    }

    /// A connection sends this, for the access log.
    pub(super) fn log_sent(&mut self, index: usize, sent: &[u8]) {
        let Some(Machine::Http(connection)) = self.table.get(index).map(|conn| &conn.machine) else { return };
        let is_whole = connection.http.waiting.as_ref().is_none_or(Waiting::is_answered);
        self.ex.access.sent(index, self.ex.context.now, sent, is_whole);
    }

    /// Sends what was published before the application ends a session. What its connection can't take now is sent with
    /// the answers, unless it is more than [`crate::app::AT_ONCE_BYTES_MAX`].
    pub(super) fn send_pending(&mut self, session: SessionId) {
        if !self.ex.has_pending(session) {
            return;
        }
        match self.ex.owner_of(session) {
            Some(Owner::Connection(index, _)) => self.flush(index),
            Some(Owner::Client(id)) => self.flush_client(id),
            Some(Owner::Socket(_)) | None => {}
        }
        if !self.ex.has_pending(session) {
            return;
        }
        match self.ex.owner_of(session) {
            Some(Owner::Connection(index, _)) => {
                if let Some(Conn { machine: Machine::WebSocket(_), .. }) = self.table.get(index) {
                    let mut pending = self.ex.take_if_few(session);
                    self.append_replies(index, &mut pending);
                    self.flush(index);
                }
            }
            Some(Owner::Client(id)) => {
                if let Some(client) = self.clients.get_mut(id) {
                    let pending = self.ex.take_if_few(session);
                    client.keep(&mut self.ex, &pending);
                }
            }
            Some(Owner::Socket(_)) | None => {}
        }
    }

    /// Continues with what waited until nothing was in flight.
    #[inline]
    pub(super) fn resume_deferred(&mut self, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        // On a WebSocket that is read from, nothing waits.
        let is_settled = conn.held.is_none() && matches!(conn.machine, Machine::WebSocket(_));
        if !(is_settled || conn.in_flight || conn.replies.is_some()) {
            self.resume_what_waits(index);
        }
    }

    fn resume_what_waits(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        let held = conn.held;
        match &conn.machine {
            Machine::Closing { .. } => {
                let id = conn.id;
                self.drop_connection(index);
                let mut linger = self.ex.options().limits.close_timeout;
                if self.ex.draining {
                    linger = linger.min(DRAINING_LINGER);
                } else if self.is_nearly_full() {
                    linger = linger.min(FULL_LINGER);
                }
                self.driver.finish(id, linger);
                return;
            }
            // It is queued already, or will be.
            _ if held.has(Held::TURN) || held.has(Held::DECISION) => {}
            Machine::Http(connection) => {
                let http = &connection.http;
                if let Some(Waiting::Body(_)) = &http.waiting {
                    self.next_turn.push(index);
                } else if http.is_ready() {
                    self.revisit.push_back(index);
                } else if http.stalled {
                    self.leave(index);
                }
            }
            Machine::Preface(_) => {}
            Machine::WebSocket(_) => {
                if held.has(Held::INPUT) {
                    self.leave(index);
                }
            }
        }
        if held.has(Held::REPLIES) {
            self.release(index, Held::REPLIES);
        }
    }

    /// Doesn't read from a connection, for this reason as well.
    pub(super) fn hold(&mut self, index: usize, reason: Held) {
        let Some(conn) = self.table.get_mut(index) else { return };
        // Each decision asks anew whether its client has gone meanwhile.
        if conn.held.is_none() || reason == Held::DECISION {
            self.driver.pause(conn.id);
        }
        conn.held.set(reason);
    }

    /// Reads from a connection again, if this was the last reason not to.
    pub(super) fn release(&mut self, index: usize, reason: Held) {
        let Some(conn) = self.table.get_mut(index) else { return };
        let was_held = !conn.held.is_none();
        conn.held.clear(reason);
        if was_held && conn.held.is_none() {
            self.driver.resume(conn.id);
        }
    }

    /// Whether something is in flight, and then whether the kernel has taken some of it since the last look.
    pub(super) fn progress(&mut self, index: usize) -> Option<bool> {
        let conn = self.table.get_mut(index)?;
        if !conn.in_flight {
            return None;
        }
        let bytes = u32::try_from(self.driver.in_flight_bytes(conn.id)).unwrap_or(u32::MAX);
        Some(std::mem::replace(&mut conn.in_flight_bytes, bytes) != bytes)
    }
}

/// Moves the deliveries of a session into `frames`, as much as one send takes.
#[inline]
fn take(ex: &mut Executor, session: SessionId, frames: &mut Vec<Frame>) {
    ex.take(session, SEND_BYTES_MAX, SEND_FRAMES_MAX, |_, frame| frames.push(frame.clone()));
}
