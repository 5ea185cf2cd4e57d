use stentor_wire::ws::{Opcode, encode};

use super::*;

/// (opcode, payload bytes, start, clean)
type Seen = (u8, u64, Vec<u8>, bool);

fn read(pieces: &[&[u8]]) -> (Vec<Seen>, Result<(), Violation>) {
    let mut reader = FrameReader::default();
    let mut seen = Vec::new();
    for piece in pieces {
        let fed = reader.feed(piece, |frame| {
            seen.push((frame.opcode, frame.payload_bytes, frame.start.to_vec(), frame.clean));
        });
        if fed.is_err() {
            return (seen, fed);
        }
    }
    (seen, Ok(()))
}

/// Reads `bytes` whole, cut at every place, and byte by byte.
fn check(bytes: &[u8], expect: &[Seen], result: Result<(), Violation>) {
    assert_eq!(read(&[bytes]), (expect.to_vec(), result), "whole");
    for cut in 0..bytes.len() {
        assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), (expect.to_vec(), result), "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single), (expect.to_vec(), result), "byte by byte");
}

fn frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, opcode, payload, false, None);
    out
}

#[test]
fn reads_frames_of_every_length_class() {
    let mut bytes = Vec::new();
    let mut expect = Vec::new();
    for length in [1, 35, 36, 37, 125, 126, 127, 300] {
        let payload = vec![b'x'; length];
        bytes.extend(frame(Opcode::Text, &payload));
        expect.push((1, length as u64, payload[..length.min(HEAD_BYTES)].to_vec(), true));
    }
    check(&bytes, &expect, Ok(()));
}

#[test]
fn reads_long_frames_and_sees_a_changed_byte() {
    let mut payload = vec![b'x'; 70_000];
    let intact = frame(Opcode::Binary, &payload);
    payload[69_999] = b'y';
    let changed = frame(Opcode::Binary, &payload);
    let start = vec![b'x'; HEAD_BYTES];
    for (bytes, clean) in [(intact, true), (changed, false)] {
        for piece in [1, 1000, 65_536, 80_000] {
            let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
            assert_eq!(read(&pieces), (vec![(2, 70_000, start.clone(), clean)], Ok(())), "pieces of {piece}");
        }
    }
}

#[test]
fn leaves_the_quotes_of_a_json_string_out() {
    let string = |padding: &[u8], end: &[u8]| [b"\"", &[b'7'; HEAD_BYTES][..], padding, end].concat();
    let mut bytes = Vec::new();
    let mut expect = Vec::new();
    for (payload, clean) in [
        (string(b"xxxxx", b"\""), true),
        (string(b"", b"\""), true),
        (string(b"xxxyx", b"\""), false),
        (string(b"xxx", b"x"), false),
        (string(b"xx\"", b"\""), false),
    ] {
        bytes.extend(frame(Opcode::Text, &payload));
        expect.push((1, payload.len() as u64, vec![b'7'; HEAD_BYTES], clean));
    }
    bytes.extend(frame(Opcode::Text, b"\""));
    expect.push((1, 1, vec![], true));
    bytes.extend(frame(Opcode::Text, b"xxx"));
    expect.push((1, 3, b"xxx".to_vec(), true));
    bytes.extend(frame(Opcode::Ping, b"\"ping"));
    expect.push((9, 5, b"\"ping".to_vec(), true));
    check(&bytes, &expect, Ok(()));
}

#[test]
fn keeps_control_frames_whole() {
    let mut bytes = frame(Opcode::Ping, &[7; 125]);
    bytes.extend(frame(Opcode::Close, &[3, 232]));
    check(&bytes, &[(9, 125, vec![7; 125], true), (8, 2, vec![3, 232], true)], Ok(()));
}

#[test]
fn reports_frames_without_payload() {
    let mut bytes = frame(Opcode::Pong, b"");
    bytes.extend(frame(Opcode::Text, b""));
    bytes.extend(frame(Opcode::Text, b"a"));
    check(&bytes, &[(10, 0, vec![], true), (1, 0, vec![], true), (1, 1, vec![b'a'], true)], Ok(()));
}

#[test]
fn names_what_a_server_does_wrong() {
    let mut masked = Vec::new();
    encode(&mut masked, Opcode::Text, b"x", false, Some([1, 2, 3, 4]));
    check(&masked, &[], Err(Violation::Masked));
    check(&[0xc1, 0], &[], Err(Violation::ReservedBit));
    check(&[0x01, 0], &[], Err(Violation::Fragment));
    check(&[0x80, 0], &[], Err(Violation::Fragment));
    check(&[0x83, 0], &[], Err(Violation::UnknownOpcode));
    check(&[0x89, 126, 0, 126], &[], Err(Violation::LongControl));
}
