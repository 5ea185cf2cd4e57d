//! A seeded generator (SplitMix64, Steele, Lea and Flood 2014) for the simulation and for tests: the same
//! seed gives the same run everywhere. Not for secrets.

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 for a bound of 0. (The bias of the multiplication is below 2⁻³² for
    /// bounds below 2³².)
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below 2 to the `bits`, evenly over the orders of magnitude.
    #[cfg(test)]
    pub(crate) fn magnitude(&mut self, bits: u64) -> u64 {
        let bound = 1 << self.below(bits);
        self.below(bound)
    }
}
