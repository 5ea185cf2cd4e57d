//! The last time at which this node saw something change, by its own monotonic clock.

use std::time::Duration;
use tokio::time::Instant;

/// A sequence, and the time since which it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed(Option<(u64, Instant)>);

impl Observed {
    /// Records that the newest sequence is or was this one.
    pub(super) fn note(&mut self, now: Instant, sequence: u64) {
        if self.0.is_none_or(|(known, _)| known != sequence) {
            self.0 = Some((sequence, now));
        }
    }

    /// Adopts the time of another observation of the same sequence. An observation of another sequence has missed this one.
    pub(super) fn merge(&mut self, other: Self) {
        if let (Some((known, _)), Some((sequence, _))) = (self.0, other.0)
            && known == sequence
        {
            *self = other;
        }
    }

    /// Returns `true` if the sequence hasn't changed for this long, as far as this node knows.
    pub(super) fn is_unchanged_for(&self, now: Instant, time: Duration) -> bool {
        self.0.is_some_and(|(_, since)| now.saturating_duration_since(since) >= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_another_node_missed_changes_nothing() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let noted = |after: u32, sequence| {
            let mut observed = Observed::default();
            observed.note(start + second * after, sequence);
            observed
        };
        let mut observed = noted(3, 7);
        for behind in [Observed::default(), noted(0, 6)] {
            observed.merge(behind);
            observed.note(start + second * 4, 7);
            assert!(observed.is_unchanged_for(start + second * 5, second * 2));
        }
        observed.merge(noted(1, 7));
        assert!(observed.is_unchanged_for(start + second * 5, second * 4));
    }
}
