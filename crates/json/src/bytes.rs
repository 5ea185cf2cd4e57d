//! Searches eight bytes at a time.
//!
//! Each function marks bytes by their high bit. The lowest mark is exact. A borrow may set wrong marks above
//! it, so only the lowest one counts.

const HIGH_BITS: u64 = splat(0x80);

/// Repeats a byte eight times.
pub(crate) const fn splat(byte: u8) -> u64 {
    0x0101_0101_0101_0101 * byte as u64
}

/// Marks the bytes below `limit`, which is at most 0x80.
pub(crate) const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(splat(limit)) & !word & HIGH_BITS
}

/// Marks the bytes equal to `byte`.
pub(crate) const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ splat(byte), 1)
}

/// Marks quotes, backslashes and control characters.
pub(crate) const fn special(word: u64) -> u64 {
    below(word, 0x20) | equal(word, b'"') | equal(word, b'\\')
}

/// Returns `true` if all bytes are ASCII.
pub(crate) const fn is_ascii(word: u64) -> bool {
    word & HIGH_BITS == 0
}

/// Returns the bytes from `at` on, which are fewer than eight, followed by zeros.
#[inline]
pub(crate) fn last_word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last).checked_shr(64 - 8 * rest.len().min(8) as u32).unwrap_or(0),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Returns the position of the lowest mark; 8 without a mark.
pub(crate) const fn first(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}
