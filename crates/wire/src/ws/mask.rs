//! Masking (RFC 6455 section 5.3). It hides nothing; it is its own inverse.

/// XORs `data` with `mask`, whose first byte belongs to the first byte of `data`. For a frame in pieces, turn the mask
/// by the bytes already done: `mask.rotate_left(done % 4)`.
pub fn apply(data: &mut [u8], mask: [u8; 4]) {
    // Whole words first, so that the compiler makes vector instructions of it; alignment does not matter to them.
    let word = u64::from(u32::from_ne_bytes(mask));
    let wide = word << 32 | word;
    let (words, tail) = data.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}
