//! Events that may occur often, and are logged at most once a minute.

use std::time::{Duration, Instant};

/// Time during which an event is logged once.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The last log line about an event, and the occurrences since then.
#[derive(Default)]
pub(crate) struct Occasional {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl Occasional {
    /// Counts occurrences. Returns their number since the last line if a line is due.
    pub(crate) fn count(&mut self, occurrences: u64, now: Instant) -> Option<u64> {
        self.unlogged += occurrences;
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_logged_once_a_minute_with_its_occurrences() {
        let (mut event, begun) = (Occasional::default(), Instant::now());
        let mut count = |occurrences, seconds| event.count(occurrences, begun + Duration::from_secs(seconds));
        assert_eq!([count(2, 0), count(1, 1), count(4, 59)], [Some(2), None, None]);
        assert_eq!([count(1, 60), count(1, 61), count(1, 120)], [Some(6), None, Some(2)]);
    }
}
