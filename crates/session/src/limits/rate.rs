//! A rate: a token bucket as one number (the generic cell rate algorithm, ITU-T I.371).
//!
//! The number is the time at which the bucket is full again. Each unit moves this time by its share of a second. Units are
//! refused, and don't move the time, if it would be later than the clock by more than the bucket's size.

use std::time::Duration;

/// A rate per second, and the size of its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Nanoseconds per unit, times [`PARTS`]: a byte may take only a fraction of a nanosecond.
    one: u64,
    /// Maximum lead of the bucket's time over the clock, in nanoseconds.
    ahead_max: u64,
}

/// The denominator of the fractions of a nanosecond in [`Rate::one`].
const PARTS: u64 = 1_024;

impl Rate {
    /// A rate of `per_second`. The bucket holds the units of the time `burst`, but at least one. `None` without a limit
    /// (`per_second` is 0).
    pub(crate) fn new(per_second: u32, burst: Duration) -> Option<Self> {
        let one = (1_000_000_000 * PARTS).checked_div(u64::from(per_second))?;
        let burst = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX);
        Some(Self { one, ahead_max: burst.max(one / PARTS) })
    }

    /// Returns the time at which the bucket is full after taking `amount` at `now`. Times are in nanoseconds since any start.
    ///
    /// # Errors
    /// The time after which the amount is available.
    pub(crate) fn take(self, full_at: u64, now: u64, amount: u64) -> Result<u64, Duration> {
        let cost = self.one.saturating_mul(amount) / PARTS;
        let next = full_at.max(now).saturating_add(cost);
        // An amount larger than the bucket is taken if the bucket is full. Otherwise it would never be available.
        let ahead_max = self.ahead_max.max(cost);
        match (next - now).checked_sub(ahead_max) {
            None | Some(0) => Ok(next),
            Some(wait) => Err(Duration::from_nanos(wait)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_and_then_the_rate() {
        let rate = Rate::new(5, Duration::from_secs(1)).unwrap();
        let (mut full_at, mut taken) = (0, Vec::new());
        // Requests one unit every 10 ms, for 2 s.
        for now in (0..2 * SECOND).step_by(10_000_000) {
            if let Ok(next) = rate.take(full_at, now, 1) {
                full_at = next;
                taken.push(now / 1_000_000);
            }
        }
        assert_eq!(taken, [0, 10, 20, 30, 40, 200, 400, 600, 800, 1_000, 1_200, 1_400, 1_600, 1_800]);
        assert_eq!(rate.take(full_at, 2 * SECOND, 2), Err(Duration::from_millis(200)));
        // A pause fills the bucket, but no further.
        assert!(rate.take(full_at, 60 * SECOND, 5).is_ok());
        assert!(rate.take(full_at, 60 * SECOND, 6).is_ok(), "more than the bucket holds, from a full one");
    }

    #[test]
    fn rates_of_bytes_and_slow_rates() {
        assert_eq!(Rate::new(0, Duration::from_secs(1)), None);
        // 4 GB per second: a quarter of a nanosecond per byte.
        let rate = Rate::new(4_000_000_000, Duration::from_secs(1)).unwrap();
        assert_eq!(rate.take(0, 0, 4_000_000_000), Ok(SECOND));
        assert_eq!(rate.take(SECOND, 0, 400), Err(Duration::from_nanos(100)));
        // The bucket holds at least one unit, even if the burst is shorter than the time of one unit.
        let rate = Rate::new(1, Duration::from_millis(100)).unwrap();
        let full_at = rate.take(0, 0, 1).unwrap();
        assert_eq!(rate.take(full_at, SECOND / 2, 1), Err(Duration::from_millis(500)));
        assert!(rate.take(full_at, SECOND, 1).is_ok());
        // Extreme values don't overflow.
        let _ = rate.take(u64::MAX, 0, u64::MAX);
    }
}
