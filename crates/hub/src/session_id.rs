//! The id of a session of one shard.

/// The id of a session of one shard. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SessionId {
    /// Returns the id as a number.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Makes an id from the number of [`SessionId::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}
