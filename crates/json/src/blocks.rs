//! Text in blocks of 64 bytes with a bit for each byte, for code that skips over much text.

/// Size of a block in bytes.
pub const BLOCK_BYTES: usize = 64;

/// Returns the bytes of `block` that are among `bytes`, as bits. The first byte is the lowest bit.
#[inline(always)]
pub fn mask<const N: usize>(block: &[u8; BLOCK_BYTES], bytes: [u8; N]) -> u64 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        sse2_mask(block, bytes)
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    {
        portable_mask(block, bytes)
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline(always)]
fn sse2_mask<const N: usize>(block: &[u8; BLOCK_BYTES], bytes: [u8; N]) -> u64 {
    use safe_arch::{cmp_eq_mask_i8_m128i, m128i, move_mask_i8_m128i, set_splat_i8_m128i, zeroed_m128i};
    let (lanes, _) = block.as_chunks::<16>();
    lanes.iter().rev().fold(0, |mask, lane| {
        let lane = m128i::from(*lane);
        let equal = |byte: u8| cmp_eq_mask_i8_m128i(lane, set_splat_i8_m128i(byte.cast_signed()));
        let found = bytes.iter().fold(zeroed_m128i(), |found, byte| found | equal(*byte));
        // The result has a bit for each of the lane's 16 bytes.
        mask << 16 | u64::from(move_mask_i8_m128i(found).cast_unsigned())
    })
}

/// Inlined, so that the compiler compares several bytes at once.
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
#[inline(always)]
fn portable_mask<const N: usize>(block: &[u8; BLOCK_BYTES], bytes: [u8; N]) -> u64 {
    let mut selected = [0u8; BLOCK_BYTES];
    for (selected, byte) in selected.iter_mut().zip(block) {
        let is_found = bytes.iter().fold(false, |is_found, wanted| is_found | (byte == wanted));
        *selected = if is_found { 0xff } else { 0 };
    }
    let (words, _) = selected.as_chunks::<8>();
    words.iter().rev().fold(0, |mask, word| {
        // Keeps one distinct bit per byte; the multiplication sums them in the highest byte.
        let bits = u64::from_le_bytes(*word) & 0x8040_2010_0804_0201;
        mask << 8 | bits.wrapping_mul(0x0101_0101_0101_0101) >> 56
    })
}

/// Follows strings through consecutive blocks of checked text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strings {
    /// All ones if the next block begins inside a string.
    carried: u64,
    /// `true` if an escape continues in the next block.
    is_escaped: bool,
}

impl Strings {
    /// Returns the bytes inside strings, with opening and without closing quotes.
    #[inline(always)]
    pub fn inside(&mut self, block: &[u8; BLOCK_BYTES]) -> u64 {
        let (mut quotes, backslashes) = (mask(block, [b'"']), mask(block, [b'\\']));
        if backslashes != 0 || self.is_escaped {
            quotes &= !self.escaped(backslashes);
        }
        let mut inside = quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << shift;
        }
        inside ^= self.carried;
        self.carried = if inside >> 63 == 1 { u64::MAX } else { 0 };
        inside
    }

    /// Returns the bytes after backslashes that aren't escaped themselves.
    #[cold]
    fn escaped(&mut self, mut backslashes: u64) -> u64 {
        let mut escaped = u64::from(self.is_escaped);
        self.is_escaped = false;
        while backslashes != 0 {
            let backslash = backslashes & backslashes.wrapping_neg();
            backslashes ^= backslash;
            if escaped & backslash == 0 {
                self.is_escaped = backslash >> 63 == 1;
                escaped |= backslash << 1;
            }
        }
        escaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masks_have_a_bit_for_each_byte(text in "[,{}\\[\\]\"a\u{7f}-\u{ff}]{64}") {
            let Some(block) = text.as_bytes().first_chunk() else { return Ok(()) };
            let is = |byte: u8| b"{}[],\x80".contains(&byte);
            let expect = block.iter().rev().fold(0, |mask, byte| mask << 1 | u64::from(is(*byte)));
            prop_assert_eq!(mask(block, *b"{}[],\x80"), expect);
            prop_assert_eq!(portable_mask(block, *b"{}[],\x80"), expect);
            prop_assert_eq!(mask(block, []), 0);
        }
    }
}
