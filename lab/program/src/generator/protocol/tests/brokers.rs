//! Clients of Centrifuge, NATS and MQTT against messages of servers, byte by byte.

use std::time::Duration;

use stentor_wire::http1::{self, parse_request};
use stentor_wire::ws::{Opcode, handshake};

use super::frames::frame;
use super::handshakes::{Pair, check_complaints, numbered_of, spec};
use crate::generator::protocol::{ClientEvent, Dialect, Lane, Protocol};
use crate::generator::{LoadSpec, Spec};

/// A payload of 150 bytes, whose length takes two bytes in MQTT, and its event.
fn numbered(sequence: u64) -> (String, ClientEvent) {
    numbered_of(sequence, 150)
}

/// Messages that the client has sent, without frames and their zero masks. All must have this opcode.
fn sent(pair: &mut Pair, opcode: u8) -> Vec<u8> {
    let frames = pair.main();
    let (mut rest, mut payload) = (&frames[..], Vec::new());
    while let [first, second, more @ ..] = rest {
        assert_eq!(*first, 0x80 | opcode);
        let (len, more) = match second & 0x7f {
            126 => (usize::from(more[0]) << 8 | usize::from(more[1]), &more[2..]),
            short => (usize::from(short), more),
        };
        payload.extend_from_slice(&more[4..4 + len]);
        rest = &more[4 + len..];
    }
    payload
}

/// Reads these frames cut at every place. The events and the client's answer must be the same each time.
fn check_cuts(pair: &mut Pair, frames: &[u8], opcode: u8, events: &[ClientEvent], answer: &[u8]) {
    for cut in 0..frames.len() {
        pair.out.happened.clear();
        pair.hear_cut(frames, cut);
        assert_eq!(pair.out.happened, events, "cut at {cut}");
        assert_eq!(sent(pair, opcode), answer, "cut at {cut}");
    }
}

