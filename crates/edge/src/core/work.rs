//! Unfinished work of a core, and the limits of one turn: the share of each connection, and the rest that waits for the next
//! turn.
//!
//! Work is counted in bytes: received, inflated, and passed to the application, plus a constant for each resulting message,
//! request and delivery. The core doesn't read from a connection that has used its share. Such a connection continues in the next
//! turn, after newly arrived data, so clients that send little never wait for clients that send much.
//!
//! ```text
//!  a turn:  what has arrived, each its share ──► what earlier turns left, as much as fits ──► pending deliveries
//!                 └─ next_turn ◄───────────────────────┘
//! ```
//!
//! **Invariants.** Each turn continues at least one of the connections that earlier turns left. A message is never divided
//! between turns once it has been passed to the application. A message larger than a share has a turn of its own.

use super::table::Held;
use super::{CORES_RETRY, Connections, Mail, Protocols, events, tasks};
use std::time::Duration;
use stentor_driver::{Driver, thread_cpu_time};

/// Work that a core has begun and not finished.
///
/// **Invariant.** While `only_answered` is set, the core has no work before the next event.
pub(super) struct Work {
    pub(super) tasks: tasks::Tasks,
    /// `true` if messages or commands may wait: this core was woken, or left some for the next turn.
    pub(super) has_mail: bool,
    /// `true` if no work waited when the turn began, and only messages have been answered since then.
    pub(super) only_answered: bool,
    /// Bytes published by connections that were revisited in this turn.
    pub(super) revisited_bytes: usize,
    pub(super) cpu: CpuSampler,
}

impl Work {
    pub(super) fn new() -> Self {
        Self {
            tasks: tasks::Tasks::default(),
            has_mail: true,
            only_answered: false,
            revisited_bytes: 0,
            cpu: CpuSampler::default(),
        }
    }

    #[inline]
    pub(super) fn begin_turn(&mut self) {
        self.revisited_bytes = 0;
        self.cpu.begin_turn();
    }

    /// The maximum time for which a turn may wait for events. Sets `only_answered` if nothing limits this time.
    pub(super) fn limit_wait(
        &mut self,
        timeout: Option<Duration>,
        is_busy: bool,
        checks_soon: bool,
    ) -> Option<Duration> {
        if is_busy {
            return Some(Duration::ZERO);
        }
        if checks_soon {
            return Some(timeout.unwrap_or(CORES_RETRY).min(CORES_RETRY));
        }
        self.only_answered = true;
        timeout
    }
}

/// The CPU time of one turn in this many is measured. Not of each, because reading the clock is a system call.
const SAMPLED: u32 = 64;

/// Measures the CPU time of some turns, except that of sending publications.
#[derive(Default)]
pub(super) struct CpuSampler {
    turns: u32,
    /// The thread's CPU time at the start of a measured turn, plus excluded time.
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

    /// Excludes CPU time from now on.
    #[inline]
    pub(super) fn pause(&mut self) {
        if self.is_sampled() {
            self.paused = Some(thread_cpu_time());
        }
    }

    /// Includes CPU time from now on.
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

/// Continues a connection that can be handled now, if the budget of this turn isn't used up. Returns `true` if it continued one.
pub(super) fn resume_revisited(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
) -> bool {
    if conns.revisit.is_empty() {
        return false;
    }
    let Some(before) = protocols.ex.budget.begin_revisited() else { return false };
    if let Some(index) = conns.revisit.pop_front() {
        events::resume_input(conns, protocols, mail, index);
    }
    protocols.ex.budget.end_revisited(before);
    true
}

/// Continues a connection that an earlier turn left, if the budget of this turn isn't used up. Returns `true` if it continued
/// one.
pub(super) fn resume_one_left(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
) -> bool {
    if !protocols.ex.budget.has_room() {
        return false;
    }
    let Some(index) = conns.left.pop_front() else { return false };
    let before = protocols.ex.budget.begin_left();
    conns.release(index, Held::TURN);
    events::resume_input(conns, protocols, mail, index);
    protocols.ex.budget.end_left(before);
    true
}

/// Continues the next connection whose token waits for verification, if this turn has time left for a signature. Returns `true`
/// if it continued one.
pub(super) fn begin_verification(conns: &Connections<impl Driver>, protocols: &mut Protocols) -> bool {
    // Connections continue one at a time, because the cost of a verification isn't known in advance.
    conns.revisit.is_empty() && protocols.ex.poll_unverified()
}
