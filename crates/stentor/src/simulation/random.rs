//! Random numbers that are the same for ever: SplitMix64 (Steele, Lea, Flood 2014). Not for secrets.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another stream, which depends on this one and on `salt`; this one stays where it is.
    pub(super) fn fork(&self, salt: u64) -> Self {
        let mut mixed = Self(self.0 ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(mixed.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `n - 1`; 0 for `n` = 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        // The high half of the product, so that every number is as likely (but for 2^-64 · n).
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// `low` to `high`, both included.
    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below(usize::try_from(high - low + 1).unwrap_or(1)) as i64
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
