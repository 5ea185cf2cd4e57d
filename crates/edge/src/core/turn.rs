//! How much one turn does: a connection's share of it, and what is left for the next.
//!
//! What a client causes is counted in bytes: received, inflated, handed on, and a constant for each message and request.
//! A connection that has used its share isn't read from, and goes on in the next turn, after what has arrived meanwhile: so
//! clients that send little never wait for those that send much.
//!
//! ```text
//!  a turn:  what has arrived, each its share ──► what earlier turns left, as much as fits ──► what sessions are owed
//!                 └─ next_turn ◄───────────────────────┘
//! ```
//!
//! **Invariants.** In each turn at least one connection that was left goes on. One message is never divided between turns
//! once it is handed to the application; one that is larger than a share has a turn for itself.

use super::Core;
use super::table::{Conn, Held, Stack};
use std::time::Duration;
use stentor_driver::{Driver, thread_cpu_time};
use stentor_wire::ws::StepLimits;

/// What each message, ping and fragment counts for besides its bytes: about what handling a short one costs, compared with
/// scanning JSON (1 µs; 4 ns a byte).
pub(super) const MESSAGE_BYTES: usize = 128;
/// The same for a request of HTTP, and for a message that comes with an answer of its own.
pub(super) const REQUEST_BYTES: usize = 1024;
/// A connection's share is this part of `limits.turn_bytes_max` where others have used that up.
const SMALLEST_SHARE: usize = 8;

/// What was done in this turn, and how much the connection that is dealt with may still do.
pub(super) struct Budget {
    bytes_max: usize,
    /// What was done in this turn.
    done_bytes: usize,
    /// How much of that was left by earlier turns.
    left_bytes: usize,
    /// How much of that by connections for which something had to happen first.
    revisited_bytes: usize,
    /// Where the connection that is dealt with has used its share.
    stop_at_bytes: usize,
    /// It is the first of those that were left, and may be handed a message of any size.
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

    /// Something has arrived on a connection, or can be looked at now.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.stop_at_bytes = self.bytes_max.max(self.done_bytes + self.bytes_max / SMALLEST_SHARE);
        self.takes_any = false;
    }

    /// A connection goes on with what an earlier turn left.
    fn begin_left(&mut self) {
        self.stop_at_bytes = self.done_bytes + self.bytes_max.saturating_sub(self.left_bytes).max(1);
        self.takes_any = self.left_bytes == 0;
    }

    /// Whether there is room in this turn for more that was left.
    fn has_room(&self) -> bool {
        self.left_bytes < self.bytes_max
    }

    #[inline]
    pub(super) fn count(&mut self, bytes: usize) {
        self.done_bytes += bytes;
    }

    /// Whether the connection has used its share.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.done_bytes >= self.stop_at_bytes
    }

    /// How much of a message may be inflated, and how large one may be that is handed on, where it doesn't lie in what was
    /// just received.
    #[inline]
    pub(super) fn steps(&self) -> StepLimits {
        let bytes = self.stop_at_bytes.saturating_sub(self.done_bytes);
        let deliver_bytes_max = if self.takes_any { usize::MAX } else { bytes };
        StepLimits { inflate_bytes_max: bytes.max(1), deliver_bytes_max }
    }
}

/// One turn of so many has its processor time measured: reading the clock is a system call.
const SAMPLED: u32 = 64;

/// Measures some turns' processor time, without what sending publications takes.
#[derive(Default)]
pub(super) struct CpuSampler {
    turns: u32,
    /// Of a turn that is measured: the thread's time at its beginning, moved on by what doesn't count.
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

    /// What follows doesn't count.
    #[inline]
    pub(super) fn pause(&mut self) {
        if self.is_sampled() {
            self.paused = Some(thread_cpu_time());
        }
    }

    /// What follows counts again.
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
    /// A connection has used its share: it goes on in the next turn.
    pub(super) fn leave(&mut self, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        if conn.held.has(Held::TURN) {
            return;
        }
        let id = conn.id;
        self.hold(index, Held::TURN);
        self.metrics().turns_shared.add(1);
        if matches!(self.table.get(index), Some(Conn { stack: Stack::Socket(socket), .. }) if socket.ws.waits_for_step_slot())
        {
            self.waiting_to_inflate.push_back(id);
        } else {
            self.next_turn.push(index);
        }
    }

    /// A turn begins: what was left has its turn once more.
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

    /// Goes on with a connection that can be looked at now, if this turn has room. Says whether there was one.
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

    /// Goes on with a connection that an earlier turn left, if this one has room. Says whether there was one.
    pub(super) fn go_on_with_left(&mut self) -> bool {
        if !self.budget.has_room() {
            return false;
        }
        let Some(index) = self.left.pop_front() else { return false };
        let before = self.budget.done_bytes;
        self.budget.begin_left();
        self.release(index, Held::TURN);
        self.go_on(index);
        // Whatever it was took a moment.
        self.budget.left_bytes += (self.budget.done_bytes - before).max(MESSAGE_BYTES);
        true
    }

    /// Whether something waits for the next turn.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty() || !self.next_turn.is_empty() || !self.waiting_to_inflate.is_empty()
    }
}
