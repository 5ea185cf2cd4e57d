use super::*;
use Error::{
    BadBase64, BadLength, BadUtf8, BinaryNotMessage, EmptyPacket, EmptyPayload, TooManyPackets, Truncated,
    UnknownPacketKind,
};
use PayloadFormat::{Counted, CountedTwice, Octets, Separated};

/// Decodes a body. Returns its packets, and the error that ends it.
fn decode(format: PayloadFormat, body: &[u8], packets_max: usize) -> (Vec<Owned>, Option<Error>) {
    let mut packets = Vec::new();
    let mut decoder = match PayloadDecoder::new(format, body, packets_max) {
        Ok(decoder) => decoder,
        Err(error) => return (packets, Some(error)),
    };
    let error = loop {
        match decoder.next_packet() {
            Ok(Some(packet)) => packets.push(packet.into()),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert_eq!(decoder.next_packet(), Ok(None));
    (packets, error)
}

fn check(format: PayloadFormat, body: impl AsRef<[u8]>, packets: &[Owned], error: Option<Error>) {
    let body = body.as_ref();
    assert_eq!(
        decode(format, body, 16),
        (packets.to_vec(), error),
        "{format:?} {:?}",
        body.escape_ascii().to_string()
    );
}

/// Checks both directions: decoding and encoding.
fn check_both(format: PayloadFormat, body: impl AsRef<[u8]>, packets: &[Owned]) {
    check(format, body.as_ref(), packets, None);
    assert_eq!(encode(format, packets), body.as_ref());
}

fn encode(format: PayloadFormat, packets: &[Owned]) -> Vec<u8> {
    let mut out = b"head".to_vec();
    let mut encoder = PayloadEncoder::new(format, &mut out);
    for packet in packets {
        let expect = encoder.len_with(&packet.packet());
        encoder.push(&packet.packet());
        assert_eq!(encoder.len(), expect, "{packet:?}");
    }
    assert_eq!(encoder.is_empty(), packets.is_empty());
    out.split_off(4)
}

fn control(kind: PacketKind) -> Owned {
    Owned::Text(kind, String::new())
}

#[test]
fn separated_payloads_are_decoded() {
    // Example of the protocol document.
    check_both(
        Separated,
        "4hello\x1e2\x1e4world",
        &[message("hello"), control(PacketKind::Ping), message("world")],
    );
    check_both(Separated, "4hello\x1ebAQIDBA==", &[message("hello"), binary(&[1, 2, 3, 4])]);
    check_both(Separated, "6\x1e1", &[control(PacketKind::Noop), control(PacketKind::Close)]);
    check_both(Separated, "4\x1eb\x1e4é€😀", &[message(""), binary(&[]), message("é€😀")]);
    check(Separated, "bAQ\x1e4", &[binary(&[1]), message("")], None);
    check(Separated, "", &[], Some(EmptyPayload));
    check(Separated, "\x1e", &[], Some(EmptyPacket));
    check(Separated, "\x1e4a", &[], Some(EmptyPacket));
    check(Separated, "4a\x1e", &[message("a")], Some(EmptyPacket));
    check(Separated, "4a\x1e\x1e4b", &[message("a")], Some(EmptyPacket));
    check(Separated, "4a\x1eabc\x1e4b", &[message("a")], Some(UnknownPacketKind));
    check(Separated, "6:4hello", &[Owned::Text(PacketKind::Noop, ":4hello".into())], None);
    check(Separated, "4a\x1eb!", &[message("a")], Some(BadBase64));
    check(Separated, b"4a\x1e4\xff", &[], Some(BadUtf8));
}

#[test]
fn counted_payloads_are_decoded() {
    // Examples of the protocol documents and of the reference's test suite.
    check_both(Counted, "4:4hey", &[message("hey")]);
    check_both(Counted, "6:4hello6:4world", &[message("hello"), message("world")]);
    check_both(Counted, "6:4hello2:4€", &[message("hello"), message("€")]);
    check_both(Counted, "2:4€10:b4AQIDBA==", &[message("€"), binary(&[1, 2, 3, 4])]);
    check_both(Counted, "1:1", &[control(PacketKind::Close)]);
    check_both(Counted, "3:4😀1:26:b4AQI=", &[message("😀"), control(PacketKind::Ping), binary(&[1, 2])]);
    check_both(Counted, "5:4é😀x2:b4", &[message("é😀x"), binary(&[])]);
    // The reference's empty response.
    check(Counted, "0:", &[], None);
    check(Counted, "4:4hey0:1:2", &[message("hey"), control(PacketKind::Ping)], None);
    check(Counted, "0001:1", &[control(PacketKind::Close)], None);
    check(Counted, "", &[], Some(EmptyPayload));
    for bad in [
        "abc",
        ":4",
        "1",
        "4hello",
        " 1:1",
        "+1:1",
        "-1:",
        "1.0:1",
        "1e0:1",
        "1 :1",
        "1;1",
        "0000000000001:1",
        "18446744073709551615:4",
        "99999999999999999999999:4",
    ] {
        check(Counted, bad, &[], Some(BadLength));
    }
    check(Counted, "1:1x", &[control(PacketKind::Close)], Some(BadLength));
    check(Counted, "1:1:", &[control(PacketKind::Close)], Some(BadLength));
    check(Counted, "4:4hey4", &[message("hey")], Some(BadLength));
    for bad in ["2:4", "1:", "3:4é", "4:4😀", "4294967296:4", "999999999999:4", "2:4😀", "1:😀"] {
        check(Counted, bad, &[], Some(Truncated));
    }
    check(Counted, "2:😀", &[], Some(UnknownPacketKind));
    check(Counted, "1:44:7abc", &[message("")], Some(UnknownPacketKind));
    check(Counted, "1:b", &[], Some(EmptyPacket));
    check(Counted, "4:b2AA", &[], Some(BinaryNotMessage));
    check(Counted, "4:b9AA", &[], Some(UnknownPacketKind));
    check(Counted, "4:b4A!", &[], Some(BadBase64));
    check(Counted, b"2:4\xff", &[], Some(BadUtf8));
}

#[test]
fn payloads_of_client_1_are_decoded() {
    // Written by engine.io-client 1.8.4.
    check_both(CountedTwice, "4:4hey", &[message("hey")]);
    check_both(CountedTwice, "4:4\u{e2}\u{82}\u{ac}2:4x", &[message("€"), message("x")]);
    check_both(CountedTwice, "5:4\u{f0}\u{9f}\u{98}\u{80}6:b4AQI=", &[message("😀"), binary(&[1, 2])]);
    // Written by later clients.
    check(CountedTwice, "2:4ü2:4€", &[message("ü"), message("€")], None);
    assert_eq!(
        [Counted, Separated, Octets].map(PayloadFormat::of_client_1),
        [CountedTwice, Separated, Octets]
    );
}

#[test]
fn binary_payloads_are_decoded() {
    // Examples of the test suite and of the protocol document. The document's example omits the kind of the
    // binary packet, which contradicts its own text.
    check_both(
        Octets,
        [0, 4, 255, 0x34, 0xe2, 0x82, 0xac, 1, 5, 255, 4, 1, 2, 3, 4],
        &[message("€"), binary(&[1, 2, 3, 4])],
    );
    check_both(
        Octets,
        [0, 6, 255, 52, 104, 101, 108, 108, 111, 1, 5, 255, 4, 1, 2, 3, 4],
        &[message("hello"), binary(&[1, 2, 3, 4])],
    );
    check_both(Octets, [&[1, 1, 3, 255, 4][..], &[9; 12]].concat(), &[binary(&[9; 12])]);
    check_both(
        Octets,
        [0, 1, 255, 52, 1, 1, 255, 4, 0, 1, 255, 54],
        &[message(""), binary(&[]), control(PacketKind::Noop)],
    );
    check_both(Octets, b"\0\x05\xff4\xf0\x9f\x98\x80", &[message("😀")]);
    check(Octets, b"\0\x01\x00\xffb4AQIDBA==", &[binary(&[1, 2, 3, 4])], None);
    check(Octets, [], &[], Some(EmptyPayload));
    for bad in [
        &[0u8][..],
        &[1],
        &[0, 255],
        &[0, 1],
        &[0, 1, 52],
        &[0, 10, 255, 52],
        &[2, 1, 255, 4],
        &[0x30, 0x31, 255, 52],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 255, 52],
        b"6:4hello",
    ] {
        check(Octets, bad, &[], Some(BadLength));
    }
    check(Octets, [0, 1, 255, 52, 1], &[message("")], Some(BadLength));
    let nines = [9; 12];
    for bad in [
        &[0u8, 1, 255][..],
        &[1, 2, 255, 4],
        &[&[0], &nines[..], &[255, 52]].concat(),
        &[&[1], &nines[..], &[255, 4]].concat(),
    ] {
        check(Octets, bad, &[], Some(Truncated));
    }
    check(Octets, [0, 0, 255], &[], Some(EmptyPacket));
    check(Octets, [1, 0, 255], &[], Some(EmptyPacket));
    check(Octets, [0, 1, 255, 55], &[], Some(UnknownPacketKind));
    check(Octets, [1, 1, 255, 52], &[], Some(UnknownPacketKind));
    check(Octets, [1, 1, 255, 2], &[], Some(BinaryNotMessage));
    check(Octets, [0, 2, 255, 52, 255], &[], Some(BadUtf8));
}

#[test]
fn packets_are_counted() {
    for (format, body) in
        [(Separated, "4\x1e4\x1e4"), (Counted, "1:41:41:4"), (Counted, "1:40:1:4"), (Octets, "")]
    {
        let body = if format == Octets { [0, 1, 255, 52].repeat(3) } else { body.as_bytes().to_vec() };
        assert_eq!(decode(format, &body, 3).1, None);
        let (packets, error) = decode(format, &body, 2);
        assert_eq!(error, Some(TooManyPackets));
        assert!(packets.len() <= 2);
        assert_eq!(decode(format, &body, 0), (vec![], Some(TooManyPackets)));
    }
    // Very many almost empty packets.
    for (format, packet) in
        [(Separated, &b"6\x1e"[..]), (Counted, b"1:6"), (Counted, b"0:"), (Octets, b"\0\x01\xff6")]
    {
        let (packets, error) = decode(format, &packet.repeat(1_000_000), 1000);
        assert_eq!(error, Some(TooManyPackets), "{format:?}");
        assert!(packets.len() <= 1000 && packets.iter().all(|packet| *packet == control(PacketKind::Noop)));
    }
    assert_eq!(TooManyPackets.status(), 413);
}

#[test]
fn the_format_is_detected() {
    let format = PayloadFormat::of_request;
    assert_eq!(format(Version::V4, false), Some(Separated));
    // CVE-2026-59725: a binary body is refused at once in protocol 4.
    assert_eq!(format(Version::V4, true), None);
    assert_eq!(format(Version::V3, false), Some(Counted));
    assert_eq!(format(Version::V3, true), Some(Octets));
    for (text_only, has_binary, format) in
        [(false, false, Counted), (false, true, Octets), (true, false, Counted), (true, true, Counted)]
    {
        assert_eq!(PayloadFormat::of_answer(Version::V3, text_only, has_binary), format);
        assert_eq!(PayloadFormat::of_answer(Version::V4, text_only, has_binary), Separated);
    }
    assert_eq!(Octets.content_type(), "application/octet-stream");
}

/// Text that one client writes must not become other packets for another client.
#[test]
fn text_never_becomes_packets() {
    check_both(Separated, "bYR4x", &[binary(b"a\x1e1")]);
    assert_eq!(encode(Separated, &[message("a\x1e1")]), b"bYR4x");
    let mut out = Vec::new();
    let mut encoder = PayloadEncoder::new(Separated, &mut out);
    encoder.push_encoded("4a\x1e1");
    assert_eq!(out, b"bYR4x");
    for format in [Counted, Octets] {
        assert_eq!(decode(format, &encode(format, &[message("a\x1e1")]), 9).0, [message("a\x1e1")]);
    }
}

fn any_format() -> impl Strategy<Value = PayloadFormat> {
    prop::sample::select(vec![Separated, Counted, Octets])
}

proptest! {
    #[test]
    fn encoded_packets_are_decoded(packets in prop::collection::vec(any_packet(), 1..6), format in any_format()) {
        let body = encode(format, &packets);
        // Text with a separator is sent as binary data: see text_never_becomes_packets.
        let expect: Vec<_> = packets.into_iter().map(|packet| match packet {
            Owned::Text(_, text) if format == Separated && text.contains('\x1e') => Owned::Binary(text.into_bytes()),
            packet => packet,
        }).collect();
        prop_assert_eq!(decode(format, &body, 6), (expect, None));
    }

    #[test]
    fn encoded_packets_are_the_same(packets in prop::collection::vec(any_packet(), 1..6), format in any_format()) {
        let texts: Vec<_> = packets.into_iter().filter(|packet| matches!(packet, Owned::Text(..))).collect();
        let mut out = Vec::new();
        let mut encoder = PayloadEncoder::new(format, &mut out);
        for packet in &texts {
            let mut encoded = Vec::new();
            encode_message(&mut encoded, Version::V4, &packet.packet(), false);
            let encoded = String::from_utf8(encoded).unwrap();
            encoder.push_encoded(&encoded);
        }
        prop_assert_eq!(out, encode(format, &texts));
    }

    /// The encoder counts characters like JavaScript's `length`.
    #[test]
    fn lengths_count_utf16_units(text in any::<String>()) {
        let body = encode(Counted, &[message(&text)]);
        prop_assert_eq!(body, format!("{}:4{text}", 1 + text.encode_utf16().count()).into_bytes());
    }

    #[test]
    fn arbitrary_input_causes_no_panic(body in any::<Vec<u8>>(), format in any_format(), cut in any::<prop::sample::Index>()) {
        decode(format, &body, 9);
        // Almost valid bodies.
        let mut good = encode(format, &[message("é😀"), binary(&[1, 2]), message("x")]);
        let at = cut.index(good.len());
        good[at] = body.first().copied().unwrap_or(b'9');
        decode(format, &good, 9);
        decode(format, &good[..at], 9);
    }
}
