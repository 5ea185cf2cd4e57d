use super::handshakes::spec;
use crate::generator::protocol::envelope::{Envelope, MessageReader, OTHER_BYTES_MAX, TooLong};
use crate::generator::protocol::{ClientEvent, Dialect, Protocol};
use crate::payload::{Head, blank};

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// (sequence, bytes, clean)
    Payload(Option<u64>, u64, bool),
    Other(String),
}

fn read(envelope: &Envelope, messages: &[&[u8]], piece: usize) -> Vec<Seen> {
    let mut reader = MessageReader::default();
    let mut seen = Vec::new();
    for message in messages {
        let pieces: Vec<&[u8]> = if message.is_empty() { vec![b""] } else { message.chunks(piece).collect() };
        for (nth, bytes) in pieces.iter().enumerate() {
            let mut happened = Vec::new();
            let other = reader.take(envelope, bytes, nth + 1 == pieces.len(), &mut happened).unwrap();
            seen.extend(happened.into_iter().map(|event| match event {
                ClientEvent::Payload { head, payload_bytes, clean } => {
                    Seen::Payload(head.map(|head| head.sequence), payload_bytes, clean)
                }
                ClientEvent::Opened => panic!("a message opens nothing"),
            }));
            seen.extend(other.map(|other| Seen::Other(String::from_utf8_lossy(&other).into_owned())));
        }
    }
    seen
}

/// Reads `messages` in pieces of every size.
fn check(envelope: &Envelope, messages: &[&[u8]], expect: &[Seen]) {
    let longest = messages.iter().map(|message| message.len()).max().unwrap_or(1);
    for piece in 1..=longest.max(1) {
        assert_eq!(read(envelope, messages, piece), expect, "pieces of {piece}");
    }
}

fn dialect(protocol: Protocol) -> Dialect {
    Dialect::new(&spec(protocol))
}

fn payload(sequence: u64, bytes: usize) -> Vec<u8> {
    let mut payload = blank(bytes);
    Head { sequence, intended_ns: 5 }.write(&mut payload);
    payload
}

fn whole(sequence: u64, bytes: u64) -> Seen {
    Seen::Payload(Some(sequence), bytes, true)
}

