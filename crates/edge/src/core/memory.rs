//! Keeps the process within `limits.memory_bytes_max`.
//!
//! The memory that a connection or client holds besides its fixed size is measured ([`Conn::held`], [`Client::held`])
//! after it may have changed, and charged to the ledger. While memory is short:
//!
//! 1. Above 95 % of the budget, new connections, large inputs and new topics are refused. The recovery log, patches
//!    and history are evicted.
//! 2. Above the budget, or after 2 s above 95 %, the connections and clients that hold the most are closed, until 90
//!    % are in use. A client that fills the budget once therefore doesn't lock others out.
//! 3. Above the budget, publications are refused too.
//!
//! Cores make room in rounds, each for itself. A round spares holders with less than half of the largest holder on
//! any core. It stops when it has closed enough to cover the excess, if no memory were shared. Shared memory isn't
//! freed, so each insufficient round doubles the amount that the next one may close.

use super::client::{Client, ClientId, End, Upper};
use super::table::{Conn, Http, Receiving, Stack, Waiting};
use super::{Core, Later, RELIEF_TOKEN};
use crate::ledger::{self, Ledger, Pressure};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_driver::Driver;
use stentor_hub::{Disconnect, SessionId};

/// Largest input that is accepted while memory is short.
pub(super) const SMALL_INPUT_BYTES: usize = 16 * 1024;
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
}

