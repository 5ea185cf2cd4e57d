//! A seeded generator for the demo: the same seed gives the same game. Not for secrets.

use fastrand::Rng;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// Another stream, which depends on this one and on `salt`; this one does not advance.
    pub(super) fn fork(&self, salt: u64) -> Self {
        Self(Rng::with_seed(self.0.get_seed() ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93)).fork())
    }

    /// 0 to `n - 1`; 0 for `n` = 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n.max(1))
    }

    /// `low` to `high`, both included.
    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0.i64(low..=high.max(low))
    }

    /// True `per_mille` times in a thousand.
    pub(super) fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as usize
    }

    /// One of `all`, which isn't empty.
    pub(super) fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}
