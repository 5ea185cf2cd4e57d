//! Searches eight bytes at a time, and 16 where the processor can.
//!
//! Each function of a word marks bytes by their high bit. The lowest mark is exact. A borrow may set wrong marks above
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

/// Returns the position of the first quote, backslash or control character from `at` on. Without one, returns the end of
/// the text or a position after it.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline(always)]
pub(crate) fn special_from(bytes: &[u8], at: usize) -> usize {
    let Some(last) = bytes.last_chunk() else { return special_from_by_words(bytes, at) };
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((lane, after)) = rest.split_first_chunk() {
        let marks = special_lane(lane);
        if marks != 0 {
            return bytes.len() - rest.len() + marks.trailing_zeros() as usize;
        }
        rest = after;
    }
    // Fewer than 16 bytes are left. They are the end of the last lane, and the bit after them is the end of the text.
    let marks = (special_lane(last) | 1 << LANE_BYTES) >> (LANE_BYTES - rest.len());
    bytes.len() - rest.len() + marks.trailing_zeros() as usize
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
#[inline(always)]
pub(crate) fn special_from(bytes: &[u8], at: usize) -> usize {
    special_from_by_words(bytes, at)
}

/// Like [`special_from`], for short texts and other processors.
fn special_from_by_words(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let marks = special(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + first(marks);
        }
        at += 8;
    }
    // Fewer than eight bytes are left. The zeros after them are marked as well.
    at + first(special(last_word(bytes, at)))
}

/// Number of bytes that are compared at once.
const LANE_BYTES: usize = 16;

/// Returns the size of a start of `bytes` that is ASCII without quotes, backslashes and control characters. It may be up to
/// 15 bytes too short, unless all bytes are such.
#[inline]
pub(crate) fn plain_start(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((lane, after)) = rest.split_first_chunk() {
        if !is_plain(lane) {
            return bytes.len() - rest.len();
        }
        rest = after;
    }
    match bytes.last_chunk() {
        Some(last) if is_plain(last) => bytes.len(),
        _ => bytes.len() - rest.len(),
    }
}

/// Returns `true` if 16 bytes are ASCII without quotes, backslashes and control characters.
#[inline(always)]
fn is_plain(lane: &[u8; LANE_BYTES]) -> bool {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        special_lane(lane) == 0 && safe_arch::move_mask_i8_m128i((*lane).into()) == 0
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    {
        let mut words = lane.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        words.all(|word| special(word) == 0 && is_ascii(word))
    }
}

/// Returns the quotes, backslashes and control characters among 16 bytes, as bits. The first byte is the lowest bit.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline(always)]
fn special_lane(lane: &[u8; LANE_BYTES]) -> u32 {
    use safe_arch::{cmp_eq_mask_i8_m128i, m128i, min_u8_m128i, move_mask_i8_m128i, set_splat_i8_m128i};
    let lane = m128i::from(*lane);
    let splat = |byte: u8| set_splat_i8_m128i(byte.cast_signed());
    let is_control = cmp_eq_mask_i8_m128i(min_u8_m128i(lane, splat(0x1f)), lane);
    let is_quote = cmp_eq_mask_i8_m128i(lane, splat(b'"'));
    let is_backslash = cmp_eq_mask_i8_m128i(lane, splat(b'\\'));
    move_mask_i8_m128i(is_control | is_quote | is_backslash).cast_unsigned()
}
