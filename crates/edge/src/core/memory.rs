//! Keeps the process within `limits.memory_bytes_max`.
//!
//! A core measures the memory that a connection or client holds besides its fixed size ([`super::table::Conn::held`],
//! [`ClientState::held`]) after it may have changed, and charges it to the ledger. While memory is short:
//!
//! 1. Above 95 % of the budget, new connections, large inputs and new topics are refused. The recovery log, patches
//!    and history are evicted, and suspended sockets that hold the most end.
//! 2. Above the budget, or after 2 s above 95 %, the connections and clients that hold the most are closed, until 90
//!    % are in use. A client that fills the budget once therefore doesn't lock others out.
//! 3. Above the budget, publications are refused too.
//!
//! Each core makes room in rounds. A round spares holders with less than half of the largest holder of their kind on any core. It
//! stops when it has closed enough to cover the excess, assuming that no memory is shared. Shared memory isn't freed, so each
//! insufficient round doubles the amount that the next one may close.

use super::table::Machine;
use super::timer::Timer;
use super::{Connections, Protocols, Upkeep, end};
use crate::ledger::Pressure;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_driver::Driver;
use stentor_hub::{Disconnect, SessionId};
use stentor_session::executor::Executor;
use stentor_session::identity::{ClientId, End};
use stentor_session::protocols::client::ClientState;

/// Minimum memory of a holder that is closed. Closing smaller holders would free too little.
const LARGE_HOLDING_BYTES: usize = 4 * 1024;
/// Interval between rounds while memory is short.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);
/// Time that memory may be short before the largest holders are closed.
const SHORT_TIME_MAX: Duration = Duration::from_secs(2);
/// Decrease of the process's memory after which cores return the allocator's unused pages.
const RELEASE_BYTES_MIN: usize = 4 << 20;
/// Number of consecutive ticks on which unused pages are released after such a decrease.
const RELEASE_TIMES: u32 = 3;
/// Approximate size of a subscription that is the only one of its topic.
const SUBSCRIPTION_BYTES: usize = 512;
/// Approximate size of a suspended socket without its subscriptions.
const SUSPENDED_BYTES: usize = 1024;
/// Maximum number of times that the amount of a round is doubled.
const DOUBLINGS_MAX: u32 = 8;

/// The state of a core's rounds.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// Start of the memory shortage.
    short_since: Option<Instant>,
    round_at: Option<Instant>,
    /// Number of consecutive insufficient rounds.
    rounds: u32,
}

/// The state of a core's releases of unused pages.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// Maximum of the process's memory since the last decrease.
    bytes_max: usize,
    /// Number of remaining releases. There are several, because other cores may still free blocks of this core.
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

/// Indexes of the kinds of holders in [`SharedCore::largest`](stentor_session::shared::SharedCore::largest).
const SUSPENDED: usize = 0;
const OTHERS: usize = 1;

/// Closes a connection whose input is too large for the remaining memory.
pub(super) fn refuse_input(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    protocols.ex.metrics().inputs_refused.add(1);
    let Some(conn) = conns.table.get(index) else { return };
    // A request that is still arriving can be answered.
    match &conn.machine {
        Machine::Http(connection) if !conn.in_flight && connection.http.waiting.is_none() => {
            let mut out = Vec::new();
            connection.http.write_memory_short(&protocols.ex, &mut out);
            end::end_after(conns, protocols, index, out);
        }
        _ => end_for_memory(conns, protocols, index),
    }
}

impl Upkeep {
    /// Checks the memory pressure. While memory is short, frees some once per [`ROUND_INTERVAL`]. Returns `true` if memory is or
    /// was short.
    #[inline]
    pub(super) fn check_memory(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
    ) -> bool {
        let pressure = protocols.ex.ledger().pressure();
        let is_short = pressure != Pressure::None || protocols.ex.pressure() != Pressure::None;
        if is_short {
            self.handle_pressure(conns, protocols, pressure);
        }
        is_short
    }

    #[cold]
    fn handle_pressure(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
        pressure: Pressure,
    ) {
        let before = protocols.ex.set_pressure(pressure);
        if pressure == Pressure::None {
            self.relief = Relief::default();
            let largest = &protocols.ex.shared_core().largest;
            largest.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
            return;
        }
        if before == Pressure::None {
            // Other cores may be asleep and hold the most memory.
            protocols.ex.shared.inboxes().for_each(stentor_session::shared::Inbox::wake);
        }
        let now = protocols.ex.now();
        let short_since = *self.relief.short_since.get_or_insert(now);
        if self.relief.round_at.is_none_or(|at| now >= at) {
            self.relief.round_at = Some(now + ROUND_INTERVAL);
            conns.driver.timer_set(now + ROUND_INTERVAL, Timer::Relief.token());
            let is_lasting = now.saturating_duration_since(short_since) >= SHORT_TIME_MAX;
            self.make_room(conns, protocols, now == short_since, pressure == Pressure::Full || is_lasting);
        }
    }

    /// Releases the allocator's unused pages to the system after much memory has been freed. Called once per tick.
    pub(super) fn release_unused_memory(&mut self, ex: &Executor) {
        let bytes = ex.ledger().bytes();
        self.release.bytes_max = self.release.bytes_max.max(bytes);
        if self.release.bytes_max - bytes >= RELEASE_BYTES_MIN {
            self.release = Release { bytes_max: bytes, times_left: RELEASE_TIMES };
        }
        if self.release.times_left > 0 {
            self.release.times_left -= 1;
            stentor_driver::release_unused_memory();
        }
    }

