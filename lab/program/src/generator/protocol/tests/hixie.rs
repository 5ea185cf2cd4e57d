use crate::generator::protocol::Fault;
use crate::generator::protocol::frames::Piece;
use crate::generator::protocol::hixie::{HixieReader, write_text};

/// Texts. `None` stands for a closing frame.
fn read(pieces: &[&[u8]]) -> (Vec<Option<Vec<u8>>>, Result<(), Fault>) {
    let mut reader = HixieReader::default();
    let (mut seen, mut text) = (Vec::new(), Vec::new());
    for piece in pieces {
        let fed = reader.feed(piece, |piece| {
            match piece {
                Piece::Control { opcode, .. } => {
                    assert_eq!(opcode, 8);
                    seen.push(None);
                }
                Piece::Data { bytes, ends, compressed } => {
                    assert!(!compressed, "hixie-76 has no extensions");
                    text.extend_from_slice(bytes);
                    if ends {
                        seen.push(Some(std::mem::take(&mut text)));
                    }
                }
            }
            Ok(())
        });
        if fed.is_err() {
            return (seen, fed);
        }
    }
    assert_eq!(text, b"");
    (seen, Ok(()))
}

#[test]
fn frames_are_cut_wherever_they_come() {
    let texts = ["", "a", "", "five:::", "wörld"];
    let mut bytes = Vec::new();
    for text in texts {
        write_text(&mut bytes, text.as_bytes());
    }
    assert!(bytes.starts_with(b"\0\xff\0a\xff"));
    bytes.extend_from_slice(b"\xff\0");
    let expect: Vec<_> = texts.iter().map(|text| Some(text.as_bytes().to_vec())).chain([None]).collect();
    for cut in 0..=bytes.len() {
        let (seen, fed) = read(&[&bytes[..cut], &bytes[cut..]]);
        assert!(fed.is_ok() && seen == expect, "{cut}: {seen:?}");
    }
    assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()).0, expect);
    for wrong in [&b"\x80\x01a"[..], b"a", b"\xff\x01", b"\0a\xff\x01"] {
        assert!(read(&[wrong]).1.is_err(), "{wrong:?}");
    }
}
