//! The effects of earlier failures on a queue's next request: a pause, fewer notices, or another notice than the
//! oldest.

use crate::hooks::failure::Cause;
use std::time::{Duration, Instant};

/// The pause after the first failed request. It doubles with each further failure.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Maximum length of a pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Number of failures of the oldest notice alone before another notice is tried.
const HEAD_FAILURES: u32 = 2;
/// During an outage, the distance from the oldest notice to the notice that is tried grows by this factor.
const OFFSET_GROWTH: usize = 4;

pub(super) struct Attempts {
    batch_max: usize,
    /// Number of notices in the next request.
    pub(super) batch: usize,
    /// Number of failed requests in a row.
    pub(super) failures: u32,
    /// Number of failures in a row of the oldest notice alone, without failures that only the backend can
    /// cause.
    head_failures: u32,
    pause: Duration,
    not_before: Option<Instant>,
    /// `true` if the next request has another notice than the oldest. The distance between the two (`offset`) grows
    /// with each attempt and returns to 1 at the end of the queue, so that several failing notices in a row don't
    /// delay others for long.
    pub(super) tries_other: bool,
    pub(super) offset: usize,
}

impl Attempts {
    pub(super) fn new(batch_max: usize) -> Self {
        Self {
            batch_max,
            batch: batch_max,
            failures: 0,
            head_failures: 0,
            pause: PAUSE_MIN,
            not_before: None,
            tries_other: false,
            offset: 1,
        }
    }

    /// Ends the pause, and tries the oldest notice next.
    pub(super) fn end_pause(&mut self) {
        (self.not_before, self.tries_other) = (None, false);
    }

    /// Returns the end of the pause after a failure, during which no request may be sent.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.not_before.filter(|at| now < *at)
    }

    /// Returns `true` if the oldest notice may be the cause of the failures.
    pub(super) fn suspects_oldest(&self) -> bool {
        self.head_failures >= HEAD_FAILURES
    }

    pub(super) fn succeed(&mut self) {
        (self.failures, self.head_failures, self.pause) = (0, 0, PAUSE_MIN);
        self.end_pause();
    }

    /// Records that the oldest notices were accepted.
    pub(super) fn batch_succeeded(&mut self) {
        self.batch = (2 * self.batch).min(self.batch_max);
        self.offset = 1;
        self.succeed();
    }

    pub(super) fn fail(&mut self, now: Instant) {
        self.pause = if self.failures == 0 { PAUSE_MIN } else { (2 * self.pause).min(PAUSE_MAX) };
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + self.pause);
    }

    /// Reduces the size of the next request, because the `count` oldest notices have failed.
    pub(super) fn reduce_batch(&mut self, count: usize, cause: Cause) {
        let may_be_head = count == 1 && !cause.concerns_all_requests();
        self.head_failures = if may_be_head { self.head_failures.saturating_add(1) } else { 0 };
        self.batch = if self.failures == 0 { (count / 2).max(1) } else { 1 };
        self.tries_other = false;
    }

    /// Tries another notice at once, because the oldest one has failed.
    pub(super) fn try_other(&mut self) {
        self.tries_other = true;
        self.failures = self.failures.saturating_add(1);
    }

    /// Records that another notice than the oldest has failed. `waiting` is the number of waiting notices.
    pub(super) fn other_failed(&mut self, now: Instant, waiting: usize) {
        self.tries_other = false;
        self.offset = if self.offset < waiting { OFFSET_GROWTH * self.offset } else { 1 };
        self.fail(now);
    }
}
