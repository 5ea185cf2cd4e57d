//! Tests of the generator's clients with literal messages of the servers.

use std::net::SocketAddr;
use std::time::Duration;

use stentor_wire::engineio::{PayloadDecoder, PayloadFormat};
use stentor_wire::http1::{self, HeadScanner, parse_request, write_response_head};
use stentor_wire::ws::{DeflateOptions, Opcode, handshake};

use super::frames::frame;
use crate::generator::protocol::{Client, ClientEvent, Dialect, Lane, Out, Protocol};
use crate::generator::{LoadSpec, Spec};
use crate::payload::{Head, blank};

const OPEN: &str =
    r#"0{"sid":"S-1","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#;

pub(super) fn spec(protocol: Protocol) -> Spec {
    let load = LoadSpec::Idle { hold: Duration::ZERO };
    let mut spec = Spec::new(SocketAddr::from(([127, 0, 0, 1], 1)), protocol.usual_path(), 1, load);
    spec.protocol = protocol;
    spec
}

/// Returns a server's answer to a request for a WebSocket, and the request's target.
pub(super) fn upgrade(request: &[u8], deflate: Option<&DeflateOptions>) -> (Vec<u8>, String) {
    let request = parse_request(request, &http1::Limits::default()).unwrap();
    let mut answer = Vec::new();
    handshake::check_request(&request, deflate).unwrap().write_response(&mut answer, &[], None);
    (answer, request.target().to_owned())
}

/// Sends each message to a new client of `protocol` after its handshake. The client must refuse the message for this
/// reason.
pub(super) fn check_complaints<T: AsRef<[u8]> + std::fmt::Debug>(
    protocol: Protocol,
    opcode: Opcode,
    cases: &[(T, &str)],
) {
    for (wrong, expect) in cases {
        let (mut pair, _) = Pair::upgraded(protocol);
        let told = pair.complains(Lane::Main, &frame(opcode, wrong.as_ref()));
        assert!(told.contains(expect), "{wrong:?}: {told}");
    }
}

pub(super) struct Pair {
    pub(super) dialect: Dialect,
    pub(super) client: Client,
    pub(super) out: Out,
}

impl Pair {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self::of(&spec(protocol))
    }

    pub(super) fn of(spec: &Spec) -> Self {
        let dialect = Dialect::new(spec);
        let client = dialect.client();
        let mut pair = Self { dialect, client, out: Out::default() };
        pair.client.connected(&pair.dialect, 4711, &mut pair.out);
        pair
    }

    /// Returns a client whose WebSocket handshake is done, and its request's target.
    pub(super) fn upgraded(protocol: Protocol) -> (Self, String) {
        Self::new(protocol).upgrade()
    }

    pub(super) fn upgrade(mut self) -> (Self, String) {
        let (answer, target) = upgrade(&self.main(), None);
        self.react(Lane::Main, &answer);
        (self, target)
    }

    pub(super) fn main(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out.main)
    }

    /// Takes the requests that the client sends beside its main connection.
    pub(super) fn side(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.out.side)).unwrap()
    }

    pub(super) fn react(&mut self, lane: Lane, data: &[u8]) {
        self.client.receive(&self.dialect, lane, data, &mut self.out).unwrap();
    }

    pub(super) fn hear_text(&mut self, text: &[u8]) {
        self.react(Lane::Main, &frame(Opcode::Text, text));
    }

    /// Receives the same data in two pieces.
    pub(super) fn hear_cut(&mut self, data: &[u8], cut: usize) {
        self.react(Lane::Main, &data[..cut]);
        self.react(Lane::Main, &data[cut..]);
    }

    pub(super) fn complains(&mut self, lane: Lane, data: &[u8]) -> String {
        let received = self.client.receive(&self.dialect, lane, data, &mut self.out);
        received.unwrap_err().to_string()
    }

    pub(super) fn complains_of_text(&mut self, text: &[u8]) -> String {
        self.complains(Lane::Main, &frame(Opcode::Text, text))
    }

    /// The server sends `text`. Returns the client's answer without its zero mask.
    pub(super) fn exchange(&mut self, text: &str) -> String {
        self.hear_text(text.as_bytes());
        let sent = self.main();
        sent.get(6..).map(|payload| String::from_utf8(payload.to_vec()).unwrap()).unwrap_or_default()
    }

    /// Returns the client's heartbeat over WebSocket.
    pub(super) fn heartbeat(&mut self) -> String {
        self.client.heartbeat(&self.dialect, &mut self.out);
        String::from_utf8(self.main()[6..].to_vec()).unwrap()
    }

    pub(super) fn publish(&mut self, payload: &str) {
        self.client.send(&self.dialect, payload.as_bytes(), &mut self.out);
    }

    /// Returns the client's message with a payload over WebSocket.
    pub(super) fn send(&mut self, payload: &str) -> String {
        self.publish(payload);
        String::from_utf8(self.main()[6..].to_vec()).unwrap()
    }

    pub(super) fn is_open(&self) -> bool {
        self.out.happened.contains(&ClientEvent::Opened)
    }
}

