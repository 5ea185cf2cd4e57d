//! What a measured message carries: its number and its time at a fixed place, so that a receiver audits and
//! times it without parsing anything.
//!
//! Layout, ASCII: 16 digits of sequence number, 20 digits of CLOCK_MONOTONIC nanoseconds (the *intended* time
//! of sending), then `x` up to the length wanted. A payload too short for that has the number alone, and whoever sent it
//! knows the time. The peers under `lab/peers` write the same.

/// Bytes before the padding.
pub const HEAD_BYTES: usize = 36;

/// Of these, the number's; and the shortest payload.
pub const SEQUENCE_DIGITS: usize = 16;

/// What the padding consists of.
pub const PADDING: u8 = b'x';

/// The first bytes of a payload, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the message in its series, from 0.
    pub sequence: u64,
    /// When it should have been sent, nanoseconds of CLOCK_MONOTONIC; 0 in a payload without.
    pub intended_ns: u64,
}

impl Head {
    /// Writes the head over the first bytes of `payload`; its number alone if that is shorter than [`HEAD_BYTES`].
    ///
    /// # Panics
    /// If `payload` is shorter than [`SEQUENCE_DIGITS`].
    pub fn write(&self, payload: &mut [u8]) {
        write_digits(&mut payload[..SEQUENCE_DIGITS], self.sequence);
        if payload.len() >= HEAD_BYTES {
            write_digits(&mut payload[SEQUENCE_DIGITS..HEAD_BYTES], self.intended_ns);
        }
    }

    /// Reads it back, one with or without a time; `None` where something else stands there.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if !matches!(bytes.len(), SEQUENCE_DIGITS | HEAD_BYTES) {
            return None;
        }
        let (sequence, intended) = bytes.split_at(SEQUENCE_DIGITS);
        Some(Self { sequence: read_digits(sequence)?, intended_ns: read_digits(intended)? })
    }
}

/// A payload of `bytes` bytes (at least [`HEAD_BYTES`]) whose head is still to be written.
pub fn blank(bytes: usize) -> Vec<u8> {
    vec![PADDING; bytes.max(HEAD_BYTES)]
}

/// The same with at least [`SEQUENCE_DIGITS`], for a load that knows the times itself.
pub fn blank_numbered(bytes: usize) -> Vec<u8> {
    vec![PADDING; bytes.max(SEQUENCE_DIGITS)]
}

/// Whether `bytes` is nothing but padding. Written so that it vectorises: it runs over every byte received.
#[inline]
pub fn is_padding(bytes: &[u8]) -> bool {
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
mod tests {
    use super::*;

    #[test]
    fn is_read_as_written() {
        for (sequence, intended_ns) in [(0, 0), (7, 1_234_567_890), (9_999_999_999_999_999, u64::MAX)] {
            let head = Head { sequence, intended_ns };
            let mut payload = blank(40);
            head.write(&mut payload);
            assert_eq!(Head::read(&payload[..HEAD_BYTES]), Some(head));
            assert!(is_padding(&payload[HEAD_BYTES..]));
            let mut payload = blank_numbered(17);
            head.write(&mut payload);
            assert_eq!(Head::read(&payload[..SEQUENCE_DIGITS]), Some(Head { sequence, intended_ns: 0 }));
            assert!(is_padding(&payload[SEQUENCE_DIGITS..]));
        }
    }

    #[test]
    fn refuses_what_is_no_head() {
        let check = |text: &[u8; HEAD_BYTES]| assert_eq!(Head::read(text), None);
        check(b"00000000000000010000000000000000000x");
        check(b"-0000000000000010000000000000000000x");
        check(b"000000000000000199999999999999999999"); // beyond 64 bits
        assert_eq!(Head::read(b"00000000000000001"), None);
        assert!(!is_padding(b"xxxxxxxxxxxxxxxxxxxxxxxyxxxxxxxx"));
        assert!(is_padding(b""));
    }
}
