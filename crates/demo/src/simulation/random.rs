//! A random number generator for the demo. A seed always gives the same match. Not for secrets.

use fastrand::Rng;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// Returns another stream, which depends on this stream and on `salt`. Doesn't advance this stream.
    pub(super) fn fork(&self, salt: u64) -> Self {
        Self(Rng::with_seed(self.0.get_seed() ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93)).fork())
    }

    /// Returns a number from 0 to `n - 1`, or 0 if `n` is 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n.max(1))
    }

    /// Returns a number from `low` to `high`, inclusive.
    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0.i64(low..=high.max(low))
    }

    /// Returns `true` with the probability `per_mille`, in thousandths.
    pub(super) fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as usize
    }

    /// Returns an element of `all`, which must not be empty.
    pub(super) fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}