#[test]
fn centrifuge_connects_answers_pings_and_reads_line_by_line() {
    let ((text, first), (other, second)) = (numbered(4), numbered(5));
    let (mut pair, target) = Pair::upgraded(Protocol::Centrifuge);
    assert_eq!(target, "/connection/websocket");
    assert_eq!(sent(&mut pair, 1), br#"{"id":1,"connect":{}}"#);
    assert!(!pair.is_open());
    let connected = r#"{"id":1,"connect":{"client":"7e32","subs":{"room":{}},"ping":25,"pong":true}}"#;
    assert_eq!(pair.exchange(connected), "");
    assert!(pair.is_open());
    assert_eq!(pair.exchange("{}"), "{}");
    pair.publish(&text);
    let publish = format!(r#"{{"id":2,"publish":{{"channel":"room","data":"{text}"}}}}"#);
    assert_eq!(String::from_utf8(sent(&mut pair, 1)).unwrap(), publish);
    let push = |text: &str| format!(r#"{{"push":{{"channel":"room","pub":{{"data":"{text}"}}}}}}"#);
    let lines = [&push(&text), r#"{"id":2,"publish":{}}"#, "{}", &push(&other)].join("\n");
    for lines in [lines.clone(), lines + "\n"] {
        let frames = frame(Opcode::Text, lines.as_bytes());
        check_cuts(&mut pair, &frames, 1, &[first, second], b"{}");
    }
    let moved = r#"{"push":{"channel":"room","join":{"info":{"client":"7e33"}}}}
{"push":{"channel":"room","leave":{"info":{"client":"7e34"}}}}"#;
    let one = ClientEvent::Payload { head: None, payload_bytes: 1, clean: true };
    check_cuts(&mut pair, &frame(Opcode::Text, moved.as_bytes()), 1, &[one, one], b"");
    let wrong = [
        (r#"{"id":1,"error":{"code":101,"message":"unauthorized"}}"#, "unauthorized"),
        (r#"{"push":{"disconnect":{"code":3008,"reason":"slow"}}}"#, "slow"),
        ("hello", "isn't Centrifuge's"),
    ];
    check_complaints(Protocol::Centrifuge, Opcode::Text, &wrong);
}

#[test]
fn an_echo_of_centrifuge_is_a_call() {
    let (text, arrives) = numbered(4);
    let (mut pair, _) = Pair::upgraded(Protocol::Centrifuge);
    pair.main();
    let moment = Duration::from_secs(1);
    let load = LoadSpec::EchoClosed { bytes: 150, warm_up: moment, measure: moment };
    pair.dialect = Dialect::new(&Spec { load, ..spec(Protocol::Centrifuge) });
    pair.publish(&text);
    let call = sent(&mut pair, 1);
    assert_eq!(String::from_utf8(call.clone()).unwrap(), format!(r#"{{"id":2,"rpc":{{"data":"{text}"}}}}"#));
    check_cuts(&mut pair, &frame(Opcode::Text, &call), 1, &[arrives], b"");
}

#[test]
fn nats_is_a_stream_of_lines_cut_into_frames_anywhere() {
    let ((text, first), (other, second)) = (numbered(4), numbered(5));
    let (mut pair, _) = Pair::upgraded(Protocol::Nats);
    assert_eq!(pair.main(), b"");
    pair.react(
        Lane::Main,
        &frame(Opcode::Binary, b"INFO {\"server_id\":\"N\",\"max_payload\":1048576} \r\n"),
    );
    let connect = "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":true}\r\nSUB room 1\r\nPING\r\n";
    assert_eq!(String::from_utf8(sent(&mut pair, 2)).unwrap(), connect);
    assert!(!pair.is_open());
    pair.react(Lane::Main, &frame(Opcode::Binary, b"PONG\r\n"));
    assert!(pair.is_open());
    pair.publish(&text);
    assert_eq!(sent(&mut pair, 2), format!("PUB room 150\r\n{text}\r\n").as_bytes());
    let stream = format!("MSG room 1 150\r\n{text}\r\nPING\r\nINFO {{}}\r\nMSG room 1 150\r\n{other}\r\n");
    for at in 0..stream.len() {
        let (begin, end) = stream.as_bytes().split_at(at);
        let frames = [frame(Opcode::Binary, begin), frame(Opcode::Binary, end)].concat();
        pair.out.happened.clear();
        pair.react(Lane::Main, &frames);
        assert_eq!(pair.out.happened, [first, second], "{at}");
        assert_eq!(sent(&mut pair, 2), b"PONG\r\n", "{at}");
    }
    check_cuts(&mut pair, &frame(Opcode::Binary, stream.as_bytes()), 2, &[first, second], b"PONG\r\n");
    let wrong = [
        ("-ERR 'Slow Consumer'\r\n", "Slow Consumer"),
        ("hello\r\n", "isn't of NATS"),
        ("\u{1}\r\n", "NATS"),
    ];
    check_complaints(Protocol::Nats, Opcode::Binary, &wrong);
}

#[test]
fn mqtt_subscribes_and_reads_packets() {
    let ((text, first), (other, second)) = (numbered(4), numbered(5));
    let mut pair = Pair::new(Protocol::Mqtt);
    let request = pair.main();
    let request = parse_request(&request, &http1::Limits::default()).unwrap();
    assert!(request.headers().all("sec-websocket-protocol").eq([b"mqtt"]));
    let mut answer = Vec::new();
    handshake::check_request(&request, None).unwrap().write_response(&mut answer, &[], None);
    pair.react(Lane::Main, &answer);
    let greeting = sent(&mut pair, 2);
    assert_eq!(greeting[..14], *b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0", "CONNECT");
    assert_eq!(greeting[14..], *b"\x82\x09\0\x01\0\x04room\0", "SUBSCRIBE");
    pair.react(Lane::Main, &frame(Opcode::Binary, &[0x20, 2, 0, 0]));
    assert!(!pair.is_open());
    pair.react(Lane::Main, &frame(Opcode::Binary, &[0x90, 3, 0, 1, 0]));
    assert!(pair.is_open());
    assert_eq!(pair.client.heartbeat_interval(), Some(Duration::from_secs(30)));
    pair.client.heartbeat(&pair.dialect, &mut pair.out);
    assert_eq!(sent(&mut pair, 2), [0xc0, 0]);
    pair.publish(&text);
    // 156 bytes: 28 plus 128.
    let publish = |text: &str| [b"\x30\x9c\x01\0\x04room", text.as_bytes()].concat();
    assert_eq!(sent(&mut pair, 2), publish(&text));
    let stream = [publish(&text), vec![0xd0, 0], publish(&other)].concat();
    check_cuts(&mut pair, &frame(Opcode::Binary, &stream), 2, &[first, second], b"");
    // The stream arrives in frames of 50 bytes.
    let frames: Vec<u8> = stream.chunks(50).flat_map(|part| frame(Opcode::Binary, part)).collect();
    check_cuts(&mut pair, &frames, 2, &[first, second], b"");
    let wrong = [
        (&[0x20, 2, 0, 5][..], "code 5"),
        (&[0x90, 3, 0, 1, 0x80], "refusal"),
        (&[0x30, 0x80, 0x80, 0x80, 0x80, 1], "too long"),
    ];
    check_complaints(Protocol::Mqtt, Opcode::Binary, &wrong);
}
