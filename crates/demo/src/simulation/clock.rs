//! The clock of a match: its phase and the time in it.

use super::event::Phase;

/// Seconds of match time per second of real time.
pub(crate) const SECONDS_PER_TICK: u32 = 6;
/// Seconds of a half, without stoppage time.
const HALF_S: u32 = 45 * 60;
const BEFORE_TICKS: u64 = 20;
const HALF_TIME_TICKS: u64 = 30;

/// The clock of a match, before its kickoff by default.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    pub(super) phase: Phase,
    /// Seconds of real time since the phase began.
    phase_ticks: u64,
    /// Elapsed seconds of the current half.
    pub(super) elapsed_s: u32,
    pub(super) stoppage_s: u32,
}

impl Clock {
    /// Begins a half with this stoppage time.
    pub(super) fn begin_half(&mut self, phase: Phase, stoppage_s: u32) {
        *self = Self { phase, stoppage_s, ..Self::default() };
    }

    /// Begins the break after a half, or ends the match.
    pub(super) fn begin_break(&mut self, phase: Phase) {
        (self.phase, self.phase_ticks) = (phase, 0);
    }

    /// Advances a break by one second of real time. Returns the half that begins now, if any.
    pub(super) fn wait(&mut self) -> Option<Phase> {
        self.phase_ticks += 1;
        match self.phase {
            Phase::Before => (self.phase_ticks >= BEFORE_TICKS).then_some(Phase::FirstHalf),
            Phase::HalfTime => (self.phase_ticks >= HALF_TIME_TICKS).then_some(Phase::SecondHalf),
            Phase::FirstHalf | Phase::SecondHalf | Phase::FullTime => None,
        }
    }

    /// Advances a half by one second of real time. Returns `true` if a minute is over.
    pub(super) fn play(&mut self) -> bool {
        let minute = self.elapsed_s / 60;
        self.elapsed_s += SECONDS_PER_TICK;
        self.elapsed_s / 60 > minute
    }

    /// Returns `true` at the end of the stoppage time.
    pub(super) fn is_half_over(&self) -> bool {
        self.elapsed_s >= HALF_S + self.stoppage_s
    }

    /// Returns minutes and seconds on the clock. Stoppage time continues after 45 and 90 minutes.
    pub(super) fn time(&self) -> (u32, u32) {
        let before = match self.phase {
            Phase::Before | Phase::FirstHalf => 0,
            Phase::HalfTime => return (45, 0),
            Phase::SecondHalf => HALF_S,
            Phase::FullTime => return (90, 0),
        };
        ((before + self.elapsed_s) / 60, self.elapsed_s % 60)
    }

    /// Returns the minute as it is displayed: `1'` to `90'`, or in stoppage time `45+2'`.
    pub(super) fn minute(&self) -> String {
        let whole = match self.phase {
            Phase::Before => return String::new(),
            Phase::FirstHalf | Phase::HalfTime => 45,
            Phase::SecondHalf | Phase::FullTime => 90,
        };
        let minute = whole - 45 + self.elapsed_s / 60 + 1;
        if minute > whole { format!("{whole}+{}'", minute - whole) } else { format!("{minute}'") }
    }
}
