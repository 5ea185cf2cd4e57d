//! Milliseconds since a core started, in four bytes: what an idle connection remembers of time.
//!
//! They wrap around after 49 days, so only differences mean something, and only within 24 days. What a
//! connection remembers is never older than its last heartbeat.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Never 0, so that an `Option` takes four bytes too; what would be 0 is 1, a millisecond late in 49 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(NonZeroU32);

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

    #[inline]
    pub(crate) fn at(start: Instant, now: Instant) -> Self {
        Self::new(AT_START.wrapping_add(now.saturating_duration_since(start).as_millis() as u32))
    }

    /// The time `duration` later.
    #[inline]
    pub fn after(self, duration: Duration) -> Self {
        let step = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32);
        Self::new(self.0.get().wrapping_add(step))
    }

    /// How long until `self`, from `now`; zero where it has passed.
    #[inline]
    pub fn from(self, now: Self) -> Duration {
        Duration::from_millis((self.0.get().wrapping_sub(now.0.get()) as i32).max(0) as u64)
    }

    /// The moment for a timer that shall fire at `self` or a little later: at most a 256th of the time until then.
    /// So the heartbeats of many connections fall due together, and cost one turn instead of one each.
    #[inline]
    pub fn coarse(self, now: Self) -> Self {
        let wait = self.from(now).as_millis() as u32;
        let grain = 1 << (wait >> 8).max(1).ilog2();
        Self::new(self.0.get().wrapping_add(grain - 1) & !(grain - 1))
    }

    /// Whether this time comes first.
    #[inline]
    pub fn is_before(self, other: Self) -> bool {
        (self.0.get().wrapping_sub(other.0.get()) as i32) < 0
    }

    #[inline]
    pub(crate) fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }
}

/// A time between zero and `max`, evenly distributed over numbers. The same number gives the same time.
pub(crate) fn part_of(max: Duration, number: u64) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(number);
    max.mul_f64(hash as f64 / u64::MAX as f64)
}

/// What shows the milliseconds of one core. Mostly it is asked many times in each, and what it shows is worked out once.
pub(crate) struct Clock {
    start: Instant,
    shown: Millis,
    /// When it shows the next.
    next: Instant,
}

impl Clock {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, shown: Millis::at(start, start), next: start }
    }

    /// When it began.
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// What it shows at `now`, which is never before what was asked for last.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> Millis {
        if now >= self.next {
            self.move_on(now);
        }
        self.shown
    }

    fn move_on(&mut self, now: Instant) {
        let millis = now.saturating_duration_since(self.start).as_millis() as u64;
        self.shown = Millis::at(self.start, now);
        self.next = self.start + Duration::from_millis(millis + 1);
    }
}

#[cfg(test)]
mod tests;
