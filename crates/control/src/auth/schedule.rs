//! Schedules fetches of an issuer's keys, and the tokens that wait for them. Sans-I/O: the time is a
//! parameter.
//!
//! - Keys are fetched at the start and then at an interval.
//! - A token with an unknown key causes a fetch, but at most one within [`FETCH_INTERVAL_MIN`], so that
//!   attackers can't load the issuer with forged tokens. Tokens that arrive during a fetch wait for its end.
//!   Other tokens with unknown keys are refused temporarily.
//! - If fetches fail, the known keys stay in use. Without any keys, a fetch is repeated after 1, 2, 4, … 30
//!   seconds.

use std::mem;
use std::time::{Duration, Instant};

/// Minimum time between two fetches because of unknown keys, and between a failed fetch and the next one.
pub(super) const FETCH_INTERVAL_MIN: Duration = Duration::from_secs(30);
/// Maximum number of tokens that wait for the keys of an issuer. Further tokens are refused temporarily.
pub(super) const WAITING_MAX: usize = 1024;

/// The fetches of one issuer. `W` is a waiting token.
pub(super) struct Schedule<W> {
    refresh_interval: Duration,
    in_flight: bool,
    has_keys: bool,
    /// Number of failed fetches since the last successful one.
    failures: u32,
    /// Time from which a token may cause a fetch.
    allowed_at: Instant,
    /// Time at which the next fetch is due without a waiting token.
    due_at: Instant,
    waiting: Vec<W>,
}

impl<W> Schedule<W> {
    pub(super) fn new(now: Instant, refresh_interval: Duration) -> Self {
        Self {
            refresh_interval,
            in_flight: false,
            has_keys: false,
            failures: 0,
            allowed_at: now,
            due_at: now,
            waiting: Vec::new(),
        }
    }

    /// Makes a token with an unknown key wait for a fetch. Returns the token as an error if no fetch is
    /// possible now or too many tokens wait.
    pub(super) fn wait(&mut self, now: Instant, token: W) -> Result<(), W> {
        let may_wait = self.in_flight || now >= self.allowed_at || now >= self.due_at;
        if !may_wait || self.waiting.len() >= WAITING_MAX {
            return Err(token);
        }
        self.waiting.push(token);
        Ok(())
    }

    /// Returns `true` if a fetch must start now. [`Self::handle_result`] must follow.
    pub(super) fn poll_fetch(&mut self, now: Instant) -> bool {
        let wanted = now >= self.due_at || !self.waiting.is_empty();
        self.in_flight |= wanted;
        wanted
    }

    /// Returns the latest time for the next [`Self::poll_fetch`].
    pub(super) fn poll_timeout(&self) -> Instant {
        self.due_at
    }

    /// Handles the end of a fetch. Returns the tokens that waited for it.
    pub(super) fn handle_result(&mut self, now: Instant, is_success: bool) -> Vec<W> {
        self.in_flight = false;
        self.has_keys |= is_success;
        self.failures = if is_success { 0 } else { self.failures.saturating_add(1) };
        let wait = if is_success || self.has_keys {
            FETCH_INTERVAL_MIN
        } else {
            FETCH_INTERVAL_MIN.min(Duration::from_secs(1 << (self.failures - 1).min(5)))
        };
        self.allowed_at = now + wait;
        self.due_at = now + if is_success { self.refresh_interval } else { wait };
        mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_secs(300);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn thousands_of_unknown_keys_cause_one_fetch() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, REFRESH);
        assert!(schedule.poll_fetch(now));
        let refused = (0..5000).filter(|n| schedule.wait(now, *n).is_err()).count();
        assert_eq!(refused, 5000 - WAITING_MAX);
        assert_eq!(schedule.handle_result(now, true).len(), WAITING_MAX);
        // Within `FETCH_INTERVAL_MIN`, tokens cause no further fetch.
        let later = now + FETCH_INTERVAL_MIN - seconds(1);
        assert!((0..5000).all(|n| schedule.wait(later, n).is_err()) && !schedule.poll_fetch(later));
        // After `FETCH_INTERVAL_MIN`, one token causes a fetch.
        let later = now + FETCH_INTERVAL_MIN;
        assert!(!schedule.poll_fetch(later));
        schedule.wait(later, 7).unwrap();
        assert!(schedule.poll_fetch(later));
        assert_eq!(schedule.handle_result(later, false), [7]);
        assert!(schedule.wait(later + seconds(29), 8).is_err());
    }

    #[test]
    fn keys_are_refreshed_and_failures_are_repeated() {
        let now = Instant::now();
        let mut schedule = Schedule::<()>::new(now, REFRESH);
        // Without any keys, failed fetches are repeated at growing intervals.
        let mut at = now;
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            assert!(schedule.poll_fetch(at));
            schedule.handle_result(at, false);
            assert_eq!(schedule.poll_timeout(), at + seconds(wait));
            at = schedule.poll_timeout();
        }
        schedule.handle_result(at, true);
        assert_eq!(schedule.poll_timeout(), at + REFRESH);
        schedule.handle_result(at, false);
        assert_eq!(schedule.poll_timeout(), at + FETCH_INTERVAL_MIN);
        assert!(!schedule.poll_fetch(at + seconds(29)) && schedule.poll_fetch(at + seconds(30)));
    }
}
