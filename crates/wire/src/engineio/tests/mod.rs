mod jsonp;
mod open;
mod packet;
mod payload;
mod request;

use proptest::prelude::*;

use super::*;

const KINDS: [PacketKind; 7] = [
    PacketKind::Open,
    PacketKind::Close,
    PacketKind::Ping,
    PacketKind::Pong,
    PacketKind::Message,
    PacketKind::Upgrade,
    PacketKind::Noop,
];

/// A packet that owns its data.
#[derive(Debug, Clone, PartialEq)]
enum Owned {
    Text(PacketKind, String),
    Binary(Vec<u8>),
}

impl Owned {
    fn packet(&self) -> Packet<'_> {
        match self {
            Owned::Text(kind, text) => Packet::text(*kind, text),
            Owned::Binary(data) => Packet::binary(data),
        }
    }
}

impl From<Packet<'_>> for Owned {
    fn from(packet: Packet<'_>) -> Owned {
        match packet.data {
            Data::Text(text) => Owned::Text(packet.kind, text.to_owned()),
            Data::Binary(data) => {
                assert_eq!(packet.kind, PacketKind::Message);
                Owned::Binary(data.to_vec())
            }
        }
    }
}

fn message(text: &str) -> Owned {
    Owned::Text(PacketKind::Message, text.to_owned())
}

fn binary(data: &[u8]) -> Owned {
    Owned::Binary(data.to_vec())
}

/// Generates packets. Their text has characters of one and of two UTF-16 units and of one to four bytes.
fn any_packet() -> impl Strategy<Value = Owned> {
    let text = prop_oneof!["[ -~]{0,40}", "[aé€😀:0-9]{0,12}", any::<String>()];
    prop_oneof![
        3 => (prop::sample::select(KINDS.to_vec()), text).prop_map(|(kind, text)| Owned::Text(kind, text)),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Owned::Binary),
        1 => (760..780usize).prop_map(|length| Owned::Binary(vec![7; length])),
    ]
}

fn any_version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V3), Just(Version::V4)]
}
