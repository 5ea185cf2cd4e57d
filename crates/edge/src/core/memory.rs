//! Keeps the process within `limits.memory_bytes_max`.
//!
//! The memory that a connection or client holds besides its fixed size is measured ([`Conn::held`], [`ClientState::held`])
//! after it may have changed, and charged to the ledger. While memory is short:
//!
//! 1. Above 95 % of the budget, new connections, large inputs and new topics are refused. The recovery log, patches
//!    and history are evicted, and suspended sockets that hold the most end.
//! 2. Above the budget, or after 2 s above 95 %, the connections and clients that hold the most are closed, until 90
//!    % are in use. A client that fills the budget once therefore doesn't lock others out.
//! 3. Above the budget, publications are refused too.
//!
//! Cores make room in rounds, each for itself. A round spares holders with less than half of the largest holder of their kind on
//! any core. It stops when it has closed enough to cover the excess, if no memory were shared. Shared memory isn't
//! freed, so each insufficient round doubles the amount that the next one may close.

use super::Core;
use super::table::{Conn, Machine};
use super::timer::Timer;
use crate::executor::{Effect, SMALL_INPUT_BYTES, ToConnection};
use crate::identity::{ClientId, End};
use crate::ledger::{self, Ledger, Pressure};
use crate::protocols::client::ClientState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_driver::Driver;
use stentor_hub::{Disconnect, SessionId};

/// Smallest holding that is closed: closing smaller ones frees too little.
const LARGE_HOLDING_BYTES: usize = 4 * 1024;
/// Interval between rounds while memory is short.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);
/// Time that memory may be short before the largest holders are closed.
const SHORT_TIME_MAX: Duration = Duration::from_secs(2);
/// Decrease of the process's memory after which cores return the allocator's unused pages.
const RELEASE_BYTES_MIN: usize = 4 << 20;
/// Number of times in a row that they do.
const RELEASE_TIMES: u32 = 3;
/// Approximate size of a subscription that is the only one of its topic.
const SUBSCRIPTION_BYTES: usize = 512;
/// Approximate size of a suspended socket without its subscriptions.
const SUSPENDED_BYTES: usize = 1024;
/// Memory of a connection in the driver and the timing wheel.
const DRIVER_BYTES: usize = 96;
/// Maximum number of doublings.
const DOUBLINGS_MAX: u32 = 8;

/// The state of a core's rounds.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// Start of the memory shortage.
    short_since: Option<Instant>,
    round_at: Option<Instant>,
    /// Insufficient rounds in a row.
    rounds: u32,
}

/// The state of a core's returns of unused pages.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// Maximum of the process's memory since the last decrease.
    bytes_max: usize,
    /// Remaining times: other cores may still free blocks of this core.
    times_left: u32,
}

/// A holder of memory.
#[derive(Clone, Copy)]
enum Holder {
    Connection(usize),
    Client(ClientId),
    /// A suspended socket, by its slot.
    Suspended(usize),
}

/// The places of kinds of holders in [`Shared::largest`](crate::shared::Shared::largest).
const SUSPENDED: usize = 0;
const OTHERS: usize = 1;

impl Conn {
    /// Bytes held besides the connection itself, by [`ledger::HOLDING_CLASSES`].
    fn held(&self) -> ledger::Held {
        let replies = self.replies.get().map_or(0, Vec::capacity);
        let (received, messages, bodies) = match &self.machine {
            Machine::Http(connection) => {
                let (received, bodies) = connection.http.held_bytes();
                (received, 0, bodies)
            }
            Machine::WebSocket(socket) => {
                let (unread, messages) = socket.held_bytes();
                (unread, messages, 0)
            }
            Machine::Preface(preface) => (preface.received.capacity(), 0, 0),
            Machine::Closing { .. } => (0, 0, 0),
        };
        [received, messages, bodies, 0, replies, 0]
    }

    /// Charges the memory that the connection holds now. Called after writes from outside; [`Core::weigh`] does this
    /// after the connection's own input.
    pub(super) fn weigh(&mut self, ledger: &Arc<Ledger>) {
        let held = self.held();
        self.replies.set_holding(ledger, held);
    }

    /// Whether the connection holds no additional memory, which is the usual case.
    #[inline]
    pub(super) fn holds_nothing(&self) -> bool {
        self.replies.is_empty()
            && matches!(&self.machine, Machine::WebSocket(socket) if socket.holds_nothing())
    }
}

impl<D: Driver> Core<D> {
    /// Charges the memory that a connection holds now. Closes it if it grows beyond [`SMALL_INPUT_BYTES`] while
    /// memory is short.
    #[inline]
    pub(super) fn weigh(&mut self, index: usize) {
        if self.table.get(index).is_some_and(|conn| !conn.holds_nothing()) {
            self.weigh_what_is_held(index);
        }
    }

