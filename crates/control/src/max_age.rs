//! The interval of fetches that an upstream's `Cache-Control` sets, for metrics, status and log. Sans-I/O:
//! results of fetches go in; `true` comes out when a line must be logged.

use std::time::{Duration, Instant};

/// Minimum time between two log lines about an upstream, because an upstream may send `max-age` with only
/// some documents.
const QUIET: Duration = Duration::from_secs(600);

/// The last `max-age` of an upstream.
#[derive(Default)]
pub(crate) struct MaxAge {
    /// The last `max-age`, within its configured minimum and maximum. `None` if the last successful response
    /// had no `max-age`, so that `poll_interval` applies.
    pub(crate) interval: Option<Duration>,
    logged: Option<Instant>,
}

impl MaxAge {
    /// Records the interval that a successful response sets. Returns `true` if it must be logged: it differs
    /// from `poll_interval`, and the last line is at least `QUIET` ago.
    pub(crate) fn record(
        &mut self,
        now: Instant,
        poll_interval: Duration,
        interval: Option<Duration>,
    ) -> bool {
        self.interval = interval;
        let is_quiet = self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= QUIET);
        let is_worth_a_line = is_quiet && interval.is_some_and(|interval| interval != poll_interval);
        if is_worth_a_line {
            self.logged = Some(now);
        }
        is_worth_a_line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_max_age_is_logged_when_it_first_applies() {
        let (mut max_age, begin) = (MaxAge::default(), Instant::now());
        let mut check = |at: u64, interval: Option<u64>, expect: bool| {
            let interval = interval.map(Duration::from_secs);
            let is_logged = max_age.record(begin + Duration::from_secs(at), Duration::from_secs(5), interval);
            assert_eq!((max_age.interval, is_logged), (interval, expect), "{at}");
        };
        check(0, None, false);
        check(5, Some(5), false);
        check(10, Some(60), true);
        check(70, None, false);
        check(75, Some(60), false);
        check(609, Some(60), false);
        check(610, Some(60), true);
    }
}
