use super::*;

#[test]
fn is_read_as_written() {
    for (sequence, intended_ns) in [(0, 0), (7, 1_234_567_890), (9_999_999_999_999_999, u64::MAX)] {
        let head = Head { sequence, intended_ns };
        for bytes in [0, HEAD_BYTES, HEAD_BYTES + 1, 1000] {
            let mut payload = blank(bytes);
            head.write(&mut payload);
            assert_eq!(Head::read(&payload[..HEAD_BYTES]), Some(head));
            assert!(is_padding(&payload[HEAD_BYTES..]));
            assert!(is_intact(&payload));
        }
        let mut payload = vec![PADDING; 17];
        head.write(&mut payload);
        assert_eq!(Head::read(&payload[..SEQUENCE_DIGITS]), Some(Head { sequence, intended_ns: 0 }));
        assert!(is_padding(&payload[SEQUENCE_DIGITS..]));
        assert!(!is_intact(&payload));
    }
}

/// The expected checksum was computed by Python: `zlib.crc32(b"0000000000000007" b"00000000001234567890"
/// b"xxxx")`.
#[test]
fn the_checksum_is_that_of_zlib() {
    let mut payload = blank(HEAD_BYTES + 4);
    Head { sequence: 7, intended_ns: 1_234_567_890 }.write(&mut payload);
    assert_eq!(payload, b"00000000000000070000000000123456789089e3b614xxxx");
    assert_eq!(append(0, b"123456789"), 0xcbf4_3926);
    assert_eq!(append(append(0, b"1234"), b"56789"), 0xcbf4_3926);
}

#[test]
fn whatever_bit_is_changed_the_checksum_is_wrong() {
    let mut payload = blank(100);
    Head { sequence: 7, intended_ns: 1_234_567_890 }.write(&mut payload);
    for bit in 0..8 * payload.len() {
        payload[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_intact(&payload), "bit {bit}");
        payload[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(is_intact(&payload) && !is_intact(&payload[..99]) && !is_intact(&payload[..HEAD_BYTES - 1]));
}

#[test]
fn refuses_invalid_heads() {
    let check = |text: &[u8; HEAD_BYTES]| assert_eq!(Head::read(text), None);
    check(b"00000000000000010000000000000000000x01234567");
    check(b"-000000000000001000000000000000000000123456x");
    check(b"00000000000000019999999999999999999901234567"); // beyond 64 bits
    assert_eq!(Head::read(b"00000000000000001"), None);
    assert!(!is_padding(b"xxxxxxxxxxxxxxxxxxxxxxxyxxxxxxxx"));
    assert!(is_padding(b""));
}
