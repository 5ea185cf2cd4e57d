//! Engine.IO: decoded data that is encoded again decodes to the same data.

use stentor_wire::engineio::{
    Data, Error, Open, Packet, PacketKind, PayloadDecoder, PayloadEncoder, PayloadFormat, Request, Version,
    decode_jsonp_form, decode_message, encode_jsonp_form, encode_message, write_jsonp_answer,
};
use stentor_wire::ws::Kind;

use crate::parts;

#[derive(Debug, Clone, PartialEq)]
enum Owned {
    Text(PacketKind, String),
    Binary(Vec<u8>),
}

impl Owned {
    fn new(packet: Packet<'_>) -> Owned {
        match packet.data {
            Data::Text(text) => Owned::Text(packet.kind, text.to_owned()),
            Data::Binary(data) => {
                assert_eq!(packet.kind, PacketKind::Message);
                Owned::Binary(data.to_vec())
            }
        }
    }

    fn packet(&self) -> Packet<'_> {
        match self {
            Owned::Text(kind, text) => Packet::text(*kind, text),
            Owned::Binary(data) => Packet::binary(data),
        }
    }
}

fn decode(format: PayloadFormat, body: &[u8], packets_max: usize) -> (Vec<Owned>, Option<Error>) {
    let mut packets = Vec::new();
    let mut decoder = match PayloadDecoder::new(format, body, packets_max) {
        Ok(decoder) => decoder,
        Err(error) => return (packets, Some(error)),
    };
    loop {
        match decoder.next_packet() {
            Ok(Some(packet)) => packets.push(Owned::new(packet)),
            Ok(None) => return (packets, None),
            Err(error) => {
                assert_eq!(decoder.next_packet(), Ok(None));
                return (packets, Some(error));
            }
        }
    }
}

/// Checks a payload in any format, and each of its packets as a separate message.
pub fn payload(data: &[u8]) {
    let Some((flags, cuts, body)) = parts(data) else { return };
    let format =
        [PayloadFormat::Separated, PayloadFormat::Counted, PayloadFormat::Octets][usize::from(flags % 3)];
    let version = if format == PayloadFormat::Separated { Version::V4 } else { Version::V3 };
    let packets_max = usize::from(cuts[0]);
    let (packets, error) = decode(format, body, packets_max);
    assert!(packets.len() <= packets_max && error.is_none_or(|error| (400..500).contains(&error.status())));
    let mut written = Vec::new();
    let mut encoder = PayloadEncoder::new(format, &mut written);
    for packet in &packets {
        let expect = encoder.len_with(&packet.packet());
        encoder.push(&packet.packet());
        assert_eq!(encoder.len(), expect);
        for base64 in [false, true] {
            let (mut message, mut scratch) = (Vec::new(), Vec::new());
            let kind = encode_message(&mut message, version, &packet.packet(), base64);
            let again = decode_message(version, kind.message(&message).unwrap(), &mut scratch)
                .expect("our own message is sound");
            assert_eq!(Owned::new(again), *packet);
        }
    }
    if !packets.is_empty() {
        assert_eq!(decode(format, &written, packets.len()), (packets, None));
    }
    for kind in [Kind::Text, Kind::Binary] {
        let _ = kind.message(body).map(|message| decode_message(version, message, &mut Vec::new()).is_ok());
    }
}

/// Checks a query, an open packet and a form.
pub fn request(data: &[u8]) {
    if let Ok(payload) = decode_jsonp_form(data) {
        // A backslash before a line end is ambiguous; see `decode_jsonp_form`.
        if !payload.contains("\\\n") {
            let mut form = Vec::new();
            encode_jsonp_form(&mut form, &payload);
            assert_eq!(decode_jsonp_form(&form), Ok(payload));
        }
    }
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(request) = Request::parse(text) {
        let mut query = Vec::new();
        request.write_query(&mut query);
        assert_eq!(Request::parse(str::from_utf8(&query).expect("a query is ASCII")), Ok(request));
    }
    if let Ok(open) = Open::parse(text) {
        let mut written = Vec::new();
        open.write(Version::V4, &mut written);
        assert_eq!(Open::parse(str::from_utf8(&written).expect("JSON is UTF-8")), Ok(open));
    }
    let mut script = Vec::new();
    write_jsonp_answer(&mut script, 0, text);
    let script = str::from_utf8(&script).expect("a script is UTF-8");
    assert!(!script.contains(['\n', '\r', '\u{2028}', '\u{2029}']));
}
