//! Text in blocks of 64 bytes with a bit for each byte, for code that skips over much text.

/// Size of a block in bytes.
pub const BLOCK_BYTES: usize = 64;

/// Returns the bytes of `block` that `is` selects as bits. The first byte is the lowest bit.
///
/// Inlined, so that the compiler compares 16 bytes at once.
#[inline(always)]
pub fn mask(block: &[u8; BLOCK_BYTES], is: impl Fn(u8) -> bool) -> u64 {
    let mut selected = [0u8; BLOCK_BYTES];
    for (selected, byte) in selected.iter_mut().zip(block) {
        *selected = if is(*byte) { 0xff } else { 0 };
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
        let mut quotes = mask(block, |byte| byte == b'"');
        let has_escapes = block.iter().fold(false, |has, byte| has | (*byte == b'\\'));
        if has_escapes || self.is_escaped {
            quotes &= !self.escaped(mask(block, |byte| byte == b'\\'));
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
