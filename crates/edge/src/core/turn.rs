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
use super::table::{Conn, Held, Machine};
use crate::budget::MESSAGE_BYTES;
use std::time::Duration;
use stentor_driver::{Driver, thread_cpu_time};

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
        self.ex.metrics().turn_yields.add(1);
        let conn = self.table.get(index);
        if matches!(conn, Some(Conn { machine: Machine::WebSocket(socket), .. }) if socket.waits_for_step_slot())
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
            && self.ws.is_step_slot_free()
            && let Some(conn) = self.waiting_to_inflate.pop_front()
        {
            if let Some(index) = self.table.index_of(conn) {
                self.left.push_back(index);
                break;
            }
        }
    }

    /// Continues with a connection that can be handled now, if this turn has room. Returns whether there was one.
    pub(super) fn resume_revisited(&mut self) -> bool {
        if self.ex.budget.revisited_bytes >= self.ex.budget.bytes_max {
            return false;
        }
        let Some(index) = self.revisit.pop_front() else { return false };
        let before = self.ex.budget.done_bytes;
        self.ex.budget.begin();
        self.resume_input(index);
        self.ex.budget.revisited_bytes += (self.ex.budget.done_bytes - before).max(MESSAGE_BYTES);
        true
    }

    /// Continues with a connection left by an earlier turn, if this one has room. Returns whether there was one.
    pub(super) fn resume_one_left(&mut self) -> bool {
        if !self.ex.budget.has_room() {
            return false;
        }
        let Some(index) = self.left.pop_front() else { return false };
        let before = self.ex.budget.done_bytes;
        self.ex.budget.begin_left();
        self.release(index, Held::TURN);
        self.resume_input(index);
        // The work took some time.
        self.ex.budget.left_bytes += (self.ex.budget.done_bytes - before).max(MESSAGE_BYTES);
        true
    }

    /// Lets the next connection whose token waits to be verified continue, if this turn has work left for a signature. Returns whether
    /// there was one.
    pub(super) fn begin_verification(&mut self) -> bool {
        // One at a time: what it takes isn't known before.
        self.revisit.is_empty() && self.ex.questions.poll_unverified(&self.ex.budget.signatures)
    }

    /// Whether work waits for the next turn.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty() || !self.next_turn.is_empty() || !self.waiting_to_inflate.is_empty()
    }
}
