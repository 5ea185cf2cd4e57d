//! The rate of a lane: fetches start at evenly spaced times, or slightly before them. An upstream that answers
//! 429 is paused.

use std::time::{Duration, Instant};

/// Maximum time by which a fetch may start before its evenly spaced time.
const AHEAD_MAX: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Default)]
pub(super) struct Rate {
    /// Time between two evenly spaced starts of fetches.
    pub(super) spacing: Duration,
    /// The evenly spaced time of the next start. `None` before the first fetch.
    next_start: Option<Instant>,
    /// Time before which no fetch starts, because the upstream answered 429.
    pub(super) paused_until: Option<Instant>,
    /// `true` if the rate has delayed a fetch since the last fetch began.
    has_waited: bool,
    /// Number of fetches that had to wait.
    pub(super) waits: u64,
}

impl Rate {
    pub(super) fn new(per_second_max: usize) -> Self {
        let per_second = u32::try_from(per_second_max.max(1)).unwrap_or(u32::MAX);
        Self { spacing: Duration::from_secs(1) / per_second, ..Self::default() }
    }

    /// Takes the state of the upstream's previous rate.
    pub(super) fn take_over(&mut self, before: &Self) {
        *self = Self { spacing: self.spacing, has_waited: false, ..*before };
    }

    /// Returns the earliest time of the next start, apart from a pause.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let ahead = AHEAD_MAX.saturating_sub(self.spacing);
        self.next_start.map(|start| start.checked_sub(ahead).unwrap_or(start))
    }

    /// Pauses all fetches until this time.
    pub(super) fn pause(&mut self, until: Instant) {
        self.paused_until = self.paused_until.max(Some(until));
    }

    /// Counts a fetch that has to wait, at most one between two starts.
    pub(super) fn count_wait(&mut self) {
        self.waits += u64::from(!std::mem::replace(&mut self.has_waited, true));
    }

    /// Records the start of a fetch, which ends the pause.
    pub(super) fn begin(&mut self, now: Instant) {
        self.record_requests(now, 1);
        (self.paused_until, self.has_waited) = (None, false);
    }

    /// Counts requests towards the rate.
    pub(super) fn record_requests(&mut self, now: Instant, requests: u32) {
        if requests > 0 {
            let next_start = self.next_start.map_or(now, |start| start.max(now));
            self.next_start = Some(next_start + self.spacing * requests);
        }
    }
}
