//! The connections of a core, and their driver. Functions that concern one connection are here: its timer, its pauses, its
//! answers, its end.
//!
//! **Invariants.** At most one send is in flight per connection. `replies` exists only while a send is in flight, except for
//! moments within a function. A connection with [`Held::INPUT`] has unhandled input, and [`Connections::resume_deferred`] or the
//! release of another reason puts it into a queue, so it never depends on further bytes from its client. A connection in the
//! table has a timer at all times.

use super::TICK;
use super::table::{Conn, Held, Machine, Table};
use super::timer::Timer;
use crate::ledger::Report;
use crate::listeners::Listeners;
use crate::ports::Lifecycle as _;
use crate::tls::TlsLayer;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stentor_driver::{Capacity, ConnId, Driver, Frame};
use stentor_session::access::AccessLog;
use stentor_session::executor::Executor;
use stentor_session::millis::Millis;
use stentor_session::protocols::client::TransportStatus;
use stentor_session::protocols::http::Waiting;
use stentor_wire::ws;

/// Time for a peer to close its side while the node drains. Browsers keep connections that can be used again, such as the
/// connection of an SSE stream.
const DRAINING_LINGER: Duration = Duration::from_secs(1);

/// Time for a peer to close its side while the number of connections is near the maximum.
const FULL_LINGER: Duration = Duration::from_millis(100);

/// Initial size of the cork, in bytes.
pub(super) const CORK_BYTES: usize = 16 * 1024;

/// The connections of a core.
pub(super) struct Connections<D: Driver> {
    pub(super) driver: TlsLayer<D>,
    pub(super) listeners: Arc<Listeners>,
    pub(super) table: Table,
    /// Bytes to send when the current event has been handled. One buffer serves all connections.
    pub(super) cork: Vec<u8>,
    /// Frames of the send being prepared.
    pub(super) frames: Vec<Frame>,
    /// Deadlines of connections above a limit that wait for a request to refuse, the oldest first.
    pub(super) refused: VecDeque<Millis>,
    /// Memory of this core as last reported to the ledger.
    pub(super) report: Report,
    pub(super) access: AccessLog,
    /// Connections whose next request or message can be handled.
    pub(super) revisit: VecDeque<usize>,
    /// Connections whose next request or message can be handled after other events.
    pub(super) next_turn: Vec<usize>,
    /// Connections with input that earlier turns have left.
    pub(super) left: VecDeque<usize>,
    /// Connections whose messages wait until no other message is half inflated.
    pub(super) waiting_to_inflate: VecDeque<ConnId>,
    /// Connections that aren't read from until the mailboxes of other cores have room.
    pub(super) waiting_for_cores: Vec<ConnId>,
}

impl<D: Driver> Connections<D> {
    pub(super) fn new(
        mut driver: TlsLayer<D>,
        listeners: Arc<Listeners>,
        report: Report,
        access: AccessLog,
    ) -> Self {
        let now = driver.now();
        driver.timer_set(now + TICK, Timer::Tick.token());
        Self {
            driver,
            listeners,
            table: Table::default(),
            cork: Vec::with_capacity(CORK_BYTES),
            frames: Vec::new(),
            refused: VecDeque::new(),
            report,
            access,
            revisit: VecDeque::new(),
            next_turn: Vec::new(),
            left: VecDeque::new(),
            waiting_to_inflate: VecDeque::new(),
            waiting_for_cores: Vec::new(),
        }
    }

    /// Sets the connection's timer to `at`, unless it is set to an earlier time.
    pub(super) fn arm(&mut self, ex: &Executor, index: usize, at: Millis) {
        let now = ex.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        if let Some(timer) = conn.timer {
            if !at.is_before(conn.timer_at) {
                return;
            }
            self.driver.timer_cancel(timer);
        }
        let at = at.coarse(now);
        let timer = Timer::Connection { index, serial: conn.serial };
        conn.timer = Some(self.driver.timer_set(ex.now() + at.from(now), timer.token()));
        conn.timer_at = at;
    }

    /// Appends bytes to the connection's waiting replies.
    pub(super) fn append_replies(&mut self, ex: &mut Executor, index: usize, out: &mut Vec<u8>) {
        if self.access.is_on {
            self.log_sent(ex, index, out);
        }
        if let Some(conn) = self.table.get_mut(index)
            && !out.is_empty()
        {
            conn.replies.get_or_insert_default().append(out);
            conn.weigh(ex.ledger());
        }
    }

    /// Appends the cork to the connection's waiting replies.
    pub(super) fn append_cork(&mut self, ex: &mut Executor, index: usize) {
        let mut out = std::mem::take(&mut self.cork);
        self.append_replies(ex, index, &mut out);
        out.clear();
        self.cork = out;
    }

    pub(super) fn drop_connection(&mut self, ex: &mut Executor, index: usize) {
        let Some(conn) = self.table.remove(index) else { return };
        if self.access.is_on {
            self.access.end(index, ex.now());
        }
        ex.release_connection(&mut self.table.take_slot(index));
        ex.forget_questions(conn.id);
        if let Some(timer) = conn.timer {
            self.driver.timer_cancel(timer);
        }
    }

    /// Records sent bytes for the access log.
    pub(super) fn log_sent(&mut self, ex: &Executor, index: usize, sent: &[u8]) {
        let Some(Machine::Http(connection)) = self.table.get(index).map(|conn| &conn.machine) else { return };
        let is_whole = connection.http.waiting.as_ref().is_none_or(Waiting::is_answered);
        self.access.sent(index, ex.now(), sent, is_whole);
    }

