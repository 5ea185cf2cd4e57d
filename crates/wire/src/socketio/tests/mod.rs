//! Packets are compared as text: `/chat event 7 "name" 1|{}`, with `+` and the attachments in hexadecimal.

mod decoder;
mod encode;
mod packet;
mod pair;
mod placeholder;

use super::*;
use stentor_json as json;

/// Server and client, in both versions.
const ROLES: [(Version, Role); 4] = [
    (Version::V4, Role::Server),
    (Version::V4, Role::Client),
    (Version::V5, Role::Server),
    (Version::V5, Role::Client),
];

fn seen(packet: &Packet<'_>) -> String {
    let list = |arguments: Arguments<'_>| {
        let joined = arguments.iter().collect::<Vec<_>>().join("|");
        assert_eq!(arguments.is_empty(), joined.is_empty());
        joined
    };
    let attached = |attachments: Attachments<'_>| {
        let hex = |data: &[u8]| data.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let attached: String = attachments.iter().map(|data| format!(" +{}", hex(data))).collect();
        assert_eq!(attachments.iter().count(), attachments.len());
        assert_eq!(attachments.get(attachments.len()), None);
        attached
    };
    let namespace = packet.namespace;
    match packet.body {
        Body::Connect { payload, query } => format!("{namespace} connect {payload:?} {query:?}"),
        Body::ConnectError { payload } => format!("{namespace} refused {payload:?}"),
        Body::Disconnect => format!("{namespace} disconnect"),
        Body::Event(event) => {
            let id = event.id.map(|id| format!(" {id}")).unwrap_or_default();
            let (name, list, attached) = (event.raw_name, list(event.arguments), attached(event.attachments));
            // The list for an echo has the same values.
            let raw: Vec<_> = json::elements(event.raw).collect();
            assert_eq!(raw[0], name);
            assert_eq!(raw[1..], event.arguments.iter().collect::<Vec<_>>());
            assert!(event.raw.ends_with(event.arguments.raw()));
            format!("{namespace} event{id} {name} {list}{attached}")
        }
        Body::Ack(ack) => {
            format!("{namespace} ack {} {}{}", ack.id, list(ack.arguments), attached(ack.attachments))
        }
    }
}

/// Checks that [`lone_event`] returns the packet of a text if it is an event without namespace and attachments, and nothing
/// else.
fn check_lone_event(text: &str, packet: Option<Packet<'_>>) {
    let lone = lone_event(text).map(|event| Packet { namespace: "/", body: Body::Event(event) });
    let is_lone = |packet: &Packet<'_>| matches!(packet.body, Body::Event(_)) && !text.starts_with("2/");
    assert_eq!(lone, packet.filter(is_lone), "{text}");
}

/// Feeds a text and attachments to a decoder. Returns the packet as text, `None` if an attachment is still
/// missing.
fn decode(
    version: Version,
    role: Role,
    limits: &Limits,
    text: &str,
    attachments: &[&[u8]],
) -> Result<Option<String>, Error> {
    let mut decoder = Decoder::new(version, role);
    let packet = decoder.text(text, limits);
    if text.len() <= limits.packet_bytes_max {
        check_lone_event(text, packet.ok().flatten());
    }
    let mut packet = packet.map(|packet| packet.map(|packet| seen(&packet)));
    for (place, data) in attachments.iter().enumerate() {
        if packet.is_err() {
            break;
        }
        assert_eq!(packet, Ok(None), "{place}");
        assert!(decoder.is_mid_packet() && decoder.held_bytes() >= text.len());
        let assembled = decoder.binary(data, limits);
        packet = assembled.map(|assembled| assembled.map(|assembled| seen(&assembled.packet())));
    }
    assert_eq!(decoder.is_mid_packet(), packet == Ok(None));
    assert_eq!(decoder.held_bytes() > 0, packet == Ok(None));
    packet
}
