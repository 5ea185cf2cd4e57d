use crate::generator::protocol::Fault;
use crate::generator::protocol::frames::Piece;
use crate::generator::protocol::hixie::{HixieReader, hide_number, prove, write_text};

/// The number that a server reads in a key, as the draft has it (section 5.2, steps 4 to 7).
fn read_key(key: &str) -> Option<u32> {
    let digits: String = key.chars().filter(char::is_ascii_digit).collect();
    let spaces = key.matches(' ').count() as u64;
    let number = digits.parse::<u64>().ok()?;
    (spaces > 0 && number.is_multiple_of(spaces)).then_some((number / spaces) as u32)
}

/// What a server that has read this request, and `body` behind it, proves itself by.
pub(super) fn proof(request: &[u8]) -> [u8; 16] {
    let (head, body) = request.split_at(request.len() - 8);
    let head = str::from_utf8(head).unwrap();
    let key = |name| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        read_key(line).unwrap()
    };
    prove(key("Sec-WebSocket-Key1: "), key("Sec-WebSocket-Key2: "), body.try_into().unwrap())
}

#[test]
fn the_proofs_are_those_of_the_draft() {
    let check = |first: &str, second: &str, body: &[u8; 8], expect: &[u8; 16]| {
        let numbers = (read_key(first).unwrap(), read_key(second).unwrap());
        assert_eq!(prove(numbers.0, numbers.1, *body), *expect);
    };
    // Section 1.2, and section 5.2 in its example.
    check("4 @1  46546xW%0l 1 5", "12998 5 Y3 1  .P00", b"^n:ds[4U", b"8jKS'y:G*Co,Wxa-");
    let (first, second) = ("18x 6]8vM;54 *(5:  {   U1]8  z [  8", "1_ tx7X d  <  nw  334J702) 7]o}` 0");
    check(first, second, b"Tm[K T2u", b"fQJ,fN/4F4!~K~MH");
}

#[test]
fn a_key_hides_a_number() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..2000 {
        let (key, number) = hide_number(&mut random);
        assert_eq!(read_key(&key), Some(number), "{key:?}");
        let spaces = key.matches(' ').count();
        assert!((1..=12).contains(&spaces) && key.trim() == key, "{key:?}");
        let others = key.chars().filter(|character| *character != ' ' && !character.is_ascii_digit());
        assert!(
            (1..=12).contains(&others.clone().count()) && { others }.all(|other| other.is_ascii_graphic())
        );
    }
}

/// Texts; `None` for a closing frame.
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
                Piece::Compressed { .. } => unreachable!("hixie-76 has no extensions"),
                Piece::Data { bytes, ends } => {
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