/// Messages of a server, with the client's answers.
type Exchanges<'a> = &'a [(&'a str, &'a str)];

/// Each row: the target of a client's request, in which `*` stands for any segment; the exchanges until the client is
/// open; the later ones; and the frame around a payload. SockJS's server puts an `a` before that frame.
#[test]
fn clients_open_send_receive_and_answer_pings() {
    use Protocol::{EngineIo, EngineIo3, SockJs, SocketIo, SocketIo2, WebSocket};
    let event = r#"42["message","{}"]"#;
    let cases: [(Protocol, &str, Exchanges, Exchanges, &str); 6] = [
        (WebSocket, "/ws", &[], &[], "{}"),
        (EngineIo, "/engine.io/?EIO=4&transport=websocket", &[(OPEN, "")], &[("2", "3"), ("6", "")], "4{}"),
        (EngineIo3, "/engine.io/?EIO=3&transport=websocket", &[(OPEN, "")], &[("3", "")], "4{}"),
        (SocketIo2, "/socket.io/?EIO=3&transport=websocket", &[(OPEN, ""), ("40", "")], &[], event),
        (
            SocketIo,
            "/socket.io/?EIO=4&transport=websocket",
            &[(OPEN, "40"), (r#"40{"sid":"x"}"#, "")],
            &[("2", "3"), (r#"42["welcome",1]"#, "")],
            event,
        ),
        (SockJs, "/sockjs/*/*/websocket", &[("o", "")], &[("h", "")], r#"["{}"]"#),
    ];
    let (text, arrives) = numbered(1);
    for (protocol, target, opens, further, message) in cases {
        let (mut pair, asked) = Pair::upgraded(protocol);
        let is_named = |(segment, asked): (&str, &str)| segment == asked || segment == "*";
        assert!(target.split('/').zip(asked.split('/')).all(is_named), "{protocol:?}: {asked}");
        assert_eq!(target.matches('/').count(), asked.matches('/').count(), "{protocol:?}: {asked}");
        for (hears, says) in opens {
            assert!(!pair.is_open(), "{protocol:?}: before {hears}");
            assert_eq!(pair.exchange(hears), *says, "{protocol:?}: {hears}");
        }
        assert!(pair.is_open(), "{protocol:?}");
        for (hears, says) in further {
            assert_eq!(pair.exchange(hears), *says, "{protocol:?}: {hears}");
        }
        let sent = message.replace("{}", &text);
        assert_eq!(pair.send(&text), sent, "{protocol:?}");
        let received = if protocol == SockJs { format!("a{sent}") } else { sent };
        assert_eq!(pair.exchange(&received), "", "{protocol:?}");
        assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives], "{protocol:?}");
        // In version 3, the clients ping.
        let interval = [EngineIo3, SocketIo2].contains(&protocol).then_some(Duration::from_secs(25));
        assert_eq!(pair.client.heartbeat_interval(), interval, "{protocol:?}");
        if interval.is_some() {
            assert_eq!(pair.heartbeat(), "2", "{protocol:?}");
        }
    }
}

#[test]
fn ping_intervals_of_servers_are_bounded() {
    for (interval, expect_ms) in [("0", 10), ("18446744073709551615", 3_600_000)] {
        let (mut pair, _) = Pair::upgraded(Protocol::EngineIo3);
        assert_eq!(pair.exchange(&OPEN.replace("25000", interval)), "");
        assert_eq!(pair.client.heartbeat_interval(), Some(Duration::from_millis(expect_ms)));
    }
}

#[test]
fn a_path_may_ask_for_another_version() {
    let spec = Spec { path: "/engine.io/?EIO=2".into(), ..spec(Protocol::EngineIo3) };
    assert_eq!(Dialect::new(&spec).path, "/engine.io/?EIO=2&transport=websocket");
}

#[test]
fn refusals_are_told() {
    check_complaints(
        Protocol::SocketIo,
        Opcode::Text,
        &[(r#"44{"message":"no"}"#, r#""no""#), ("41", "namespace")],
    );
    check_complaints(Protocol::SocketIo2, Opcode::Text, &[("44\"no\"", "no")]);
    check_complaints(Protocol::SockJs, Opcode::Text, &[("c[3000,\"Go away!\"]", "3000 Go")]);
    check_complaints(Protocol::EngineIo, Opcode::Text, &[("x", ""), ("1", "close packet")]);
}

/// (method, target, packets of the body)
pub(super) fn request(bytes: &[u8]) -> (String, String, Vec<String>) {
    let limits = http1::Limits::default();
    let end = HeadScanner::default().find_end(bytes, &limits).unwrap().unwrap();
    let request = parse_request(&bytes[..end], &limits).unwrap();
    let mut packets = Vec::new();
    if bytes.len() > end {
        let mut decoder = PayloadDecoder::new(PayloadFormat::Separated, &bytes[end..], 10).unwrap();
        while let Some(packet) = decoder.next_packet().unwrap() {
            packets.push(format!("{:?} {:?}", packet.kind, packet.data));
        }
    }
    (request.method().to_owned(), request.target().to_owned(), packets)
}

pub(super) fn answer(status: u16, body: &str) -> Vec<u8> {
    answer_bytes(status, body.as_bytes())
}

pub(super) fn answer_bytes(status: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_response_head(&mut out, status, &[("Content-Length", &body.len().to_string())]);
    out.extend_from_slice(body);
    out
}

#[test]
fn polling_asks_enters_polls_and_posts() {
    let mut pair = Pair::new(Protocol::SocketIoPolling);
    let base = "/socket.io/?EIO=4&transport=polling";
    let named = format!("{base}&sid=S-1");
    assert_eq!(request(&pair.main()), ("GET".to_owned(), base.to_owned(), vec![]));
    // The answer arrives in pieces.
    let opened = answer(200, OPEN);
    pair.react(Lane::Main, &opened[..30]);
    assert_eq!(pair.out.main, b"");
    pair.react(Lane::Main, &opened[30..]);
    let (method, target, packets) = request(&pair.main());
    assert_eq!((method.as_str(), &target, packets.len()), ("POST", &named, 1));
    pair.react(Lane::Main, &answer(200, "ok"));
    let get = ("GET".to_owned(), named.clone(), vec![]);
    assert_eq!(request(&pair.main()), get);
    assert!(!pair.is_open());
    pair.react(Lane::Main, &answer(200, "40{\"sid\":\"x\"}"));
    assert!(pair.is_open());
    assert_eq!(request(&pair.main()), get);
    assert!(pair.client.side_is_idle());

    // A ping and two messages in one body: the client posts the pong, and polls again at once.
    let (text, _) = numbered(9);
    let event = format!("42[\"message\",\"{text}\"]");
    pair.out.happened.clear();
    pair.react(Lane::Main, &answer(200, &format!("2\u{1e}{event}\u{1e}{event}")));
    assert_eq!(pair.out.happened.len(), 2);
    assert_eq!(request(&pair.main()), get);
    let (method, _, packets) = request(pair.side().as_bytes());
    assert_eq!((method.as_str(), packets), ("POST", vec![r#"Pong Text("")"#.to_owned()]));
    assert!(!pair.client.side_is_idle());

    // Messages sent in the meantime are in one POST, after the previous one is answered.
    for _ in 0..2 {
        pair.publish(&text);
    }
    assert_eq!(pair.out.side, b"");
    pair.react(Lane::Side, &answer(200, "ok"));
    assert_eq!(request(pair.side().as_bytes()).2.len(), 2);
    pair.react(Lane::Side, &answer(200, "ok"));
    assert!(pair.client.side_is_idle());
    assert!(pair.complains(Lane::Side, &answer(200, "ok")).contains("no request"));
    assert!(pair.complains(Lane::Main, &answer(400, "{\"code\":1}")).contains("400: {\"code\":1}"));
}

#[test]
fn polling_of_socket_io_2_counts_and_posts_pings() {
    let (text, arrives) = numbered(1);
    let event = format!(r#"42["message","{text}"]"#);
    let opened = format!("{}:{OPEN}2:40{}:{event}", OPEN.len(), event.len());
    let base = "/socket.io/?EIO=3&transport=polling";
    let opened = answer(200, &opened);
    for cut in 0..opened.len() {
        let mut pair = Pair::new(Protocol::SocketIo2Polling);
        assert_eq!(request(&pair.main()), ("GET".to_owned(), base.to_owned(), vec![]));
        pair.hear_cut(&opened, cut);
        assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives]);
        // The queue is empty, so the next poll begins.
        assert_eq!(request(&pair.main()), ("GET".to_owned(), format!("{base}&sid=S-1"), vec![]));
        pair.client.heartbeat(&pair.dialect, &mut pair.out);
        pair.publish(&text);
        let posted = pair.side();
        assert!(posted.starts_with("POST ") && posted.ends_with("\r\n\r\n1:2"), "{posted}");
        pair.react(Lane::Side, &answer(200, "ok"));
        let posted = pair.side();
        assert!(posted.ends_with(&format!("\r\n\r\n{}:{event}", event.len())), "{posted}");
        pair.react(Lane::Main, &answer(200, "1:3"));
        assert!(!pair.main().is_empty());
        // The same packets in bytes: 00 for text, the digits of the length, FF.
        let digits = event.len().to_string().bytes().map(|digit| digit - b'0').collect::<Vec<u8>>();
        let octets = [&[0][..], &digits, &[0xff], event.as_bytes(), &[0, 1, 0xff], b"3"].concat();
        pair.react(Lane::Main, &answer_bytes(200, &octets));
        assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives, arrives]);
    }
}

/// A payload of this size, and the event of its arrival.
pub(super) fn numbered_of(sequence: u64, bytes: usize) -> (String, ClientEvent) {
    let mut payload = blank(bytes);
    let head = Head { sequence, intended_ns: 5 };
    head.write(&mut payload);
    let arrives = ClientEvent::Payload { head: Some(head), payload_bytes: bytes as u64, clean: true };
    (String::from_utf8(payload).unwrap(), arrives)
}

pub(super) fn numbered(sequence: u64) -> (String, ClientEvent) {
    numbered_of(sequence, 60)
}

/// A streamed response: its head, and each of `pieces` in a chunk of its own.
fn streamed(content_type: &str, pieces: &[&str], ends: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let headers = [("Content-Type", content_type), ("Transfer-Encoding", "chunked")];
    write_response_head(&mut out, 200, &headers);
    for piece in pieces {
        http1::write_chunk(&mut out, piece.as_bytes());
    }
    if ends {
        http1::write_last_chunk(&mut out);
    }
    out
}

#[test]
fn xhr_streaming_reads_lines_and_asks_again() {
    let (text, arrives) = numbered(3);
    let prelude = "h".repeat(2048) + "\n";
    let frame = format!("a[\"{text}\",\"{text}\"]\n");
    let first = streamed("application/javascript", &[&prelude, "o\n", "h\n", &frame], true);
    // The response is cut at any place.
    for cut in (0..first.len()).step_by(7) {
        let mut pair = Pair::new(Protocol::SockJsStreaming);
        let (method, target, _) = request(&pair.main());
        assert_eq!((method.as_str(), target.split('/').count()), ("POST", 5), "{target}");
        assert!(target.starts_with("/sockjs/") && target.ends_with("/xhr_streaming"));
        pair.hear_cut(&first, cut);
        assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives, arrives]);
        // The next response continues the session, again with a prelude.
        assert_eq!(request(&pair.main()).1, target);
        pair.react(Lane::Main, &streamed("application/javascript", &[&prelude, &frame], false));
        assert_eq!(pair.out.happened.len(), 5);
        // Messages are sent on the side connection, one request after the other.
        for _ in 0..2 {
            pair.publish(&text);
        }
        let sent = pair.side();
        assert!(sent.starts_with("POST ") && sent.contains("/xhr_send ") && !pair.client.side_is_idle());
        assert!(sent.ends_with(&format!("\r\n\r\n[\"{text}\"]")), "{sent}");
        pair.react(Lane::Side, b"HTTP/1.1 204 No Content\r\n\r\n");
        assert!(pair.side().contains("/xhr_send "));
        assert!(pair.complains(Lane::Side, &answer(404, "no such session")).contains("no such session"));
    }
    let mut pair = Pair::new(Protocol::SockJsStreaming);
    let gone = streamed("application/javascript", &["o\nc[3000,\"Go away!\"]\n"], false);
    assert!(pair.complains(Lane::Main, &gone).contains("3000 Go"));
}

#[test]
fn an_event_stream_is_open_with_its_head() {
    let (text, _) = numbered(9);
    let event = format!("event: snapshot\nid: bench:1:2\ndata: \"{text}\"\n\n");
    let stream = streamed("text/event-stream", &["retry: 1000\n\n", ":\n\n", &event, &event], false);
    for cut in 0..stream.len() {
        let mut pair = Pair::new(Protocol::Sse);
        assert_eq!(request(&pair.main()).1, "/sse");
        pair.hear_cut(&stream, cut);
        // The quotes belong to the document.
        let head = Some(Head { sequence: 9, intended_ns: 5 });
        let arrives = ClientEvent::Payload { head, payload_bytes: 62, clean: true };
        assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives, arrives], "{cut}");
    }
    let mut pair = Pair::new(Protocol::Sse);
    let ended = streamed("text/event-stream", &[&event], true);
    assert!(pair.complains(Lane::Main, &ended).contains("end of its events"));
    let mut pair = Pair::new(Protocol::Sse);
    assert!(pair.complains(Lane::Main, &answer(400, "name a feed")).contains("400: name a feed"));
}

#[test]
fn lines_over_tcp_need_no_opening() {
    let mut pair = Pair::new(Protocol::Tcp);
    assert!(pair.is_open());
    let (text, arrives) = numbered(1);
    let lines = format!("{text}\n{text}\n{text}x");
    for cut in 0..lines.len() {
        pair.out.happened.clear();
        pair.client = pair.dialect.client();
        pair.hear_cut(lines.as_bytes(), cut);
        assert_eq!(pair.out.happened, [arrives, arrives]);
    }
    pair.publish(&text);
    assert_eq!(pair.main(), format!("{text}\n").as_bytes());
}