impl Conn {
    /// Bytes held besides the connection itself, by [`ledger::HOLDING_CLASSES`].
    fn held(&self) -> ledger::Held {
        let replies = self.replies.get().map_or(0, Vec::capacity);
        let (received, messages, bodies) = match &self.stack {
            Stack::Http(http) => (http.buffer.capacity(), 0, http.held_bytes()),
            Stack::Socket(socket) => {
                (socket.unread.as_ref().map_or(0, |unread| unread.held_bytes()), socket.ws.held_bytes(), 0)
            }
            Stack::Closing { .. } => (0, 0, 0),
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
    fn holds_nothing(&self) -> bool {
        self.replies.is_empty()
            && matches!(&self.stack, Stack::Socket(socket) if socket.unread.is_none() && !socket.ws.is_mid_message())
    }
}

impl Http {
    /// Bytes of the body that is arriving or waiting, and of a waiting request.
    fn held_bytes(&self) -> usize {
        let arriving = match &self.body {
            Some(Receiving { kept: Some(kept), .. }) => kept.held_bytes(),
            _ => 0,
        };
        arriving + self.waiting.as_ref().map_or(0, Waiting::held_bytes)
    }
}

impl Client {
    /// Bytes held besides the client itself, by [`ledger::HOLDING_CLASSES`].
    fn held(&self) -> ledger::Held {
        let attachments = match &self.upper {
            Upper::SocketIo(io) => io.held_bytes(),
            Upper::None | Upper::Plain { .. } => 0,
        };
        [0, 0, 0, attachments, 0, self.queue.capacity()]
    }

    /// Charges the memory that the client holds now. Called after writes from outside; [`Core::weigh_client`] does
    /// this after the client's own input.
    pub(super) fn weigh(&mut self, ledger: &Arc<Ledger>) {
        let held = self.held();
        self.holding.set(ledger, held);
    }

    /// Takes all waiting records.
    pub(super) fn take_queue(&mut self) -> Vec<u8> {
        let queue = std::mem::take(&mut self.queue);
        let held = self.held();
        self.holding.lower(held);
        queue
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
        let ledger = &self.shared.ledger;
        let Some(conn) = self.table.get_mut(index) else { return };
        let held = conn.held();
        let grown = conn.replies.set_holding(ledger, held);
        if grown > 0 && conn.replies.holding_bytes() > SMALL_INPUT_BYTES && ledger.pressure() > Pressure::None
        {
            self.later.push(Later::Overload(conn.id));
        }
    }

    /// Charges the memory that a client holds now. Closes it if it grows beyond [`SMALL_INPUT_BYTES`] while memory is
    /// short.
    pub(super) fn weigh_client(&mut self, id: ClientId) {
        let ledger = &self.shared.ledger;
        let Some(client) = self.clients.get_mut(id) else { return };
        let held = client.held();
        let grown = client.holding.set(ledger, held);
        let is_large = client.holding.bytes() > SMALL_INPUT_BYTES;
        if grown > 0 && is_large && !client.ended && ledger.pressure() > Pressure::None {
            self.metrics().inputs_refused.add(1);
            self.later.push(Later::End(id, End::Because(Disconnect::Overloaded)));
        }
    }

    /// Whether an input of this size is too large for the remaining memory.
    #[inline]
    pub(super) fn is_too_large_now(&self, bytes: usize) -> bool {
        bytes > SMALL_INPUT_BYTES && self.shared.ledger.pressure() > Pressure::None
    }

    /// Closes a connection whose input is too large for the remaining memory.
    pub(super) fn refuse_input(&mut self, index: usize) {
        self.metrics().inputs_refused.add(1);
        let Some(conn) = self.table.get(index) else { return };
        let can_answer = !conn.in_flight
            && matches!(&conn.stack, Stack::Http(http) if http.body.is_some() || http.waiting.is_none());
        if can_answer {
            self.refuse_request(index);
        } else {
            self.end_for_memory(index);
        }
    }

    /// Reports the memory that this core holds now.
    pub(super) fn report_memory(&mut self) {
        let footprint = self.hub.footprint();
        let connections =
            self.table.bytes() + self.driver.connections() * DRIVER_BYTES + self.clients.bytes();
        self.report.set([
            connections,
            footprint.sessions,
            footprint.subscriptions,
            footprint.topics,
            footprint.outboxes,
            self.driver.owned_bytes(),
        ]);
    }

    /// Checks the memory pressure, and makes room if a round is due.
    pub(super) fn mind_memory(&mut self) {
        let pressure = self.shared.ledger.pressure();
        if pressure == self.facts.pressure && pressure == Pressure::None {
            return;
        }
        self.hub.set_memory_short(pressure > Pressure::None);
        let before = std::mem::replace(&mut self.facts.pressure, pressure);
        if pressure == Pressure::None {
            self.relief = Relief::default();
            self.shared.largest[self.facts.core].store(0, Ordering::Relaxed);
            return;
        }
        if before == Pressure::None {
            // Other cores may be asleep and hold the most memory.
            self.shared.inboxes.iter().for_each(crate::shared::Inbox::wake);
        }
        let now = self.facts.now;
        let short_since = *self.relief.short_since.get_or_insert(now);
        if self.relief.round_at.is_none_or(|at| now >= at) {
            self.relief.round_at = Some(now + ROUND_INTERVAL);
            self.driver.timer_set(now + ROUND_INTERVAL, RELIEF_TOKEN);
            let is_lasting = now.saturating_duration_since(short_since) >= SHORT_TIME_MAX;
            self.make_room(pressure == Pressure::Full || is_lasting);
        }
    }

    /// Returns the allocator's unused pages to the system after much memory has been freed. Called once per tick.
    pub(super) fn release_unused_memory(&mut self) {
        let bytes = self.shared.ledger.bytes();
        self.release.bytes_max = self.release.bytes_max.max(bytes);
        if self.release.bytes_max - bytes >= RELEASE_BYTES_MIN {
            self.release = Release { bytes_max: bytes, times_left: RELEASE_TIMES };
        }
        if self.release.times_left > 0 {
            self.release.times_left -= 1;
            stentor_driver::release_unused_memory();
        }
    }

    /// One round: evicts history, then, if `ends`, closes the connections and clients that hold the most.
    fn make_room(&mut self, ends: bool) {
        self.metrics().overloads.add(1);
        let excess = self.shared.ledger.excess_bytes();
        // Each core frees its share.
        self.hub.handle_overload(excess.div_ceil(self.shared.cores));
        if !ends {
            return;
        }
        let mut holders = self.holders();
        holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let largest = &self.shared.largest;
        largest[self.facts.core].store(holders.first().map_or(0, |(bytes, _)| *bytes), Ordering::Relaxed);
        let largest = largest.iter().map(|bytes| bytes.load(Ordering::Relaxed)).max().unwrap_or(0);
        let mut left = self.shared.ledger.excess_bytes() << self.relief.rounds.min(DOUBLINGS_MAX);
        self.relief.rounds += 1;
        for (bytes, holder) in holders {
            if left == 0 || bytes < largest / 2 || self.shared.ledger.excess_bytes() == 0 {
                break;
            }
            left = left.saturating_sub(bytes);
            match holder {
                Holder::Connection(index) => self.end_for_memory(index),
                Holder::Client(id) => self.end_client_for_memory(id),
            }
        }
    }

    /// The holders of this core, with the bytes that each holds.
    fn holders(&self) -> Vec<(usize, Holder)> {
        let connections = self.table.indices().into_iter().filter_map(|index| {
            let conn = self.table.get(index)?;
            // The memory of a client's carrier counts for the client.
            let is_client = self.client_of(index).is_some();
            let session = conn.session.map_or(0, |session| self.held_by_session(session));
            (!is_client).then(|| (self.held_by_connection(conn) + session, Holder::Connection(index)))
        });
        let clients = self.clients.ids().into_iter().filter_map(|id| {
            let client = self.clients.get(id)?;
            let sessions: usize = client.sessions().map(|session| self.held_by_session(session)).sum();
            let carrier = client.carrier.conn().and_then(|conn| self.table.get(self.table.index_of(conn)?));
            let carrier = carrier.map_or(0, |conn| self.held_by_connection(conn));
            Some((client.holding.bytes() + sessions + carrier, Holder::Client(id)))
        });
        connections.chain(clients).filter(|(bytes, _)| *bytes >= LARGE_HOLDING_BYTES).collect()
    }

    /// The memory that a connection holds, including bytes in flight, unless these belong to its session.
    fn held_by_connection(&self, conn: &Conn) -> usize {
        let is_sessions = conn.session.is_some_and(|session| self.hub.is_in_flight(session));
        let in_flight = if is_sessions { 0 } else { self.driver.in_flight_bytes(conn.id) };
        conn.replies.holding_bytes() + in_flight
    }

    fn held_by_session(&self, session: SessionId) -> usize {
        self.hub.held_bytes(session) + self.hub.subscriptions(session) * SUBSCRIPTION_BYTES
    }

    /// Closes a connection, with its session or client, because it holds too much. Resets it if bytes are in flight,
    /// because their memory is needed now.
    pub(super) fn end_for_memory(&mut self, index: usize) {
        if let Some(client) = self.client_of(index) {
            return self.end_client_for_memory(client);
        }
        let Some(conn) = self.table.get(index) else { return };
        let why = Disconnect::Overloaded;
        match (conn.session, &conn.stack) {
            (Some(session), Stack::Socket(_)) if !conn.in_flight => self.disconnect(session, why),
            (_, Stack::Closing { .. }) => self.abort(index),
            _ => {
                self.metrics().disconnects[why as usize].add(1);
                self.abort(index);
            }
        }
    }

    fn end_client_for_memory(&mut self, id: ClientId) {
        let carrier = self.clients.get(id).and_then(|client| client.carrier.conn());
        self.end_client(id, End::Because(Disconnect::Overloaded));
        let carrier = carrier.and_then(|conn| self.table.index_of(conn));
        if let Some(index) = carrier
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
        for id in self.clients.ids() {
            if let Some(client) = self.clients.get(id) {
                assert_eq!(client.holding.bytes(), client.held().iter().sum::<usize>(), "{id:?}");
            }
        }
    }
}
