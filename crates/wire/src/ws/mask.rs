//! Masking (RFC 6455 section 5.3). It is no encryption, and it is its own inverse.

/// XORs `data` with `mask`, whose first byte applies to the first byte of `data`. For a frame in pieces,
/// rotate the mask by the bytes already processed: `mask.rotate_left(done % 4)`.
pub fn apply(data: &mut [u8], mask: [u8; 4]) {
    // Processes whole words first, which the compiler turns into vector instructions. They don't require
    // alignment.
    let word = u32::from_ne_bytes(mask);
    let wide = u64::from(word) << 32 | u64::from(word);
    let (words, tail) = data.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ wide).to_ne_bytes();
    }
    let (words, tail) = tail.as_chunks_mut::<4>();
    for bytes in words {
        *bytes = (u32::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(mask) {
        *byte ^= key;
    }
}
