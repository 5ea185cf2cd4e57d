//! What leaves: answers to what a client sent, then what its session is owed; and when a connection isn't
//! read from, because what it causes doesn't leave.
//!
//! ```text
//!  received ──► handlers ──► answer ──┬─► in flight ──► sent ──► flush ─┐
//!                                     └─► replies (one is in flight) ───┤
//!  a publication ──► ready ──► flush ───────────────────────────────────┴─► settle ──► next input, or the end
//! ```
//!
//! **Invariants.** `replies` is there only while a send is in flight (but for moments within a function). A
//! connection with [`Held::INPUT`] has unhandled input, and [`Core::settle`] or the release of another
//! reason puts it in line for [`Core::go_on`]: so it never waits for bytes that don't come.

use super::Core;
use super::client::Carrier;
use super::memory::SMALL_INPUT_BYTES;
use super::table::{Accepts, Conn, Held, Socket, Stack, Waiting};
use std::time::Duration;
use stentor_driver::{Driver, Frame, Sending};

/// Bytes that one vectored send takes from an outbox at the most, unless one frame is larger.
pub(super) const SEND_BYTES_MAX: usize = 256 * 1024;
/// Frames that one vectored send takes from an outbox at the most.
pub(super) const SEND_FRAMES_MAX: usize = 512;

/// How long a peer is waited for to close its side while the node drains. Browsers keep what could have been used again, such
/// as the connection of a stream of events; and what was sent has left by then.
const DRAINING_LINGER: Duration = Duration::from_secs(1);

/// The same time while the number of connections is near the maximum.
const FULL_LINGER: Duration = Duration::from_millis(100);

/// What the cork keeps of its memory after an unusually large answer.
const CORK_BYTES: usize = 16 * 1024;
const CORK_BYTES_MAX: usize = 1 << 20;

impl<D: Driver> Core<D> {
    /// Deals with what arrived on a connection.
    pub(super) fn received(&mut self, index: usize, data: &mut [u8]) {
        match self.table.get(index).map(|conn| &conn.stack) {
            Some(Stack::Socket(_)) => {
                let mut out = std::mem::take(&mut self.cork);
                self.socket_input(index, data, &mut out);
                self.answer(index, out);
            }
            Some(Stack::Http(_)) => self.serve(index, data),
            Some(Stack::Closing { .. }) | None => {}
        }
    }

    /// Sends what has gathered in the cork, before what the session is owed.
    pub(super) fn answer(&mut self, index: usize, mut out: Vec<u8>) {
        if !out.is_empty()
            && let Some(conn) = self.table.get_mut(index)
        {
            if conn.in_flight || conn.replies.is_some() {
                let replies = conn.replies.get_or_insert_default();
                replies.extend_from_slice(&out);
                if replies.len() > self.shared.options.limits.replies_bytes_max {
                    self.hold(index, Held::REPLIES);
                }
            } else if self.driver.send_bytes(conn.id, &out) == Sending::InFlight {
                conn.in_flight = true;
                if out.len() > SMALL_INPUT_BYTES {
                    self.report_memory();
                }
            } else if matches!(conn.stack, Stack::Http(_)) {
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
        self.settle(index);
    }

    /// The kernel has taken what was in flight.
    pub(super) fn sent(&mut self, index: usize) {
        let now = self.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        conn.in_flight = false;
        conn.in_flight_bytes = 0;
        if let Stack::Socket(socket) = &mut conn.stack {
            socket.alive_at = now;
        }
        self.taken(index);
        self.flush(index);
    }

    /// What was in flight on a connection is with the kernel.
    fn taken(&mut self, index: usize) {
        let session = self.table.get(index).and_then(|conn| conn.session);
        match (self.client_of(index), session) {
            (Some(client), _) => self.client_sent(client),
            (None, Some(session)) => self.hub.handle_sent(session),
            (None, None) => {}
        }
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
                conn.weigh(&self.shared.ledger);
            }
            let mut left_by = None;
            if let Stack::Socket(Socket { accepts: Accepts::Client(client), .. }) = conn.stack {
                let id = conn.id;
                if let Some(client) = self.clients.get(client)
                    && client.carrier == Carrier::Socket(id)
                {
                    let frames = &mut self.frames;
                    for session in client.sessions() {
                        self.hub.take(session, SEND_BYTES_MAX, SEND_FRAMES_MAX, |_, frame| {
                            frames.push(frame.clone());
                        });
                    }
                }
            } else if let Stack::Http(http) = &mut conn.stack
                && let Some(Waiting::Receiver(receiver)) = &mut http.waiting
            {
                if let Some(client) = self.clients.get_mut(receiver.client)
                    && client.carrier == Carrier::Stream(conn.id)
                    && receiver.stream(client, &mut self.hub, &mut self.frames)
                {
                    left_by = Some(receiver.client);
                }
            } else if let Some(session) = conn.session {
                match &mut conn.stack {
                    Stack::Socket(_) => {
                        let frames = &mut self.frames;
                        self.hub.take(session, SEND_BYTES_MAX, SEND_FRAMES_MAX, |_, frame| {
                            frames.push(frame.clone())
                        });
                    }
                    Stack::Http(http) => match &mut http.waiting {
                        Some(Waiting::Document(waiting)) => {
                            let failed =
                                waiting.answer(session, &mut self.hub, &mut self.frames, self.draining);
                            let metrics = &self.shared.metrics[self.facts.core];
                            metrics.request_errors.add(u64::from(failed));
                        }
                        Some(Waiting::Events(events)) => {
                            events.stream(session, &mut self.hub, &mut self.frames);
                        }
                        _ => {}
                    },
                    Stack::Closing { .. } => {}
                }
            }
            if self.frames.is_empty() {
                break;
            }
            let sending = self.driver.send(conn.id, &mut self.frames);
            conn.in_flight = sending == Sending::InFlight;
            if let Some(client) = left_by {
                self.receiver_left(client);
            }
            if sending == Sending::InFlight {
                return;
            }
            self.taken(index);
        }
        self.settle(index);
    }

