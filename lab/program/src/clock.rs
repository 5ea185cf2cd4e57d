//! CLOCK_MONOTONIC as a number, so that processes can compare times.
//!
//! Invariant: for one [`Clock`], `at_ns` is linear in the [`Instant`]. It differs from the kernel's value by less than
//! the time between the two clock reads that made it (about 100 ns).

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Turns an [`Instant`] into nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    reference: Instant,
    reference_ns: u64,
}

impl Clock {
    /// Reads both clocks.
    pub(crate) fn new() -> Self {
        Self { reference_ns: monotonic_ns(), reference: Instant::now() }
    }

    /// `at` in nanoseconds of CLOCK_MONOTONIC.
    #[inline]
    pub(crate) fn at_ns(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.reference) {
            Some(later) => self.reference_ns + later.as_nanos() as u64,
            None => self.reference_ns.saturating_sub(self.reference.duration_since(at).as_nanos() as u64),
        }
    }
}

/// CLOCK_MONOTONIC now, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
