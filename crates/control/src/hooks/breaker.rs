//! The circuit breaker of a hook: after [`FAILURES_MAX`] failed requests in a row it isn't asked for a while.
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
/// The first pause.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
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

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Breaker(State);

impl Default for Breaker {
    fn default() -> Self {
        Self(State::Closed { failures: 0 })
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
    pub(super) fn end(&mut self, now: Instant, number: u64, succeeded: bool) -> bool {
        let pause = match self.0 {
            State::Closed { .. } if succeeded => {
                self.0 = State::Closed { failures: 0 };
                return false;
            }
            State::Closed { failures } if failures + 1 < FAILURES_MAX => {
                self.0 = State::Closed { failures: failures + 1 };
                return false;
            }
            State::Closed { .. } => PAUSE_MIN,
            State::HalfOpen { probe, .. } if probe == number && succeeded => {
                self.0 = State::Closed { failures: 0 };
                return false;
            }
            State::HalfOpen { probe, pause } if probe == number => (pause * 2).min(PAUSE_MAX),
            // A request that was sent before it opened says nothing new.
            State::HalfOpen { .. } | State::Open { .. } => return false,
        };
        self.0 = State::Open { until: now + pause, pause };
        true
    }
}