    /// Goes on with what waited until nothing was in flight.
    #[inline]
    pub(super) fn settle(&mut self, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        // On a WebSocket that is read from, nothing waits.
        let is_settled = conn.held.is_none() && matches!(conn.stack, Stack::Socket(_));
        if !(is_settled || conn.in_flight || conn.replies.is_some()) {
            self.settle_what_waits(index);
        }
    }

    fn settle_what_waits(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        let held = conn.held;
        match &conn.stack {
            Stack::Closing { .. } => {
                let id = conn.id;
                self.drop_connection(index);
                let mut linger = self.shared.options.limits.close_timeout;
                if self.draining {
                    linger = linger.min(DRAINING_LINGER);
                } else if self.is_nearly_full() {
                    linger = linger.min(FULL_LINGER);
                }
                self.driver.finish(id, linger);
                return;
            }
            // It is queued already.
            _ if held.has(Held::TURN) => {}
            Stack::Http(http) => {
                let answered = http.waiting.as_ref().is_some_and(Waiting::is_answered);
                let admitted = http.admission.is_some() && http.waiting.is_none();
                if let Some(Waiting::Body(_)) = http.waiting {
                    self.next_turn.push(index);
                } else if answered || admitted || http.moving.is_some() {
                    self.revisit.push_back(index);
                } else if http.stalled {
                    self.leave(index);
                }
            }
            Stack::Socket(_) => {
                if held.has(Held::INPUT) {
                    self.leave(index);
                }
            }
        }
        if held.has(Held::REPLIES) {
            self.release(index, Held::REPLIES);
        }
    }

    /// Goes on with a connection for which something had to happen first: with what was read and waits.
    pub(super) fn go_on(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        match &mut conn.stack {
            _ if conn.held.has(Held::TURN) => {}
            Stack::Http(_) if conn.held.has(Held::CORES) => {}
            Stack::Http(_) => self.request_done(index),
            Stack::Socket(socket) => {
                if conn.held.has(Held::REPLIES) || conn.held.has(Held::CORES) {
                    socket.ws.leave_step_slot();
                    return;
                }
                let Some(mut unread) = socket.unread.take() else { return };
                let mut out = std::mem::take(&mut self.cork);
                if let Some(rest) = unread.rest.take()
                    && !self.sockjs_rest(index, rest, &mut unread, &mut out)
                {
                    return self.answer(index, out);
                }
                self.socket_input(index, &mut unread.bytes, &mut out);
                if !matches!(self.table.get(index), Some(Conn { stack: Stack::Socket(s), .. }) if s.unread.is_some())
                {
                    self.release(index, Held::INPUT);
                }
                self.answer(index, out);
            }
            Stack::Closing { .. } => {}
        }
    }

    /// Doesn't read from a connection, for this reason as well.
    pub(super) fn hold(&mut self, index: usize, reason: Held) {
        let Some(conn) = self.table.get_mut(index) else { return };
        if conn.held.is_none() {
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
