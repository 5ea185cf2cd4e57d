//! Packets that one side writes and the other side reads, through Engine.IO messages of both versions.

use proptest::prelude::*;

use super::*;
use crate::engineio::{self, Data, PacketKind, decode_message, encode_message};
use crate::ws::Kind;

fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|list| format!("[{}]", list.join(","))),
            (any::<String>(), inner).prop_map(|(name, value)| {
                format!("{{{}:{value}}}", serde_json::to_string(&name).unwrap())
            }),
        ]
    })
}

fn any_namespace() -> impl Strategy<Value = String> {
    prop_oneof![Just("/".to_owned()), "/[a-zé/0-9\"\\[-]{1,12}"]
}

/// Sends a text and attachments as Engine.IO messages. Returns the packet that the other side decodes.
fn transfer(
    version: engineio::Version,
    role: Role,
    text: &[u8],
    attachments: &[Vec<u8>],
    base64: bool,
) -> String {
    let text = str::from_utf8(text).unwrap();
    let mut messages = vec![engineio::Packet::text(PacketKind::Message, text)];
    messages.extend(attachments.iter().map(|data| engineio::Packet::binary(data)));
    let mut decoder = Decoder::new(version.into(), role);
    let mut seen_packet = None;
    for message in &messages {
        assert_eq!(seen_packet, None);
        let (mut sent, mut scratch) = (Vec::new(), Vec::new());
        let kind: Kind = encode_message(&mut sent, version, message, base64);
        let packet = decode_message(version, kind.message(&sent).unwrap(), &mut scratch).unwrap();
        assert_eq!(packet.kind, PacketKind::Message);
        seen_packet = match packet.data {
            Data::Text(text) => decoder.text(text, &Limits::default()).unwrap().map(|packet| seen(&packet)),
            Data::Binary(data) => {
                decoder.binary(data, &Limits::default()).unwrap().map(|assembled| seen(&assembled.packet()))
            }
        };
    }
    seen_packet.unwrap()
}

proptest! {
    #[test]
    fn events_and_acks_round_trip(
        namespace in any_namespace(),
        id in any::<Option<u64>>(),
        name in any::<String>(),
        arguments in prop::collection::vec(any_json(), 0..4),
        attachments in prop::collection::vec(any::<Vec<u8>>(), 0..=10),
        is_v3 in any::<bool>(), is_server in any::<bool>(), base64 in any::<bool>(),
    ) {
        prop_assume!(!RESERVED_EVENTS.contains(&&*name));
        let version = if is_v3 { engineio::Version::V3 } else { engineio::Version::V4 };
        let role = if is_server { Role::Server } else { Role::Client };
        // One placeholder for each attachment, in an additional argument.
        let mut list = b"[".to_vec();
        for number in 0..attachments.len() {
            if number > 0 {
                list.push(b',');
            }
            write_placeholder(&mut list, number);
        }
        list.push(b']');
        let list = String::from_utf8(list).unwrap();
        prop_assert_eq!(placeholders(&list).count(), attachments.len());
        let joined = arguments.join(",");
        let arguments = [&joined[..], &list];

        let mut out = Vec::new();
        let head = Head { namespace: &namespace, id, attachments: attachments.len() };
        write_event(&mut out, &head, &name, &arguments);
        let attached: String =
            attachments.iter().map(|data| format!(" +{}", data.iter().map(|byte| format!("{byte:02x}")).collect::<String>())).collect();
        let values: Vec<_> = json::elements(&joined).chain([&list[..]]).collect();
        let values = values.join("|");
        let id_text = id.map(|id| format!(" {id}")).unwrap_or_default();
        let quoted = serde_json::to_string(&name).unwrap();
        prop_assert_eq!(
            transfer(version, role, &out, &attachments, base64),
            format!("{namespace} event{id_text} {quoted} {values}{attached}")
        );

        let mut out = Vec::new();
        write_ack(&mut out, &namespace, id.unwrap_or(0), attachments.len(), &arguments);
        prop_assert_eq!(
            transfer(version, role, &out, &attachments, base64),
            format!("{namespace} ack {} {values}{attached}", id.unwrap_or(0))
        );
    }

    #[test]
    fn connects_round_trip(namespace in any_namespace(), sid in any::<String>(), pid in any::<Option<String>>(), is_v3 in any::<bool>()) {
        let engine = if is_v3 { engineio::Version::V3 } else { engineio::Version::V4 };
        let version = Version::from(engine);
        let mut out = Vec::new();
        write_connect(&mut out, version, &namespace, None);
        prop_assert_eq!(transfer(engine, Role::Server, &out, &[], false), format!("{namespace} connect None None"));
        let mut out = Vec::new();
        write_connected(&mut out, version, &namespace, &sid, pid.as_deref());
        let text = String::from_utf8(out).unwrap();
        let mut decoder = Decoder::new(version, Role::Client);
        let packet = decoder.text(&text, &Limits::default()).unwrap().unwrap();
        prop_assert_eq!(packet.namespace, &namespace);
        let Body::Connect { payload, query: None } = packet.body else { panic!() };
        if version == Version::V5 {
            let payload = payload.unwrap();
            prop_assert_eq!(json::string_member(payload, "sid").unwrap(), sid);
            let read = json::string_member(payload, "pid").map(String::from);
            prop_assert_eq!(read, pid);
        } else {
            prop_assert_eq!(payload, None);
        }
        let mut out = Vec::new();
        write_disconnect(&mut out, &namespace);
        prop_assert_eq!(transfer(engine, Role::Client, &out, &[], false), format!("{namespace} disconnect"));
    }

    #[test]
    fn connect_errors_round_trip(namespace in any_namespace(), message in any::<String>(), data in prop::option::of(any_json())) {
        // A bare number would be read as an id. No refusal of a namespace is a number.
        prop_assume!(!data.as_ref().is_some_and(|data| data.starts_with(|first: char| first.is_ascii_digit())));
        for (engine, version) in [(engineio::Version::V3, Version::V4), (engineio::Version::V4, Version::V5)] {
            let mut out = Vec::new();
            write_connect_error(&mut out, version, &namespace, &message, data.as_deref());
            let seen = transfer(engine, Role::Client, &out, &[], false);
            let quoted = serde_json::to_string(&message).unwrap();
            let payload = match (version, &data) {
                (Version::V4, data) => data.clone().unwrap_or(quoted),
                (Version::V5, None) => format!("{{\"message\":{quoted}}}"),
                (Version::V5, Some(data)) => format!("{{\"message\":{quoted},\"data\":{data}}}"),
            };
            prop_assert_eq!(seen, format!("{namespace} refused {:?}", Some(payload)));
        }
    }

    /// No input panics, and accepted JSON has the value that serde_json reads.
    #[test]
    fn arbitrary_input_causes_no_panic(text in "[0-9]{0,3}-?(/[a-z?]{0,3},?)?[0-9]{0,2}\\[?[\\[\\]{}\",:a_placehodrtuenm0-9 \\\\]{0,40}\\]?") {
        for version in [Version::V4, Version::V5] {
            let mut decoder = Decoder::new(version, Role::Server);
            if let Ok(Some(packet)) = decoder.text(&text, &Limits::default()) {
                if let Body::Event(event) = packet.body {
                    let values: Vec<serde_json::Value> = serde_json::from_str(&format!("[{}]", event.raw)).unwrap();
                    prop_assert_eq!(values.len(), 1 + event.arguments.iter().count());
                }
                seen(&packet);
            }
        }
    }
}
