//! A sample of delivery latencies.
//!
//! One of [`SAMPLED`] fan-outs is sampled, with all of its deliveries. Replayed messages aren't sampled,
//! because they are as old as their history. When a sampled delivery is taken, the time of its publication is
//! recorded. The caller compares it with the time when the kernel accepts the bytes.
//!
//! Samples take the place of distributed tracing (OpenTelemetry). A publication passes several threads and has no
//! task that could own a span, so each message between cores would carry a context, even without tracing.

use std::time::Instant;

/// One of this many fan-outs is sampled. A sampled delivery reads the clock, so the average delivery costs a
/// few instructions.
const SAMPLED: u32 = 64;

#[derive(Default)]
pub(crate) struct Latencies {
    fan_outs: u32,
    /// Publication times of the taken deliveries. The caller empties the list after each send.
    taken: Vec<Instant>,
    /// `true` if the list has entries. Checked after each send.
    pub(crate) has_taken: bool,
}

impl Latencies {
    /// Returns `true` if this fan-out is sampled. The first one is.
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