    fn weigh_what_is_held(&mut self, index: usize) {
        let ledger = &self.ex.shared.ledger;
        let Some(conn) = self.table.get_mut(index) else { return };
        let held = conn.held();
        let grown = conn.replies.set_holding(ledger, held);
        if grown > 0 && conn.replies.holding_bytes() > SMALL_INPUT_BYTES && ledger.pressure() > Pressure::None
        {
            let id = conn.id;
            self.ex.push(Effect::Connection(id, ToConnection::RefuseInput));
        }
    }

    /// Closes a connection whose input is too large for the remaining memory.
    pub(super) fn refuse_input(&mut self, index: usize) {
        self.ex.metrics().inputs_refused.add(1);
        let Some(conn) = self.table.get(index) else { return };
        // A request that is still arriving can be answered.
        match &conn.machine {
            Machine::Http(connection) if !conn.in_flight && connection.http.waiting.is_none() => {
                let mut out = Vec::new();
                connection.http.write_memory_short(&self.ex, &mut out);
                self.end_after(index, out);
            }
            _ => self.end_for_memory(index),
        }
    }

    /// Reports the memory that this core holds now.
    pub(super) fn report_memory(&mut self) {
        let footprint = self.ex.hub.footprint();
        let connections =
            self.table.bytes() + self.driver.connections() * DRIVER_BYTES + self.clients.bytes();
        self.report.set([
            connections,
            footprint.sessions + self.ex.limit_bytes() + self.ex.recovery.bytes(),
            footprint.subscriptions,
            footprint.topics,
            footprint.outboxes,
            self.driver.owned_bytes(),
        ]);
        self.charge_presence();
    }

    /// Checks the memory pressure, and makes room if a round is due.
    pub(super) fn mind_memory(&mut self) {
        let pressure = self.ex.shared.ledger.pressure();
        if pressure == self.ex.context.pressure && pressure == Pressure::None {
            return;
        }
        self.has_changed = true;
        self.ex.hub.set_memory_short(pressure > Pressure::None);
        let before = std::mem::replace(&mut self.ex.context.pressure, pressure);
        if pressure == Pressure::None {
            self.relief = Relief::default();
            self.ex.shared.largest[self.ex.context.core]
                .iter()
                .for_each(|bytes| bytes.store(0, Ordering::Relaxed));
            return;
        }
        if before == Pressure::None {
            // Other cores may be asleep and hold the most memory.
            self.ex.shared.inboxes.iter().for_each(crate::shared::Inbox::wake);
        }
        let now = self.ex.context.now;
        let short_since = *self.relief.short_since.get_or_insert(now);
        if self.relief.round_at.is_none_or(|at| now >= at) {
            self.relief.round_at = Some(now + ROUND_INTERVAL);
            self.driver.timer_set(now + ROUND_INTERVAL, Timer::Relief.token());
            let is_lasting = now.saturating_duration_since(short_since) >= SHORT_TIME_MAX;
            self.make_room(now == short_since, pressure == Pressure::Full || is_lasting);
        }
    }

    /// Returns the allocator's unused pages to the system after much memory has been freed. Called once per tick.
    pub(super) fn release_unused_memory(&mut self) {
        let bytes = self.ex.shared.ledger.bytes();
        self.release.bytes_max = self.release.bytes_max.max(bytes);
        if self.release.bytes_max - bytes >= RELEASE_BYTES_MIN {
            self.release = Release { bytes_max: bytes, times_left: RELEASE_TIMES };
        }
        if self.release.times_left > 0 {
            self.release.times_left -= 1;
            stentor_driver::release_unused_memory();
        }
    }

    /// One round: evicts history and suspended sockets, then, if `ends`, closes the connections and clients that hold the most.
    fn make_room(&mut self, is_first: bool, ends: bool) {
        self.ex.metrics().overloads.add(1);
        let excess = self.ex.shared.ledger.excess_bytes();
        // Each core frees its share.
        self.ex.hub.handle_overload(excess.div_ceil(self.ex.shared.cores));
        let excess = self.ex.shared.ledger.excess_bytes();
        // From the second round on, each core knows the largest suspended socket of the others.
        let suspended_bytes_max = if is_first { 0 } else { excess };
        let ended = self.end_holders(SUSPENDED, self.suspended_sockets(), suspended_bytes_max);
        let has_suspended =
            self.ex.shared.largest.iter().any(|bytes| bytes[SUSPENDED].load(Ordering::Relaxed) > 0);
        if ends && !(is_first && has_suspended) {
            // The ledger counts ended sockets until the end of the turn.
            let left = (excess << self.relief.rounds.min(DOUBLINGS_MAX)).saturating_sub(ended);
            self.relief.rounds += 1;
            self.end_holders(OTHERS, self.holders(), left);
        }
    }

