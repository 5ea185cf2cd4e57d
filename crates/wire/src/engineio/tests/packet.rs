use super::*;
use crate::ws::Kind;
use Error::{BadBase64, BadUtf8, BinaryNotMessage, EmptyPacket, UnknownPacketKind};
use Version::{V3, V4};

fn decode(version: Version, kind: Kind, data: &[u8]) -> Result<Owned, Error> {
    let message = kind.message(data).ok_or(Error::BadUtf8)?;
    decode_message(version, message, &mut b"old".to_vec()).map(Owned::from)
}

fn check(version: Version, kind: Kind, data: impl AsRef<[u8]>, expect: Result<Owned, Error>) {
    assert_eq!(decode(version, kind, data.as_ref()), expect, "{version:?} {:?}", data.as_ref());
}

#[test]
fn messages_are_decoded() {
    for version in [V3, V4] {
        for (kind, digit) in KINDS.iter().zip('0'..) {
            check(version, Kind::Text, format!("{digit}"), Ok(Owned::Text(*kind, String::new())));
            check(version, Kind::Text, format!("{digit}probe"), Ok(Owned::Text(*kind, "probe".into())));
            assert_eq!(kind.digit(), digit as u8);
        }
        check(version, Kind::Text, "4é😀", Ok(message("é😀")));
        check(version, Kind::Text, "4b4", Ok(message("b4")));
        check(version, Kind::Text, "", Err(EmptyPacket));
        for unknown in ["7", "9", "a", "/", ":", " 4", "é", "B"] {
            check(version, Kind::Text, unknown, Err(UnknownPacketKind));
        }
        check(version, Kind::Text, b"4\xff", Err(BadUtf8));
    }
    // Test vectors of the two protocol documents.
    check(V4, Kind::Binary, [1, 2, 3, 4], Ok(binary(&[1, 2, 3, 4])));
    check(V3, Kind::Binary, [4, 0, 1, 2, 3, 4, 5], Ok(binary(&[0, 1, 2, 3, 4, 5])));
    check(V4, Kind::Text, "bAQIDBA==", Ok(binary(&[1, 2, 3, 4])));
    check(V3, Kind::Text, "b4AQIDBA==", Ok(binary(&[1, 2, 3, 4])));
    // Empty data.
    check(V4, Kind::Binary, [], Ok(binary(&[])));
    check(V3, Kind::Binary, [4], Ok(binary(&[])));
    check(V4, Kind::Text, "b", Ok(binary(&[])));
    check(V3, Kind::Text, "b4", Ok(binary(&[])));
    // Missing padding, or unused bits that are set.
    check(V4, Kind::Text, "bAQ", Ok(binary(&[1])));
    check(V4, Kind::Text, "bAR==", Ok(binary(&[1])));
    // With line breaks, as in MIME (RFC 2045 section 6.8), and other white space.
    for text in ["bAQIDBA==\n", "bAQID\r\nBA==\r\n", "bAQIDBA\n", "b AQ\tID BA= =", "b\nAQIDBA"] {
        check(V4, Kind::Text, text, Ok(binary(&[1, 2, 3, 4])));
    }
    check(V3, Kind::Text, "b4AQID\nBA==\n", Ok(binary(&[1, 2, 3, 4])));
    check(V4, Kind::Text, "b\n", Ok(binary(&[])));
    for bad in ["bA", "bA\n", "b!!", "bAQIDBA==x", "b-_8=", "bé"] {
        check(V4, Kind::Text, bad, Err(BadBase64));
    }
    check(V3, Kind::Binary, [], Err(EmptyPacket));
    check(V3, Kind::Text, "b", Err(EmptyPacket));
    for (first, digit, error) in [
        (0, '0', BinaryNotMessage),
        (6, '6', BinaryNotMessage),
        (7, '7', UnknownPacketKind),
        (b'4', 'A', UnknownPacketKind),
        (212, '/', UnknownPacketKind),
    ] {
        check(V3, Kind::Binary, [first, 1], Err(error));
        check(V3, Kind::Text, format!("b{digit}AQ=="), Err(error));
    }
}

/// Decoded text borrows from the message.
#[test]
fn text_is_borrowed() {
    let (data, mut scratch) = (b"4hello".to_vec(), Vec::new());
    let packet = decode_message(V4, Kind::Text.message(&data).unwrap(), &mut scratch).unwrap();
    let Data::Text(text) = packet.data else { panic!() };
    assert_eq!(text.as_ptr(), data[1..].as_ptr());
    assert_eq!(scratch.capacity(), 0);
}

proptest! {
    #[test]
    fn encoded_packets_are_decoded(packet in any_packet(), version in any_version(), base64 in any::<bool>()) {
        let mut out = Vec::new();
        let kind = encode_message(&mut out, version, &packet.packet(), base64);
        prop_assert_eq!(decode(version, kind, &out), Ok(packet.clone()));
        let data_kind = if matches!(packet, Owned::Binary(_)) { Kind::Binary } else { Kind::Text };
        prop_assert_eq!(kind, if base64 { Kind::Text } else { data_kind });
        if kind == data_kind {
            // The header alone, for data that is stored elsewhere.
            let data = match &packet {
                Owned::Text(_, text) => text.as_bytes(),
                Owned::Binary(data) => data,
            };
            prop_assert_eq!([message_header(version, packet.packet().kind, kind), data].concat(), out);
        }
    }

    #[test]
    fn arbitrary_input_causes_no_panic(data in any::<Vec<u8>>(), version in any_version()) {
        let _ = decode(version, Kind::Binary, &data);
        let _ = decode(version, Kind::Text, &data);
    }
}
