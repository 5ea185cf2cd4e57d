//! Milliseconds since a core started, in four bytes: what an idle connection remembers of time.
//!
//! They wrap around after 49 days, so only differences mean something, and only within 24 days. What a
//! connection remembers is never older than its last heartbeat.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Never 0, so that an `Option` takes four bytes too; what would be 0 is 1, a millisecond late in 49 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Millis(NonZeroU32);

impl Default for Millis {
    fn default() -> Self {
        Self::new(1)
    }
}

/// What the clock shows at the start: so little before the wrap that every test and every user crosses it at
/// once, not after 49 days. (Linux begins its jiffies five minutes before theirs, for the same reason.)
const AT_START: u32 = u32::MAX - 200;

impl Millis {
    fn new(millis: u32) -> Self {
        Self(NonZeroU32::new(millis).unwrap_or(NonZeroU32::MIN))
    }

    pub(crate) fn at(start: Instant, now: Instant) -> Self {
        Self::new(AT_START.wrapping_add(now.saturating_duration_since(start).as_millis() as u32))
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        let step = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32);
        Self::new(self.0.get().wrapping_add(step))
    }

    /// How long until `self`, from `now`; zero where it has passed.
    pub(crate) fn from(self, now: Self) -> Duration {
        Duration::from_millis((self.0.get().wrapping_sub(now.0.get()) as i32).max(0) as u64)
    }

    pub(crate) fn is_before(self, other: Self) -> bool {
        (self.0.get().wrapping_sub(other.0.get()) as i32) < 0
    }

    pub(crate) fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_survive_the_wrap() {
        let early = Millis::new(u32::MAX - 5);
        let late = early.after(Duration::from_millis(10));
        assert!(early.is_before(late) && !late.is_before(early));
        assert_eq!(late.from(early), Duration::from_millis(10));
        assert_eq!(early.from(late), Duration::ZERO);
        assert_eq!(early.earlier(late), early);
        let start = Instant::now();
        let [before, after] = [0, 300].map(|ms| Millis::at(start, start + Duration::from_millis(ms)));
        assert!(before.is_before(after) && after.0 < before.0);
    }
}