    /// Ends holders of a kind, those with the most first, until so many bytes are covered. Returns how many bytes the ended ones held.
    fn end_holders(&mut self, kind: usize, mut holders: Vec<(usize, Holder)>, bytes_max: usize) -> usize {
        holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let largest = &self.ex.shared.largest;
        largest[self.ex.context.core][kind]
            .store(holders.first().map_or(0, |(bytes, _)| *bytes), Ordering::Relaxed);
        let largest = largest.iter().map(|bytes| bytes[kind].load(Ordering::Relaxed)).max().unwrap_or(0);
        let mut ended = 0;
        for (bytes, holder) in holders {
            if ended >= bytes_max || bytes < largest / 2 || self.ex.shared.ledger.excess_bytes() == 0 {
                break;
            }
            ended += bytes;
            match holder {
                Holder::Connection(index) => self.end_for_memory(index),
                Holder::Client(id) => self.end_client_for_memory(id),
                Holder::Suspended(slot) => {
                    self.ex.count_disconnect(Disconnect::Overloaded);
                    self.ex.end_suspended(slot);
                }
            }
        }
        ended
    }

    /// The suspended sockets of this core, with the bytes that each holds.
    fn suspended_sockets(&self) -> Vec<(usize, Holder)> {
        let sockets = self.ex.recovery.suspended_sockets();
        sockets
            .map(|(slot, session)| (SUSPENDED_BYTES + self.held_by_session(session), Holder::Suspended(slot)))
            .collect()
    }

    /// The holders of this core, with the bytes that each holds.
    fn holders(&self) -> Vec<(usize, Holder)> {
        let connections = self.table.indices().into_iter().filter_map(|index| {
            let conn = self.table.get(index)?;
            // The memory of the connection that carries a client counts for the client.
            let session = conn.session.map_or(0, |session| self.held_by_session(session));
            let holder = Holder::Connection(index);
            conn.client().is_none().then(|| (self.held_by_connection(conn) + session, holder))
        });
        let clients = self.clients.iter().map(|client| {
            let mut sessions = 0;
            client.each_session(&mut |session| sessions += self.held_by_session(session));
            self.held_by_client(client.state(), sessions)
        });
        let all = connections.chain(clients);
        all.filter(|(bytes, _)| *bytes >= LARGE_HOLDING_BYTES).collect()
    }

    fn held_by_client(&self, state: &ClientState, sessions: usize) -> (usize, Holder) {
        let conn = state.transport.conn().and_then(|conn| self.table.get(self.table.index_of(conn)?));
        let transport = conn.map_or(0, |conn| self.held_by_connection(conn));
        (state.holding.bytes() + sessions + transport, Holder::Client(state.id))
    }

    /// The memory that a connection holds, including bytes in flight, unless these belong to its session.
    fn held_by_connection(&self, conn: &Conn) -> usize {
        let is_sessions = conn.session.is_some_and(|session| self.ex.hub.is_in_flight(session));
        let in_flight = if is_sessions { 0 } else { self.driver.in_flight_bytes(conn.id) };
        conn.replies.holding_bytes() + in_flight
    }

    fn held_by_session(&self, session: SessionId) -> usize {
        self.ex.hub.held_bytes(session) + self.ex.hub.subscriptions(session) * SUBSCRIPTION_BYTES
    }

    /// Closes a connection, with its session or client, because it holds too much. Resets it if bytes are in flight,
    /// because their memory is needed now.
    pub(super) fn end_for_memory(&mut self, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        if let Some(client) = conn.client() {
            return self.end_client_for_memory(client);
        }
        let why = Disconnect::Overloaded;
        match (conn.session, &conn.machine) {
            (Some(session), Machine::WebSocket(_)) if !conn.in_flight => self.disconnect(session, why),
            (_, Machine::Closing { .. }) => self.abort(index),
            _ => {
                self.ex.count_disconnect(why);
                self.abort(index);
            }
        }
    }

    fn end_client_for_memory(&mut self, id: ClientId) {
        if self.client_state(id).is_some_and(|state| state.ended) {
            // All that it holds is what its next poll would get before the end.
            drop(self.clients.get_mut(id).map(|client| client.take_queue()));
            return;
        }
        let conn = self.client_state(id).and_then(|state| state.transport.conn());
        self.end_client(id, End::Because(Disconnect::Overloaded));
        let index = conn.and_then(|conn| self.table.index_of(conn));
        if let Some(index) = index
            && self.table.get(index).is_some_and(|conn| conn.in_flight)
        {
            self.abort(index);
        }
    }

    /// Checks that everything held is charged, in a debug build once per tick: tests that count instructions must not count
    /// this. Not with many connections, which would take too long.
    #[cfg(debug_assertions)]
    pub(super) fn check_holdings(&self) {
        const CONNECTIONS_MAX: usize = 64;
        if self.table.count() > CONNECTIONS_MAX {
            return;
        }
        for index in self.table.indices() {
            if let Some(conn) = self.table.get(index) {
                assert_eq!(
                    conn.replies.holding_bytes(),
                    conn.held().iter().sum::<usize>(),
                    "connection {index}"
                );
            }
        }
        for client in self.clients.iter() {
            let (state, attachments) = (client.state(), client.attachment_bytes());
            assert_eq!(
                state.holding.bytes(),
                state.held(attachments).iter().sum::<usize>(),
                "{:?}",
                state.id
            );
        }
    }
}