    /// Continues work that waited until no send was in flight.
    #[inline]
    pub(super) fn resume_deferred(&mut self, ex: &mut Executor, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        // A WebSocket that the core reads from has no deferred work.
        let is_free = conn.held.is_none() && matches!(conn.machine, Machine::WebSocket(_));
        if !(is_free || conn.in_flight || conn.replies.is_some()) {
            self.resume_what_waits(ex, index);
        }
    }

    fn resume_what_waits(&mut self, ex: &mut Executor, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        let held = conn.held;
        match &conn.machine {
            Machine::Closing { .. } => {
                let id = conn.id;
                self.drop_connection(ex, index);
                let mut linger = ex.options().limits.close_timeout;
                if ex.is_draining() {
                    linger = linger.min(DRAINING_LINGER);
                } else if self.is_nearly_full(ex) {
                    linger = linger.min(FULL_LINGER);
                }
                self.driver.finish(id, linger);
                return;
            }
            // The connection is in a queue, or its decision will put it there.
            _ if held.has(Held::TURN) || held.has(Held::DECISION) => {}
            Machine::Http(connection) => {
                let http = &connection.http;
                if let Some(Waiting::Body(_)) = &http.waiting {
                    self.next_turn.push(index);
                } else if http.is_ready() {
                    self.revisit.push_back(index);
                } else if http.stalled {
                    self.leave(ex, index);
                }
            }
            Machine::Preface(_) => {}
            Machine::WebSocket(_) => {
                if held.has(Held::INPUT) {
                    self.leave(ex, index);
                }
            }
        }
        if held.has(Held::REPLIES) {
            self.release(index, Held::REPLIES);
        }
    }

    /// Adds a reason for not reading from a connection.
    pub(super) fn hold(&mut self, index: usize, reason: Held) {
        let Some(conn) = self.table.get_mut(index) else { return };
        // For each decision, the driver is asked again to report a client that disconnects.
        if conn.held.is_none() || reason == Held::DECISION {
            self.driver.pause(conn.id);
        }
        conn.held.set(reason);
    }

    /// Removes a reason for not reading from a connection. Reading resumes when none is left.
    pub(super) fn release(&mut self, index: usize, reason: Held) {
        let Some(conn) = self.table.get_mut(index) else { return };
        let was_held = !conn.held.is_none();
        conn.held.clear(reason);
        if was_held && conn.held.is_none() {
            self.driver.resume(conn.id);
        }
    }

    /// Returns `Some(true)` if the kernel has accepted bytes since the last call. `None` if no send is in flight.
    pub(super) fn progress(&mut self, index: usize) -> Option<bool> {
        let conn = self.table.get_mut(index)?;
        if !conn.in_flight {
            return None;
        }
        let bytes = u32::try_from(self.driver.in_flight_bytes(conn.id)).unwrap_or(u32::MAX);
        Some(std::mem::replace(&mut conn.in_flight_bytes, bytes) != bytes)
    }

    pub(super) fn is_in_flight(&self, index: usize) -> bool {
        self.table.get(index).is_some_and(|conn| conn.in_flight)
    }

    /// Returns the status of a connection.
    pub(super) fn status(&mut self, index: usize) -> TransportStatus {
        let progressed = self.progress(index);
        TransportStatus {
            progressed: progressed == Some(true),
            in_flight: progressed.is_some(),
            paused_by_server: self.table.get(index).is_some_and(|conn| conn.held.is_ours()),
        }
    }

    /// Queues a connection that has used its share of the turn for the next turn.
    pub(super) fn leave(&mut self, ex: &Executor, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        if conn.held.has(Held::TURN) {
            return;
        }
        let id = conn.id;
        self.hold(index, Held::TURN);
        ex.metrics().turn_yields.add(1);
        let conn = self.table.get(index);
        if matches!(conn, Some(Conn { machine: Machine::WebSocket(socket), .. }) if socket.waits_for_step_slot())
        {
            self.waiting_to_inflate.push_back(id);
        } else {
            self.next_turn.push(index);
        }
    }

    /// Starts a turn: connections that the last turn left may continue.
    pub(super) fn resume_left(&mut self, ws: &ws::Shared) {
        if !self.next_turn.is_empty() {
            self.left.extend(self.next_turn.drain(..));
        }
        while !self.waiting_to_inflate.is_empty()
            && ws.is_step_slot_free()
            && let Some(conn) = self.waiting_to_inflate.pop_front()
        {
            if let Some(index) = self.table.index_of(conn) {
                self.left.push_back(index);
                break;
            }
        }
    }

    /// Returns `true` if connections wait for the next turn.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty() || !self.next_turn.is_empty() || !self.waiting_to_inflate.is_empty()
    }

    /// Maximum number of connections of the process, by its options and its limit of file descriptors.
    pub(super) fn connections_max(&self, ex: &Executor) -> usize {
        let Capacity { shared, own } = self.driver.capacity();
        let descriptors = shared.saturating_add(own.saturating_mul(ex.shared.cores));
        ex.options().limits.connections_max.min(descriptors)
    }

    /// Returns `true` if the number of connections is near the maximum.
    pub(super) fn is_nearly_full(&self, ex: &Executor) -> bool {
        ex.shared.connections() > self.connections_max(ex) / 8 * 7
    }

    /// Publishes the number of connections on this core, including those that are closing, for the other cores.
    pub(super) fn record_load(&self, ex: &Executor) {
        ex.shared_core().load.store(self.driver.connections(), Ordering::Relaxed);
    }
}
