//! Log lines about an upstream whose documents are fetched less often than its `poll_interval`: one line when
//! this begins and one when it ends. Sans-I/O: effective intervals go in, lines come out.

use std::time::{Duration, Instant};

/// Time for which a state must last before it is logged. When many keys start at once, the limits delay only
/// their first fetches, which isn't logged.
pub(crate) const STEADY: Duration = Duration::from_secs(5);
/// An interval counts as longer if it exceeds `poll_interval` by more than `poll_interval / SHARE`.
const SHARE: u32 = 10;

/// The log state of one upstream.
#[derive(Default)]
pub(crate) struct IntervalLog {
    /// The last logged state. `true` if the interval is longer than configured.
    is_longer: bool,
    /// Time since which the state has been different from the logged one.
    since: Option<Instant>,
}

impl IntervalLog {
    /// Returns `Some` if a line must be logged: `true` if the interval is longer now, `false` if no longer.
    pub(crate) fn review(
        &mut self,
        now: Instant,
        poll_interval: Duration,
        effective: Duration,
    ) -> Option<bool> {
        let is_longer = effective > poll_interval + poll_interval / SHARE;
        if is_longer == self.is_longer {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < STEADY {
            return None;
        }
        *self = Self { is_longer, since: None };
        Some(is_longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lasting_changes_are_logged() {
        let (mut log, begin) = (IntervalLog::default(), Instant::now());
        let mut check = |at_ms: u64, effective_ms: u64, expect: Option<bool>| {
            let (at, effective) = (Duration::from_millis(at_ms), Duration::from_millis(effective_ms));
            assert_eq!(log.review(begin + at, Duration::from_secs(1), effective), expect, "{at_ms}");
        };
        check(0, 1_000, None);
        check(1_000, 3_000, None);
        check(5_900, 3_000, None);
        check(5_950, 1_050, None);
        check(6_000, 3_000, None);
        check(10_999, 1_101, None);
        check(11_000, 1_101, Some(true));
        check(20_000, 3_000, None);
        check(30_000, 1_100, None);
        check(35_000, 1_000, Some(false));
        check(45_000, 1_000, None);
    }
}
