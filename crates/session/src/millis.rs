//! Milliseconds since a core started, in four bytes, for times that an idle connection stores.
//!
//! Times wrap around after 49 days, so only differences have a meaning, and only within 24 days. This is enough, because a
//! time that a connection stores is never older than the connection's last heartbeat.

use crate::http_date::{DateClock, HttpDate};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// A time. It is never 0, so that an `Option` takes four bytes too. 1 replaces 0, which is wrong by a millisecond once in
/// 49 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(NonZeroU32);

impl Default for Millis {
    fn default() -> Self {
        Self::new(1)
    }
}

/// The time at the start: 200 ms before the wrap. So every test and every user crosses the wrap at once, not after 49 days.
/// (For the same reason, Linux starts its jiffies five minutes before they wrap.)
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

    /// The duration from `now` until `self`, or zero if `self` has passed.
    #[inline]
    pub fn from(self, now: Self) -> Duration {
        Duration::from_millis((self.0.get().wrapping_sub(now.0.get()) as i32).max(0) as u64)
    }

    /// Returns a time for a timer that may fire a little later than `self`: by at most a 256th of the remaining time. So the
    /// heartbeats of many connections fall due together, in one turn instead of one turn each.
    #[inline]
    pub fn coarse(self, now: Self) -> Self {
        let wait = self.from(now).as_millis() as u32;
        let grain = 1 << (wait >> 8).max(1).ilog2();
        Self::new(self.0.get().wrapping_add(grain - 1) & !(grain - 1))
    }

    /// Returns `true` if this time is before `other`.
    #[inline]
    pub fn is_before(self, other: Self) -> bool {
        (self.0.get().wrapping_sub(other.0.get()) as i32) < 0
    }

    #[inline]
    pub(crate) fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }
}

/// Returns a time between zero and `max`. Different numbers give evenly distributed times; the same number gives the same time.
pub(crate) fn part_of(max: Duration, number: u64) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(number);
    max.mul_f64(hash as f64 / u64::MAX as f64)
}

/// The clock of one core. It caches its value, because it is usually read many times per millisecond.
pub(crate) struct Clock {
    start: Instant,
    /// The start as Unix time, in milliseconds.
    start_unix_millis: u64,
    shown: Millis,
    /// The time at which the next millisecond begins.
    next: Instant,
    date: DateClock,
    /// Returns the Unix time of an instant, in milliseconds.
    unix_millis: fn(Instant) -> u64,
}

impl Clock {
    pub(crate) fn new(start: Instant, unix_millis: fn(Instant) -> u64) -> Self {
        let start_unix_millis = unix_millis(start);
        Self {
            start,
            start_unix_millis,
            shown: Millis::at(start, start),
            next: start,
            date: DateClock::new(start, start_unix_millis),
            unix_millis,
        }
    }

    /// The Unix time at `now`, in milliseconds.
    pub(crate) fn unix_millis(&self, now: Instant) -> u64 {
        (self.unix_millis)(now)
    }

    /// The date at `now`, which must not be before the previous `now`.
    pub(crate) fn date(&self, now: Instant) -> HttpDate {
        self.date.at(now, self.unix_millis)
    }

    /// The seconds from [`Self::start_seconds`] to `now`. The sum of both is the exact Unix time in seconds.
    pub(crate) fn seconds(&self, now: Instant) -> u32 {
        let alive_ms = now.saturating_duration_since(self.start).as_millis();
        let seconds = (u128::from(self.start_unix_millis % 1_000) + alive_ms) / 1_000;
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// The Unix time of the full second before the start, in seconds.
    pub(crate) fn start_seconds(&self) -> u64 {
        self.start_unix_millis / 1_000
    }

    /// The time at which the clock started.
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// The value at `now`, which must not be before the previous `now`.
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
