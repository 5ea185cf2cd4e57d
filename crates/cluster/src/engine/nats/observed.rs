//! When this node saw something change last, by its own monotonic clock.

use std::time::Duration;
use tokio::time::Instant;

/// A sequence, and since when it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed(Option<(u64, Instant)>);

impl Observed {
    /// The newest sequence is this one, or was.
    pub(super) fn note(&mut self, now: Instant, sequence: u64) {
        if self.0.is_none_or(|(known, _)| known != sequence) {
            self.0 = Some((sequence, now));
        }
    }

    /// Whether it hasn't changed for this long, as far as this node knows.
    pub(super) fn is_unchanged_for(&self, now: Instant, time: Duration) -> bool {
        self.0.is_some_and(|(_, since)| now.saturating_duration_since(since) >= time)
    }
}
