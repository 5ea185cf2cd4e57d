//! The circuit breaker of a hook: after [`FAILURES_MAX`] failed requests in a row it isn't asked for a while.
//!
//! A request that the backend doesn't take counts always. One that fails because of its questions counts only when questions of
//! [`SOURCES_MIN`] clients have failed: what one client sends never refuses the others.
//!
//! ```text
//!            FAILURES_MAX failures                 pause over, next question
//!  Closed ────────────────────────► Open ──────────────────────────────► HalfOpen: one request
//!    ▲                               ▲                                     │        │
//!    │                               └───── it fails: twice the pause ─────┘        │
//!    └──────────────────────────────── it succeeds ─────────────────────────────────┘
//! ```

use std::time::{Duration, Instant};

/// Failed requests in a row that open it.
pub(super) const FAILURES_MAX: u32 = 5;
/// Clients whose questions have to fail before their failures count.
pub(super) const SOURCES_MIN: usize = 3;
/// The first pause.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How a request has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Questions were answered.
    Answered,
    /// The backend took no request.
    Unavailable,
    /// No question was answered, perhaps because of those of these clients.
    Failed(Vec<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Closed {
        /// Requests in a row that the backend didn't take.
        unavailable: u32,
        /// Requests in a row that have failed because of their questions.
        failed: u32,
        /// Clients of these questions, at most [`SOURCES_MIN`].
        sources: Vec<u64>,
    },
    Open {
        until: Instant,
        pause: Duration,
    },
    /// One request, by its number, shows whether the hook answers again.
    HalfOpen {
        probe: u64,
        pause: Duration,
    },
}

const CLOSED: State = State::Closed { unavailable: 0, failed: 0, sources: Vec::new() };

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Breaker(State);

impl Default for Breaker {
    fn default() -> Self {
        Self(CLOSED)
    }
}

impl Breaker {
    /// Whether requests succeed, as far as is known.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.0, State::Closed { .. })
    }

    /// Whether nothing may be asked.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        matches!(self.0, State::Open { until, .. } if now < until)
    }

    /// When the pause is over, if there is one.
    pub(super) fn pause_ends(&self, now: Instant) -> Option<Instant> {
        match self.0 {
            State::Open { until, .. } if now < until => Some(until),
            _ => None,
        }
    }

    /// Whether the next request should be another client's than those that have failed: for as long again as the pause.
    pub(super) fn prefers_others(&self, now: Instant) -> bool {
        matches!(self.0, State::Open { until, pause } if now < until + pause)
    }

    /// Whether a request may be sent.
    pub(super) fn allows_request(&self, now: Instant) -> bool {
        !self.is_open(now) && !matches!(self.0, State::HalfOpen { .. })
    }

    /// A request is sent.
    pub(super) fn begin(&mut self, now: Instant, number: u64) {
        if let State::Open { until, pause } = self.0
            && now >= until
        {
            self.0 = State::HalfOpen { probe: number, pause };
        }
    }

    /// A request has ended. Returns whether this has opened the breaker.
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
            // A request that was sent before it opened says nothing new.
            State::HalfOpen { .. } | State::Open { .. } => return false,
        };
        self.0 = State::Open { until: now + pause, pause };
        true
    }
}
