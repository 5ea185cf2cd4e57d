//! Identifiers of connections and timers. The driver assigns them; other crates only compare them and use them as
//! indices.

/// The position of an entry in a table, and its generation, which distinguishes successive entries at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The position.
    pub index: u32,
    /// The generation.
    pub generation: u32,
}

impl Key {
    /// Returns the key as one word, which the kernel returns with an event.
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Makes the key from a word that [`Self::to_bits`] returned.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Identifies a connection of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub Key);

impl ConnId {
    /// Returns a small number, unique among the live connections of this driver, for use as a table index.
    #[inline]
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// Identifies a timer that has not fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(pub Key);
