//! A keyed 64-bit hash of JSON values, computed bottom-up while a text is parsed.
//!
//! It multiplies and folds as wyhash does, but every block is combined with a secret, so no input gives zero
//! for all keys. Correctness doesn't depend on its strength: equal hashes are confirmed by a comparison
//! before a patch relies on them, and no running time depends on their distribution. An attacker who makes
//! two values collide gets a longer patch.

use crate::number::Number;

/// The seed that makes hashes unpredictable. Draw it at random when the process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub [u64; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    keys: [u64; 4],
    /// All ones. Tests clear bits to make values collide.
    mask: u64,
}

/// Each kind of value starts with its own tag, so that `"1"` and `1` differ.
#[derive(Clone, Copy)]
pub(crate) enum Tag {
    Null = 1,
    False,
    True,
    Number,
    String,
    Array,
    Object,
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ (wide >> 64) as u64
}

/// Expands a seed into keys (SplitMix64; Steele, Lea, Flood 2014). This is part of the hash, not a source of
/// randomness.
fn next_key(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

/// Reads up to 16 bytes as two words, which may overlap. Texts of equal length give equal words only if they
/// are equal.
fn tail(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (word(first), word(last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)));
    }
    let byte = |i: usize| bytes.get(i).copied().map_or(0, u64::from);
    (byte(0) | byte(1) << 8 | byte(2) << 16, 0)
}

impl Keys {
    pub(crate) fn new(Seed([mut a, mut b]): Seed) -> Self {
        let keys = [next_key(&mut a), next_key(&mut b), next_key(&mut a), next_key(&mut b)];
        Self { keys, mask: u64::MAX }
    }

    /// Makes keys that keep only the bits of `mask` in a hash.
    #[cfg(test)]
    pub(crate) fn weakened(seed: Seed, mask: u64) -> Self {
        Self { mask, ..Self::new(seed) }
    }

    /// Returns the hash of a literal, which is also the initial hash of arrays and objects.
    pub(crate) fn tag(&self, tag: Tag) -> u64 {
        fold(self.keys[0] ^ tag as u64, self.keys[1]) & self.mask
    }

    /// Returns the hash of a string (decoded) or of a member's name.
    pub(crate) fn string(&self, bytes: &[u8]) -> u64 {
        let [k0, k1, k2, k3] = self.keys;
        let mut hash = k0 ^ Tag::String as u64;
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            let (low, high) = tail(block);
            hash = fold(low ^ k1, high ^ k2 ^ hash);
        }
        let (low, high) = tail(rest);
        hash = fold(low ^ k1, high ^ k2 ^ hash);
        // The length determines which bytes were read twice, and distinguishes a tail of zeros from padding.
        fold(hash ^ k3, bytes.len() as u64 ^ k1) & self.mask
    }

    pub(crate) fn number(&self, number: &Number<'_>) -> u64 {
        let (digits, is_negative, exponent) = match number {
            Number::Small { is_negative, digits, exponent } => (*digits, *is_negative, *exponent),
            Number::Long { is_negative, digits, exponent } => (self.string(digits), *is_negative, *exponent),
            Number::Spelling(text) => (self.string(text), false, i64::MAX),
        };
        let scale = (exponent as u64).rotate_left(32) ^ u64::from(is_negative);
        fold(digits ^ self.keys[1], scale ^ self.keys[2] ^ Tag::Number as u64) & self.mask
    }

    /// Combines the hash of the previous parts with the next one. The order matters.
    pub(crate) fn chain(&self, before: u64, next: u64) -> u64 {
        fold(before ^ self.keys[3], next ^ self.keys[2]).wrapping_add(next) & self.mask
    }

    pub(crate) fn member(&self, name: u64, value: u64) -> u64 {
        fold(name ^ self.keys[2], value ^ self.keys[0]) & self.mask
    }
}
