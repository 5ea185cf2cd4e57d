//! Socket.IO: a session's messages, in any order.

use stentor_json as json;
use stentor_wire::socketio::{
    Attachments, Body, Decoder, Error, Head, Limits, Packet, RESERVED_EVENTS, Role, Version, lone_event,
    placeholders, renumber_placeholders, write_ack, write_event_list,
};

use crate::{parts, pieces};

/// Checks messages. Each piece of the input is one message: a text if it begins with a digit, otherwise
/// binary data.
pub fn messages(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let version = if flags & 1 == 0 { Version::V5 } else { Version::V4 };
    let role = if flags & 2 == 0 { Role::Server } else { Role::Client };
    let limits =
        if flags & 4 == 0 { Limits::default() } else { Limits { attachments_max: 3, packet_bytes_max: 200 } };
    let mut decoder = Decoder::new(version, role);
    let mut received = 0;
    for message in pieces(bytes, cuts) {
        received += message.len();
        let text = str::from_utf8(message)
            .ok()
            .filter(|text| text.starts_with(|first: char| first.is_ascii_digit()));
        let error = match text {
            Some(text) => match decoder.text(text, &limits) {
                Ok(packet) => {
                    packet.inspect(|packet| check(version, role, packet));
                    None
                }
                Err(error) => Some(error),
            },
            None => match decoder.binary(message, &limits) {
                Ok(assembled) => {
                    assembled.inspect(|assembled| check(version, role, &assembled.packet()));
                    None
                }
                Err(error) => Some(error),
            },
        };
        assert!(error.is_none() || !decoder.is_mid_packet());
        assert_eq!(decoder.is_mid_packet(), decoder.held_bytes() > 0);
        assert!(decoder.held_bytes() <= 1024 + 20 * received);
    }
    // The complete input as one text, because pieces of it are rarely packets.
    let Ok(text) = str::from_utf8(bytes) else { return };
    let mut decoder = Decoder::new(version, role);
    let decoded = decoder.text(text, &limits);
    if text.len() <= limits.packet_bytes_max {
        let lone = lone_event(text).map(|event| Packet { namespace: "/", body: Body::Event(event) });
        let is_event = |packet: &Packet<'_>| matches!(packet.body, Body::Event(_));
        let packet = decoded.ok().flatten().filter(|packet| is_event(packet) && !text.starts_with("2/"));
        assert_eq!(lone, packet);
    }
    match decoded {
        Ok(Some(packet)) => check(version, role, &packet),
        Ok(None) => {
            while decoder.is_mid_packet() {
                let Ok(assembled) = decoder.binary(b"x", &limits) else { break };
                assembled.inspect(|assembled| check(version, role, &assembled.packet()));
            }
        }
        Err(error) => assert_ne!(error, Error::UnexpectedAttachment),
    }
    // The scanner's functions accept unchecked text.
    let _ = json::check(text);
    json::elements(text).take(1000).for_each(drop);
    json::members(text).take(1000).for_each(drop);
    json::unescape(text);
    renumber_placeholders(&mut Vec::new(), text, &mut Vec::new());
}

fn check(version: Version, role: Role, packet: &Packet<'_>) {
    assert!(packet.namespace.starts_with('/') && !packet.namespace.contains(','));
    let mut written = Vec::new();
    let attachments = match packet.body {
        Body::Connect { payload, .. } => {
            assert!(payload.is_none_or(|payload| payload.starts_with('{') && json::check(payload).is_ok()));
            return;
        }
        Body::ConnectError { payload } => {
            assert!(role == Role::Client && payload.is_none_or(|payload| json::check(payload).is_ok()));
            return;
        }
        Body::Disconnect => return,
        Body::Event(event) => {
            assert!(event.raw_name.starts_with('"') || json::string(event.raw_name).is_none());
            assert!(!RESERVED_EVENTS.contains(&&*event.name()));
            event.arguments.iter().for_each(|argument| json::check(argument).expect("arguments are JSON"));
            let head =
                Head { namespace: packet.namespace, id: event.id, attachments: event.attachments.len() };
            write_event_list(&mut written, &head, &[event.raw]);
            check_placeholders(event.arguments.raw(), event.attachments);
            event.attachments
        }
        Body::Ack(ack) => {
            ack.arguments.iter().for_each(|argument| json::check(argument).expect("arguments are JSON"));
            write_ack(&mut written, packet.namespace, ack.id, ack.attachments.len(), &[ack.arguments.raw()]);
            check_placeholders(ack.arguments.raw(), ack.attachments);
            ack.attachments
        }
    };
    // A packet that is written from these parts decodes to the same parts.
    let written = str::from_utf8(&written).expect("a packet is UTF-8");
    let mut decoder = Decoder::new(version, role);
    let limits = Limits { attachments_max: usize::MAX, packet_bytes_max: usize::MAX };
    let again = decoder.text(written, &limits).expect("our own packet is sound");
    assert_eq!(again.is_some(), attachments.is_empty());
    again.inspect(|again| assert_eq!(again, packet));
    for (place, data) in attachments.iter().enumerate() {
        let assembled = decoder.binary(data, &limits).expect("our own attachments are sound");
        assert_eq!(assembled.is_some(), place + 1 == attachments.len());
        assembled.inspect(|assembled| assert_eq!(assembled.packet(), *packet));
    }
}

fn check_placeholders(list: &str, attachments: Attachments<'_>) {
    if attachments.is_empty() {
        return;
    }
    assert!(placeholders(list).all(|placeholder| attachments.get(placeholder.number).is_some()));
    let (mut renumbered, mut taken) = (Vec::new(), Vec::new());
    renumber_placeholders(&mut renumbered, list, &mut taken);
    let renumbered = str::from_utf8(&renumbered).expect("JSON is UTF-8");
    let numbers = |list| placeholders(list).map(|placeholder| placeholder.number).collect::<Vec<_>>();
    let expect: Vec<_> = numbers(renumbered).iter().map(|place| taken[*place]).collect();
    assert_eq!(numbers(list), expect);
}
