//! Limits the work of one turn: the share of each connection, and the rest that waits for the next turn.
//!
//! Work is counted in bytes: received, inflated, passed to the application, plus a constant for each message,
//! request and delivery that it causes. A connection that has used its share isn't read from. It continues in the next turn, after newly arrived
//! data, so clients that send little never wait for clients that send much.
//!
//! ```text
//!  a turn:  what has arrived, each its share ──► what earlier turns left, as much as fits ──► pending deliveries
//!                 └─ next_turn ◄───────────────────────┘
//! ```
//!
//! **Invariants.** In each turn, at least one connection left by an earlier turn continues. A message is never
//! divided between turns once it has been passed to the application. A message larger than a share has a turn of its
//! own.

use super::Core;
use super::table::{Conn, Held, Stack};
use std::time::Duration;
use stentor_driver::{Driver, thread_cpu_time};
use stentor_wire::ws::StepLimits;

/// The constant for each message, ping and fragment: about the cost of a short one, compared with scanning JSON (1
/// µs; 4 ns per byte).
pub(super) const MESSAGE_BYTES: usize = 128;
/// The constant for an HTTP request, and for a message with its own answer.
pub(super) const REQUEST_BYTES: usize = 1024;
/// The constant for each delivery of a publication: a connection that publishes to a large room shares its core too.
const DELIVERY_BYTES: usize = 16;
/// The divisor of `limits.turn_bytes_max` for a connection's share once others have used up the turn.
const SMALLEST_SHARE: usize = 8;

/// The work done in this turn, and the rest of the current connection's share.
pub(super) struct Budget {
    bytes_max: usize,
    /// Work done in this turn.
    done_bytes: usize,
    /// The part of it left by earlier turns.
    left_bytes: usize,
    /// The part of that for connections that waited for a condition.
    revisited_bytes: usize,
    /// The value of `done_bytes` at which the current connection has used its share.
    stop_at_bytes: usize,
    /// The current connection is the first one left by an earlier turn, and may handle a message of any size.
    takes_any: bool,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            done_bytes: 0,
            left_bytes: 0,
            revisited_bytes: 0,
            stop_at_bytes: bytes_max,
            takes_any: false,
        }
    }

    #[inline]
    pub(super) fn begin_turn(&mut self) {
        self.done_bytes = 0;
        self.left_bytes = 0;
        self.revisited_bytes = 0;
    }

    /// Data has arrived on a connection, or can be handled now.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.stop_at_bytes = self.bytes_max.max(self.done_bytes + self.bytes_max / SMALLEST_SHARE);
        self.takes_any = false;
    }

    /// A connection continues with the rest of an earlier turn.
    fn begin_left(&mut self) {
        self.stop_at_bytes = self.done_bytes + self.bytes_max.saturating_sub(self.left_bytes).max(1);
        self.takes_any = self.left_bytes == 0;
    }

    /// Whether this turn has room for more connections left by earlier turns.
    fn has_room(&self) -> bool {
        self.left_bytes < self.bytes_max
    }

    #[inline]
    pub(super) fn count(&mut self, bytes: usize) {
        self.done_bytes += bytes;
    }

    /// Counts deliveries to sessions of this core that the connection has caused.
    #[inline]
    pub(super) fn count_deliveries(&mut self, deliveries: u64) {
        self.done_bytes += deliveries as usize * DELIVERY_BYTES;
    }

    /// Whether the connection has used its share.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.done_bytes >= self.stop_at_bytes
    }

    /// How many bytes of a message may be inflated, and the maximum size of a delivered message that isn't in the
    /// receive buffer.
    #[inline]
    pub(super) fn steps(&self) -> StepLimits {
        let bytes = self.stop_at_bytes.saturating_sub(self.done_bytes);
        let deliver_bytes_max = if self.takes_any { usize::MAX } else { bytes };
        StepLimits { inflate_bytes_max: bytes.max(1), deliver_bytes_max }
    }
}

/// One turn out of this many has its CPU time measured, because reading the clock is a system call.
const SAMPLED: u32 = 64;

/// Measures the CPU time of some turns, except that of sending publications.
#[derive(Default)]
pub(super) struct CpuSampler {
    turns: u32,
    /// The thread's CPU time at the start of a measured turn, plus the time that doesn't count.
    begun: Option<Duration>,
    paused: Option<Duration>,
}

impl CpuSampler {
    #[inline]
    pub(super) fn begin_turn(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(SAMPLED) {
            self.begun = Some(thread_cpu_time());
        }
    }

    #[inline]
    pub(super) fn is_sampled(&self) -> bool {
        self.begun.is_some()
    }

    /// Excludes the time from now on.
    #[inline]
    pub(super) fn pause(&mut self) {
        if self.is_sampled() {
            self.paused = Some(thread_cpu_time());
        }
    }

    /// Includes the time from now on.
    #[inline]
    pub(super) fn resume(&mut self) {
        if let (Some(begun), Some(paused)) = (&mut self.begun, self.paused.take()) {
            *begun += thread_cpu_time().saturating_sub(paused);
        }
    }

    pub(super) fn end_turn(&mut self) -> Duration {
        self.begun.take().map_or(Duration::ZERO, |begun| thread_cpu_time().saturating_sub(begun))
    }
}

impl<D: Driver> Core<D> {
    /// A connection has used its share. It continues in the next turn.
    pub(super) fn leave(&mut self, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        if conn.held.has(Held::TURN) {
            return;
        }
        let id = conn.id;
        self.hold(index, Held::TURN);
        self.metrics().turn_yields.add(1);
        if matches!(self.table.get(index), Some(Conn { stack: Stack::Socket(socket), .. }) if socket.ws.waits_for_step_slot())
        {
            self.waiting_to_inflate.push_back(id);
        } else {
            self.next_turn.push(index);
        }
    }

    /// Starts a turn: connections left by the last one may continue.
    pub(super) fn resume_left(&mut self) {
        if !self.next_turn.is_empty() {
            self.left.extend(self.next_turn.drain(..));
        }
        while !self.waiting_to_inflate.is_empty()
            && self.ws.as_ref().is_some_and(|shared| shared.is_step_slot_free())
            && let Some(conn) = self.waiting_to_inflate.pop_front()
        {
            if let Some(index) = self.table.index_of(conn) {
                self.left.push_back(index);
                break;
            }
        }
    }

    /// Continues with a connection that can be handled now, if this turn has room. Returns whether there was one.
    pub(super) fn go_on_with_revisited(&mut self) -> bool {
        if self.budget.revisited_bytes >= self.budget.bytes_max {
            return false;
        }
        let Some(index) = self.revisit.pop_front() else { return false };
        let before = self.budget.done_bytes;
        self.budget.begin();
        self.go_on(index);
        self.budget.revisited_bytes += (self.budget.done_bytes - before).max(MESSAGE_BYTES);
        true
    }

    /// Continues with a connection left by an earlier turn, if this one has room. Returns whether there was one.
    pub(super) fn go_on_with_left(&mut self) -> bool {
        if !self.budget.has_room() {
            return false;
        }
        let Some(index) = self.left.pop_front() else { return false };
        let before = self.budget.done_bytes;
        self.budget.begin_left();
        self.release(index, Held::TURN);
        self.go_on(index);
        // The work took some time.
        self.budget.left_bytes += (self.budget.done_bytes - before).max(MESSAGE_BYTES);
        true
    }

    /// Whether work waits for the next turn.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty() || !self.next_turn.is_empty() || !self.waiting_to_inflate.is_empty()
    }
}