    /// Carries out one round: evicts history and suspended sockets, then, if `ends`, closes the connections and clients that hold
    /// the most.
    fn make_room(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
        is_first: bool,
        ends: bool,
    ) {
        protocols.ex.metrics().overloads.add(1);
        let excess = protocols.ex.ledger().excess_bytes();
        // Each core frees its share.
        protocols.ex.hub.handle_overload(excess.div_ceil(protocols.ex.shared.cores));
        let excess = protocols.ex.ledger().excess_bytes();
        // From the second round on, each core knows the largest suspended socket of the others.
        let suspended_bytes_max = if is_first { 0 } else { excess };
        let ended =
            end_holders(conns, protocols, SUSPENDED, suspended_sockets(protocols), suspended_bytes_max);
        let has_suspended =
            protocols.ex.shared.each.iter().any(|core| core.largest[SUSPENDED].load(Ordering::Relaxed) > 0);
        if ends && !(is_first && has_suspended) {
            // The ledger counts ended sockets until the end of the turn.
            let left = (excess << self.relief.rounds.min(DOUBLINGS_MAX)).saturating_sub(ended);
            self.relief.rounds += 1;
            end_holders(conns, protocols, OTHERS, holders(conns, protocols), left);
        }
    }
}

/// Ends holders of a kind, the largest first, until they cover the given number of bytes. Returns the number of bytes that they
/// held.
fn end_holders(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    kind: usize,
    mut holders: Vec<(usize, Holder)>,
    bytes_max: usize,
) -> usize {
    holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let own = holders.first().map_or(0, |(bytes, _)| *bytes);
    protocols.ex.shared_core().largest[kind].store(own, Ordering::Relaxed);
    let each = protocols.ex.shared.each.iter();
    let largest = each.map(|core| core.largest[kind].load(Ordering::Relaxed)).max().unwrap_or(0);
    let mut ended = 0;
    for (bytes, holder) in holders {
        if ended >= bytes_max || bytes < largest / 2 || protocols.ex.ledger().excess_bytes() == 0 {
            break;
        }
        ended += bytes;
        match holder {
            Holder::Connection(index) => end_for_memory(conns, protocols, index),
            Holder::Client(id) => end_client_for_memory(conns, protocols, id),
            Holder::Suspended(slot) => {
                protocols.ex.count_disconnect(Disconnect::Overloaded);
                protocols.ex.end_suspended(slot, End::Because(Disconnect::Overloaded));
            }
        }
    }
    ended
}

/// The suspended sockets of this core, with the bytes that each holds.
fn suspended_sockets(protocols: &Protocols) -> Vec<(usize, Holder)> {
    let sockets = protocols.ex.suspended_sockets();
    sockets
        .map(|(slot, session)| {
            (SUSPENDED_BYTES + held_by_session(&protocols.ex, session), Holder::Suspended(slot))
        })
        .collect()
}

fn held_by_session(ex: &Executor, session: SessionId) -> usize {
    ex.hub.held_bytes(session) + ex.hub.subscriptions(session) * SUBSCRIPTION_BYTES
}

/// The holders of this core, with the bytes that each holds.
fn holders(conns: &Connections<impl Driver>, protocols: &Protocols) -> Vec<(usize, Holder)> {
    let connections = conns.table.indices().into_iter().filter_map(|index| {
        let conn = conns.table.get(index)?;
        // The memory of the connection that carries a client counts for the client.
        let session = conn.session.map_or(0, |session| held_by_session(&protocols.ex, session));
        let holder = Holder::Connection(index);
        conn.client().is_none().then(|| (conns.held_by_connection(&protocols.ex, conn) + session, holder))
    });
    let clients = protocols.clients.iter().map(|client| {
        let mut sessions = 0;
        client.each_session(&mut |session| sessions += held_by_session(&protocols.ex, session));
        let beside = client.queued_bytes() + protocols.held_by_rooms(client.state().id);
        held_by_client(conns, protocols, client.state(), sessions + beside)
    });
    let all = connections.chain(clients);
    all.filter(|(bytes, _)| *bytes >= LARGE_HOLDING_BYTES).collect()
}

fn held_by_client(
    conns: &Connections<impl Driver>,
    protocols: &Protocols,
    state: &ClientState,
    sessions: usize,
) -> (usize, Holder) {
    let conn = state.transport.conn().and_then(|conn| conns.table.get(conns.table.index_of(conn)?));
    let transport = conn.map_or(0, |conn| conns.held_by_connection(&protocols.ex, conn));
    (state.holding.bytes() + sessions + transport, Holder::Client(state.id))
}

/// Closes a connection, with its session or client, because it holds too much. Resets it if bytes are in flight,
/// because their memory is needed now.
pub(super) fn end_for_memory(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    let Some(conn) = conns.table.get(index) else { return };
    if let Some(client) = conn.client() {
        return end_client_for_memory(conns, protocols, client);
    }
    let why = Disconnect::Overloaded;
    match (conn.session, &conn.machine) {
        (Some(session), Machine::WebSocket(_)) if !conn.in_flight => {
            end::disconnect(conns, protocols, session, why)
        }
        (_, Machine::Closing { .. }) => end::abort(conns, protocols, index),
        _ => {
            protocols.ex.count_disconnect(why);
            end::abort_because(conns, protocols, index, End::Because(why));
        }
    }
}

fn end_client_for_memory(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, id: ClientId) {
    if protocols.client_state(id).is_some_and(|state| state.ended) {
        // The queue would only be sent with the next poll, before the end of the session.
        drop(protocols.clients.get_mut(id).map(|client| client.take_queue()));
        return;
    }
    let conn = protocols.client_state(id).and_then(|state| state.transport.conn());
    protocols.end_client(id, End::Because(Disconnect::Overloaded));
    let index = conn.and_then(|conn| conns.table.index_of(conn));
    if let Some(index) = index
        && conns.table.get(index).is_some_and(|conn| conn.in_flight)
    {
        end::abort(conns, protocols, index);
    }
}
