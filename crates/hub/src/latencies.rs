//! How long deliveries take: a sample.
//!
//! One of [`SAMPLED`] fan-outs is sampled, with all its deliveries. What is replayed isn't: it is as old as its history. When a
//! sampled delivery is taken, the time of its publication is noted, for the caller to compare with the time when the kernel has it.

use std::time::Instant;

/// One fan-out out of this many is sampled. A sampled delivery costs a reading of the clock, so the average one costs a few
/// instructions.
const SAMPLED: u32 = 64;

#[derive(Default)]
pub(crate) struct Latencies {
    fan_outs: u32,
    /// When what was taken was published. The caller empties it after each send.
    taken: Vec<Instant>,
    /// Whether there are any: asked after each send.
    pub(crate) has_taken: bool,
}

impl Latencies {
    /// Whether this fan-out is sampled. The first one is.
    #[inline]
    pub(crate) fn next_is_sampled(&mut self) -> bool {
        let is_sampled = self.fan_outs.is_multiple_of(SAMPLED);
        self.fan_outs = self.fan_outs.wrapping_add(1);
        is_sampled
    }

    pub(crate) fn note(&mut self, taken_at: Option<Instant>) {
        self.taken.extend(taken_at);
        self.has_taken = true;
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Instant> + '_ {
        self.has_taken = false;
        self.taken.drain(..)
    }
}
