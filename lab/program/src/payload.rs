//! Content of a measured message: its number, its time and a checksum at fixed positions, so that a receiver audits and times it
//! without parsing.
//!
//! Layout, in ASCII so that no protocol escapes it:
//!
//! | from | digits | what |
//! |---|---|---|
//! | 0 | 16 | the number |
//! | 16 | 20 | CLOCK_MONOTONIC nanoseconds, the *intended* time of sending |
//! | 36 | 8, hexadecimal, lower case | CRC-32 (of IEEE 802.3, as zlib has it) of all other bytes of the payload |
//! | 44 | | `x`, up to the length wanted |
//!
//! A shorter payload has the number alone, and its sender knows the time. A [`crate::document`] has such a head, whose
//! checksum covers only the head, because the rest of the content is known and compared.
//!
//! Cost of the audit, on the machine of docs/benchmarks.md: 21 ns for a message of 64 bytes, 74 ns for 1,000, 190 ns for 5,000, 3.7
//! µs for 165,000. That is about the cost of comparing the padding, which the checksum replaces for messages that arrive in one
//! piece.

/// Number of bytes before the padding.
pub(crate) const HEAD_BYTES: usize = 44;

/// Length of the head without the checksum.
pub(crate) const TIMED_BYTES: usize = 36;

/// Length of the number, and of the shortest payload.
pub(crate) const SEQUENCE_DIGITS: usize = 16;

/// The byte of the padding.
pub(crate) const PADDING: u8 = b'x';

/// The first bytes of a payload, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of the message in its series, from 0.
    pub(crate) sequence: u64,
    /// The intended time of sending, in nanoseconds of CLOCK_MONOTONIC. 0 in a payload without a time.
    pub(crate) intended_ns: u64,
}

impl Head {
    /// Writes the head over the first bytes of `payload`, with the checksum of the whole payload. If the payload is shorter than
    /// [`HEAD_BYTES`], only the number is written.
    ///
    /// # Panics
    /// If `payload` is shorter than [`SEQUENCE_DIGITS`].
    pub(crate) fn write(&self, payload: &mut [u8]) {
        write_digits(&mut payload[..SEQUENCE_DIGITS], self.sequence);
        if payload.len() >= HEAD_BYTES {
            write_digits(&mut payload[SEQUENCE_DIGITS..TIMED_BYTES], self.intended_ns);
            let checksum = append(append(0, &payload[..TIMED_BYTES]), &payload[HEAD_BYTES..]);
            payload[TIMED_BYTES..HEAD_BYTES].copy_from_slice(&hexadecimal(checksum));
        }
    }

    /// Reads a head without verifying the checksum. A payload of [`SEQUENCE_DIGITS`] bytes has no time. Returns `None`
    /// for another layout.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if !matches!(bytes.len(), SEQUENCE_DIGITS | HEAD_BYTES) {
            return None;
        }
        let (sequence, rest) = bytes.split_at(SEQUENCE_DIGITS);
        let intended = &rest[..rest.len().min(TIMED_BYTES - SEQUENCE_DIGITS)];
        Some(Self { sequence: read_digits(sequence)?, intended_ns: read_digits(intended)? })
    }
}

/// A payload of `bytes` bytes (at least [`HEAD_BYTES`]) without its head.
pub(crate) fn blank(bytes: usize) -> Vec<u8> {
    vec![PADDING; bytes.max(HEAD_BYTES)]
}

/// Returns `true` if a payload has a correct checksum. Returns `false` if it is too short for one.
#[inline]
pub(crate) fn is_intact(payload: &[u8]) -> bool {
    let Some((head, rest)) = payload.split_at_checked(HEAD_BYTES) else { return false };
    has_checksum(head, append(append(0, &head[..TIMED_BYTES]), rest))
}

/// Returns `true` if `head`, of [`HEAD_BYTES`] bytes, has this checksum.
pub(crate) fn has_checksum(head: &[u8], checksum: u32) -> bool {
    head.get(TIMED_BYTES..) == Some(&hexadecimal(checksum)[..])
}

/// Extends a checksum by `bytes`. The checksum of no bytes is 0.
#[inline]
pub(crate) fn append(checksum: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(checksum);
    hasher.update(bytes);
    hasher.finalize()
}

fn hexadecimal(number: u32) -> [u8; HEAD_BYTES - TIMED_BYTES] {
    std::array::from_fn(|nth| b"0123456789abcdef"[(number >> (28 - 4 * nth)) as usize & 15])
}

/// Returns `true` if `bytes` is only padding. Written so that it vectorises, because it runs over every received byte.
#[inline]
pub(crate) fn is_padding(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |difference, byte| difference | (byte ^ PADDING)) == 0
}

fn write_digits(to: &mut [u8], mut number: u64) {
    for digit in to.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn read_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(value))
    })
}

#[cfg(test)]
mod tests;
