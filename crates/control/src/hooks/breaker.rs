//! The circuit breaker of a hook: after [`FAILURES_MAX`] failed requests in a row, it pauses the hook.
//!
//! A request that the backend doesn't accept always counts. Requests that fail because of their questions
//! count only once questions of [`SOURCES_MIN`] clients have failed, so that one client's questions never
//! cause refusals for others.
//!
//! ```text
//!            FAILURES_MAX failures                 pause over, next question
//!  Closed ────────────────────────► Open ──────────────────────────────► HalfOpen: one request
//!    ▲                               ▲                                     │        │
//!    │                               └───── it fails: twice the pause ─────┘        │
//!    └──────────────────────────────── it succeeds ─────────────────────────────────┘
//! ```

use std::time::{Duration, Instant};

/// Number of failed requests in a row that open the breaker.
pub(super) const FAILURES_MAX: u32 = 5;
/// Number of clients whose questions must have failed before these failures count.
pub(super) const SOURCES_MIN: usize = 3;
/// Length of the first pause.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum length of a pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The backend answered questions.
    Answered,
    /// The backend didn't accept the request.
    Unavailable,
    /// The backend answered no question, possibly because of the questions of these clients.
    Failed(Vec<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Closed {
        /// Number of requests in a row that the backend didn't accept.
        unavailable: u32,
        /// Number of requests in a row that have failed because of their questions.
        failed: u32,
        /// Clients of the failed questions, at most [`SOURCES_MIN`].
        sources: Vec<u64>,
    },
    Open {
        until: Instant,
        pause: Duration,
    },
    /// The request with the number `probe` tests whether the hook answers again.
    HalfOpen {
        probe: u64,
        pause: Duration,
    },
}

const CLOSED: State = State::Closed { unavailable: 0, failed: 0, sources: Vec::new() };

/// The breaker's state; see the module's documentation.
#[derive(Debug)]
pub(super) struct Breaker(State);

impl Default for Breaker {
    fn default() -> Self {
        Self(CLOSED)
    }
}

impl Breaker {
    /// Returns `true` if the breaker is closed: questions are sent normally.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.0, State::Closed { .. })
    }

    /// Returns `true` if the hook is paused, so that no question may be asked.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        matches!(self.0, State::Open { until, .. } if now < until)
    }

    /// Returns the end of the current pause.
    pub(super) fn pause_ends(&self, now: Instant) -> Option<Instant> {
        match self.0 {
            State::Open { until, .. } if now < until => Some(until),
            _ => None,
        }
    }

    /// Returns `true` if the next request should have a question of a client whose questions haven't failed.
    /// This holds during a pause and for the same time after it.
    pub(super) fn prefers_others(&self, now: Instant) -> bool {
        matches!(self.0, State::Open { until, pause } if now < until + pause)
    }

    /// Returns `true` if a request may be sent.
    pub(super) fn allows_request(&self, now: Instant) -> bool {
        !self.is_open(now) && !matches!(self.0, State::HalfOpen { .. })
    }

    /// Records that a request is sent.
    pub(super) fn begin(&mut self, now: Instant, number: u64) {
        if let State::Open { until, pause } = self.0
            && now >= until
        {
            self.0 = State::HalfOpen { probe: number, pause };
        }
    }

    /// Records the end of a request. Returns `true` if it opened the breaker.
    pub(super) fn end(&mut self, now: Instant, number: u64, outcome: Outcome) -> bool {
        let pause = match &mut self.0 {
            State::Closed { unavailable, failed, sources } => {
                match outcome {
                    Outcome::Answered => (*unavailable, *failed) = (0, 0),
                    Outcome::Unavailable => *unavailable += 1,
                    Outcome::Failed(_) => *failed = failed.saturating_add(1),
                }
                match outcome {
                    Outcome::Answered => sources.clear(),
                    Outcome::Unavailable => {}
                    Outcome::Failed(more) => {
                        sources.extend(more);
                        sources.sort_unstable();
                        sources.dedup();
                        sources.truncate(SOURCES_MIN);
                    }
                }
                let counted = if sources.len() >= SOURCES_MIN { *failed } else { 0 };
                if unavailable.saturating_add(counted) < FAILURES_MAX {
                    return false;
                }
                PAUSE_MIN
            }
            State::HalfOpen { probe, .. } if *probe == number && outcome == Outcome::Answered => {
                self.0 = CLOSED;
                return false;
            }
            State::HalfOpen { probe, pause } if *probe == number => (*pause * 2).min(PAUSE_MAX),
            // The outcome of a request that was sent before the breaker opened is ignored.
            State::HalfOpen { .. } | State::Open { .. } => return false,
        };
        self.0 = State::Open { until: now + pause, pause };
        true
    }
}
