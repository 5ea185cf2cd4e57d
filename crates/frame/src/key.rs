//! Numbers of connections and timers. The driver gives them out; for all others they are values to compare and to index by.

/// The position of an entry in a table, and its generation: which of the entries that have been at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The position.
    pub index: u32,
    /// The generation.
    pub generation: u32,
}

impl Key {
    /// The key as one word, for the kernel to hand back.
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key of a word of [`Self::to_bits`].
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Names a connection of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId(pub Key);

impl ConnId {
    /// A small number, unique among the connections that live in this driver now: fit to index a table.
    #[inline]
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// Names a timer that has not fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(pub Key);