#[test]
fn envelopes_are_what_the_protocols_say() {
    use Protocol::{
        Bayeux, EngineIo, EngineIo3, Primus, SockJs, SocketIo, SocketIo2, SocketIo2Polling, SocketIo07,
        SocketIo09, SocketIo09Polling, SocketIoPolling, WebSocket,
    };
    let event = r#"5:::{"name":"message","args":["hi"]}"#;
    for (protocols, sent, received) in [
        (&[WebSocket][..], "hi", "hi"),
        (&[EngineIo, EngineIo3], "4hi", "4hi"),
        (&[SocketIo, SocketIo2], r#"42["message","hi"]"#, r#"42["message","hi"]"#),
        (&[SocketIoPolling, SocketIo2Polling], r#"2["message","hi"]"#, r#"2["message","hi"]"#),
        (&[SocketIo09, SocketIo09Polling, SocketIo07], event, event),
        (&[Primus], r#""hi""#, r#""hi""#),
        (&[Bayeux], "hi", r#"[{"channel":"/room","data":"hi"}]"#),
        (&[SockJs], r#"["hi"]"#, r#"a["hi"]"#),
    ] {
        for protocol in protocols {
            let dialect = dialect(*protocol);
            for (envelope, expect) in [(&dialect.outbound, sent), (&dialect.inbound, received)] {
                let mut out = Vec::new();
                envelope.wrap(&mut out, b"hi");
                assert_eq!(String::from_utf8(out).unwrap(), expect, "{protocol:?}");
            }
        }
    }
}

#[test]
fn payloads_come_out_as_they_went_in() {
    let all = [
        Protocol::WebSocket,
        Protocol::EngineIo,
        Protocol::SocketIo,
        Protocol::SocketIoPolling,
        Protocol::SocketIo09,
        Protocol::SockJs,
        Protocol::Primus,
        Protocol::Bayeux,
    ];
    for protocol in all {
        let dialect = dialect(protocol);
        let mut messages = Vec::new();
        let mut expect = Vec::new();
        for (sequence, bytes) in [(0, 44), (1, 45), (2, 100)] {
            let mut message = Vec::new();
            dialect.inbound.wrap(&mut message, &payload(sequence, bytes));
            messages.push(message);
            expect.push(whole(sequence, bytes as u64));
        }
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        check(&dialect.inbound, &messages, &expect);
    }
}

#[test]
fn a_large_payload_is_read_in_large_pieces() {
    let dialect = dialect(Protocol::SocketIo);
    let mut intact = Vec::new();
    dialect.inbound.wrap(&mut intact, &payload(3, 70_000));
    let mut changed = intact.clone();
    changed[50_000] = b'y';
    for piece in [100, 1000, 65_536, 80_000] {
        let seen = read(&dialect.inbound, &[&intact, &changed], piece);
        assert_eq!(seen, [whole(3, 70_000), Seen::Payload(Some(3), 70_000, false)], "pieces of {piece}");
    }
}

/// Checks this with any envelope, in pieces of any size.
#[test]
fn a_bit_that_is_changed_is_seen_anywhere_in_a_payload() {
    for protocol in
        [Protocol::WebSocket, Protocol::SocketIo, Protocol::SocketIo09, Protocol::SockJs, Protocol::Bayeux]
    {
        let envelope = dialect(protocol).inbound;
        let payload = payload(7, 60);
        for at in 0..payload.len() {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            let mut message = Vec::new();
            envelope.wrap(&mut message, &changed);
            for piece in [1, 40, 80, message.len()] {
                let seen = read(&envelope, &[&message], piece);
                assert!(
                    matches!(seen[..], [Seen::Payload(_, 60, false)]),
                    "{protocol:?}, {at}, {piece}: {seen:?}"
                );
            }
        }
    }
}

#[test]
fn heads_without_a_checksum_are_taken_where_there_is_none() {
    let message = b"0000000000000007x";
    let mut envelope = Envelope::around("*");
    envelope.has_checksums = false;
    check(&envelope, &[message], &[whole(7, 17)]);
    let mut happened = Vec::new();
    MessageReader::default().take(&Envelope::around("*"), message, true, &mut happened).unwrap();
    assert!(matches!(happened[..], [ClientEvent::Payload { clean: false, .. }]), "{happened:?}");
}

#[test]
fn several_payloads_come_in_one_frame() {
    let text = |sequence, bytes| String::from_utf8(payload(sequence, bytes)).unwrap();
    let frame = format!(r#"a["{}","{}","{}"]"#, text(0, 48), text(1, 44), text(2, 50));
    check(
        &dialect(Protocol::SockJs).inbound,
        &[frame.as_bytes()],
        &[whole(0, 48), whole(1, 44), whole(2, 50)],
    );
}

#[test]
fn changed_envelopes_are_noticed() {
    let event = |payload: &str, end: &str| format!(r#"42["message","{payload}{end}"#);
    let intact = String::from_utf8(payload(7, 48)).unwrap();
    let unclean = |bytes| Seen::Payload(Some(7), bytes, false);
    for (message, expect) in [
        (event(&intact, r#"y"]"#), unclean(49)),
        (event(&intact, r#"""]"#), unclean(49)),
        (event(&intact, r#"","]"#), unclean(50)),
        (event(&intact, r#"""#), unclean(49)),
        (event(&intact, ""), unclean(48)),
        (event(&intact, r#""],"#), unclean(51)),
        (event(&intact, r#"\"xx"]"#), unclean(52)),
        (event("short", r#""]"#), Seen::Payload(None, 5, false)),
        (event(&intact.replacen('7', "-", 1), r#""]"#), Seen::Payload(None, 48, false)),
    ] {
        check(&dialect(Protocol::SocketIo).inbound, &[message.as_bytes()], &[expect]);
    }
}

#[test]
fn the_quotes_of_a_bare_string_count() {
    let string = |padding: &[u8], end: &[u8]| [b"\"", &payload(7, 49)[..44], padding, end].concat();
    let seen = |bytes, clean| Seen::Payload(Some(7), bytes, clean);
    for (message, expect) in [
        (string(b"xxxxx", b"\""), seen(51, true)),
        (string(b"xxxx", b"\""), seen(50, false)),
        (string(b"xxxyx", b"\""), seen(51, false)),
        (string(b"xxxxx", b"x"), seen(51, false)),
        (string(b"xxxx\"", b"\""), seen(51, false)),
    ] {
        check(&Envelope::around("*"), &[&message], &[expect]);
    }
}

#[test]
fn other_messages_come_out_as_they_are() {
    let other = |text: &str| Seen::Other(text.to_owned());
    let envelope = dialect(Protocol::SocketIo).inbound;
    let event = payload(1, 44);
    let mut message = Vec::new();
    envelope.wrap(&mut message, &event);
    check(
        &envelope,
        &[b"2", br#"40{"sid":"a"}"#, &message, br#"42["messages"]"#, b"", b"42[\"mess"],
        &[
            other("2"),
            other(r#"40{"sid":"a"}"#),
            whole(1, 44),
            other(r#"42["messages"]"#),
            other(""),
            other("42[\"mess"),
        ],
    );
    let mut reader = MessageReader::default();
    let long = vec![b'0'; OTHER_BYTES_MAX + 1];
    assert_eq!(reader.take(&envelope, &long, false, &mut Vec::new()), Err(TooLong));
}
