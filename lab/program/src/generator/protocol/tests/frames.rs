use stentor_wire::ws::{Opcode, encode};

use crate::generator::protocol::frames::{FrameReader, Piece, Violation};

/// (opcode of a control frame or 0, payload)
type Seen = (u8, Vec<u8>);

fn read(pieces: &[&[u8]]) -> (Vec<Seen>, Result<(), Violation>) {
    let mut reader = FrameReader::default();
    let mut seen = Vec::new();
    let mut message = Vec::new();
    for piece in pieces {
        let fed = reader.feed::<Violation>(piece, |piece| {
            match piece {
                Piece::Control { opcode, payload } => seen.push((opcode, payload.to_vec())),
                Piece::Data { bytes, ends, .. } => {
                    message.extend_from_slice(bytes);
                    if ends {
                        seen.push((0, std::mem::take(&mut message)));
                    }
                }
            }
            Ok(())
        });
        if fed.is_err() {
            return (seen, fed);
        }
    }
    assert_eq!(message, b"", "a message that hasn't ended");
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

pub(super) fn frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, opcode, payload, false, None);
    out
}

#[test]
fn cuts_frames_of_every_length_class() {
    let mut bytes = Vec::new();
    let mut expect = Vec::new();
    for length in [0, 1, 125, 126, 127, 300, 0] {
        let payload = vec![length as u8; length];
        bytes.extend(frame(Opcode::Text, &payload));
        expect.push((0, payload));
    }
    check(&bytes, &expect, Ok(()));
}

#[test]
fn cuts_long_frames() {
    let payload: Vec<u8> = (0..70_000).map(|at| at as u8).collect();
    let bytes = frame(Opcode::Binary, &payload);
    for piece in [1, 1000, 65_536, 80_000] {
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        assert_eq!(read(&pieces), (vec![(0, payload.clone())], Ok(())), "pieces of {piece}");
    }
}

#[test]
fn keeps_control_frames_whole() {
    let mut bytes = frame(Opcode::Ping, &[7; 125]);
    bytes.extend(frame(Opcode::Pong, b""));
    bytes.extend(frame(Opcode::Text, b"a"));
    bytes.extend(frame(Opcode::Close, &[3, 232]));
    check(&bytes, &[(9, vec![7; 125]), (10, vec![]), (0, vec![b'a']), (8, vec![3, 232])], Ok(()));
}

#[test]
fn names_violations_of_the_protocol() {
    let mut masked = Vec::new();
    encode(&mut masked, Opcode::Text, b"x", false, Some([1, 2, 3, 4]));
    check(&masked, &[], Err(Violation::Masked));
    check(&[0xc1, 0], &[], Err(Violation::ReservedBit));
    check(&[0x01, 0], &[], Err(Violation::Fragment));
    check(&[0x80, 0], &[], Err(Violation::Fragment));
    check(&[0x83, 0], &[], Err(Violation::UnknownOpcode));
    check(&[0x89, 126, 0, 126], &[], Err(Violation::LongControl));
}
