//! A client of Engine.IO, and of Socket.IO on top of it: by polling, over a WebSocket, or upgraded from polling to a
//! WebSocket.

use super::{Http, Response, Seen, Server, Ws, request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::VecDeque;
use std::net::SocketAddr;
use stentor_wire::engineio::{Data, PayloadDecoder, PayloadEncoder, PayloadFormat, Version};
use stentor_wire::ws::Opcode;

/// The transport of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Polling,
    Socket,
    /// Upgraded from polling to a WebSocket.
    Moved,
}

pub(crate) const WAYS: [Way; 3] = [Way::Polling, Way::Socket, Way::Moved];
pub(crate) const VERSIONS: [Version; 2] = [Version::V4, Version::V3];
/// Each version over each transport.
pub(crate) const TRANSPORTS: [(Version, Way); 6] = [
    (Version::V4, Way::Polling),
    (Version::V4, Way::Socket),
    (Version::V4, Way::Moved),
    (Version::V3, Way::Polling),
    (Version::V3, Way::Socket),
    (Version::V3, Way::Moved),
];

/// A received packet, in the form of a WebSocket message: text begins with the digit of the packet's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Text(String),
    Binary(Vec<u8>),
    /// The end of the session. Over a WebSocket: the close code, or 1006 without a Close frame. By polling: status 503
    /// if the client is to reconnect, or 400 if the server doesn't know the session any more.
    End(u16),
}

enum Link {
    Polling { get: Http, post: Http, waits: bool },
    Socket(Ws),
}

pub(crate) struct Io {
    pub sid: String,
    /// The server's open packet.
    pub open: Value,
    /// The query of the client's requests, without the transport.
    query: String,
    path: &'static str,
    version: Version,
    addr: SocketAddr,
    link: Link,
    packets: VecDeque<Packet>,
    answers_pings: bool,
    acks: u64,
}

/// The packets in the response to a poll.
pub(crate) fn packets(version: Version, response: &Response) -> Vec<Packet> {
    assert_eq!(response.status, 200, "{}", response.text());
    let format = match (version, response.header("content-type").starts_with("application/octet-stream")) {
        (_, true) => PayloadFormat::Octets,
        (Version::V4, _) => PayloadFormat::Separated,
        (Version::V3, _) => PayloadFormat::Counted,
    };
    let mut decoder = PayloadDecoder::new(format, &response.body, usize::MAX).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = decoder.next_packet().unwrap() {
        packets.push(match packet.data {
            Data::Text(text) => Packet::Text(format!("{}{text}", char::from(packet.kind.digit()))),
            Data::Binary(bytes) => Packet::Binary(bytes.to_vec()),
        });
    }
    packets
}

/// The body of a POST with these packets.
pub(crate) fn body(version: Version, packets: &[&str]) -> String {
    match version {
        Version::V4 => packets.join("\u{1e}"),
        Version::V3 => {
            packets.iter().map(|packet| format!("{}:{packet}", packet.encode_utf16().count())).collect()
        }
    }
}

/// A POST request with this body.
pub(crate) fn post(target: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

impl Io {
    /// Opens an Engine.IO 4 session without Socket.IO.
    pub(crate) fn engine(server: &Server, way: Way) -> Self {
        Self::open(server.addr, "/engine.io/", Version::V4, way, "")
    }

    /// Opens an Engine.IO 4 session for Socket.IO, without connecting to a namespace.
    pub(crate) fn socket(server: &Server, way: Way) -> Self {
        Self::open(server.addr, "/socket.io/", Version::V4, way, "")
    }

    /// Opens a Socket.IO session that is connected to the main namespace.
    pub(crate) fn connected(server: &Server, version: Version, way: Way) -> Self {
        let mut this = Self::open(server.addr, "/socket.io/", version, way, "");
        this.connect("", Value::Null);
        this
    }

    /// Opens a session. `extra` is added to the query of its handshake.
    pub(crate) fn open(
        addr: SocketAddr,
        path: &'static str,
        version: Version,
        way: Way,
        extra: &str,
    ) -> Self {
        let number = if version == Version::V4 { 4 } else { 3 };
        let query = format!("EIO={number}");
        let (link, packets) = if way == Way::Socket {
            let ws =
                Ws::open(addr, &format!("{path}?{query}&transport=websocket{extra}"), &[], false).unwrap();
            (Link::Socket(ws), VecDeque::new())
        } else {
            let mut get = Http::connect(addr);
            let answer = get.get(&format!("{path}?{query}&transport=polling{extra}"));
            let packets = packets(version, &answer).into();
            (Link::Polling { get, post: Http::connect(addr), waits: false }, packets)
        };
        let mut this = Self::begun(addr, path, version, link, packets);
        if way == Way::Moved {
            this.upgrade();
        }
        this
    }

    /// A session that has begun with this response to a poll. `get` is the connection for polls.
    pub(crate) fn of_answer(
        addr: SocketAddr,
        path: &'static str,
        version: Version,
        get: Http,
        answer: &Response,
    ) -> Self {
        let packets = packets(version, answer).into();
        let link = Link::Polling { get, post: Http::connect(addr), waits: false };
        Self::begun(addr, path, version, link, packets)
    }

    /// A session that has begun on a WebSocket.
    pub(crate) fn of_ws(addr: SocketAddr, path: &'static str, version: Version, ws: Ws) -> Self {
        Self::begun(addr, path, version, Link::Socket(ws), VecDeque::new())
    }

    fn begun(
        addr: SocketAddr,
        path: &'static str,
        version: Version,
        link: Link,
        mut packets: VecDeque<Packet>,
    ) -> Self {
        let number = if version == Version::V4 { 4 } else { 3 };
        let query = format!("EIO={number}");
        let mut this = Self {
            sid: String::new(),
            open: Value::Null,
            query,
            path,
            version,
            addr,
            link,
            packets: VecDeque::new(),
            answers_pings: true,
            acks: 0,
        };
        let first = packets.pop_front().unwrap_or_else(|| this.receive());
        this.packets = packets;
        let Packet::Text(open) = first else { panic!("{first:?}") };
        this.open = serde_json::from_str(open.strip_prefix('0').unwrap()).unwrap();
        this.sid = this.open["sid"].as_str().unwrap().to_owned();
        this.query = format!("{}&sid={}", this.query, this.sid);
        this
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn is_polled(&self) -> bool {
        matches!(self.link, Link::Polling { .. })
    }

    /// Stops answering pings.
    pub(crate) fn ignore_pings(&mut self) {
        self.answers_pings = false;
    }

    /// The target of the session's requests with this transport.
    pub(crate) fn target(&self, transport: &str) -> String {
        format!("{}?{}&transport={transport}", self.path, self.query)
    }

    /// The session's WebSocket.
    pub(crate) fn ws(&mut self) -> &mut Ws {
        match &mut self.link {
            Link::Socket(ws) => ws,
            Link::Polling { .. } => panic!("it is polled"),
        }
    }

    /// The connection of the session's POST requests.
    pub(crate) fn posts(&mut self) -> &mut Http {
        match &mut self.link {
            Link::Polling { post, .. } => post,
            Link::Socket(_) => panic!("it isn't polled"),
        }
    }

    /// Sends a poll without waiting for the response, unless one is waiting already.
    pub(crate) fn begin_poll(&mut self) {
        let target = self.target("polling");
        if let Link::Polling { get, waits, .. } = &mut self.link
            && !std::mem::replace(waits, true)
        {
            get.send(request("GET", &target, ""));
        }
    }

    /// Reads the response to the waiting poll.
    pub(crate) fn end_poll(&mut self) -> Response {
        let Link::Polling { get, waits, .. } = &mut self.link else { panic!("it isn't polled") };
        assert!(std::mem::take(waits));
        get.response()
    }

    /// Opens a WebSocket for an upgrade.
    pub(crate) fn begin_upgrade(&self) -> Ws {
        Ws::open(self.addr, &self.target("websocket"), &[], false).unwrap()
    }

    /// Completes the upgrade to a probed WebSocket. All responses to polls have been read.
    pub(crate) fn end_upgrade(&mut self, mut ws: Ws) {
        ws.send_text("5");
        self.link = Link::Socket(ws);
    }

    /// As `end_upgrade`, with a waiting poll: reads its response after the upgrade packet has been sent.
    pub(crate) fn end_upgrade_waiting(&mut self, mut ws: Ws) {
        ws.send_text("5");
        let answer = self.end_poll();
        self.packets.extend(packets(self.version, &answer));
        self.link = Link::Socket(ws);
    }

    pub(crate) fn upgrade(&mut self) {
        let mut ws = self.begin_upgrade();
        ws.send_text("2probe");
        assert_eq!(ws.next_text(), "3probe");
        if matches!(self.link, Link::Polling { waits: true, .. }) {
            let answer = self.end_poll();
            self.packets.extend(packets(self.version, &answer));
        }
        self.end_upgrade(ws);
    }

    /// Returns the next packet of any kind.
    fn receive(&mut self) -> Packet {
        if let Some(packet) = self.packets.pop_front() {
            return packet;
        }
        match &mut self.link {
            Link::Socket(ws) => match ws.next() {
                Seen::Text(text) => Packet::Text(text),
                Seen::Binary(mut bytes) => {
                    if self.version == Version::V3 {
                        assert_eq!(bytes.remove(0), 4);
                    }
                    Packet::Binary(bytes)
                }
                Seen::Closed(code, _) => Packet::End(code),
                Seen::End => Packet::End(1006),
                other => panic!("{other:?}"),
            },
            Link::Polling { .. } => {
                self.begin_poll();
                let answer = self.end_poll();
                if let status @ (400 | 503) = answer.status {
                    return Packet::End(status);
                }
                self.packets.extend(packets(self.version, &answer));
                self.receive()
            }
        }
    }

    /// Returns the next packet with content. Pings are answered, and packets that only end a poll are skipped.
    pub(crate) fn next(&mut self) -> Packet {
        loop {
            match self.receive() {
                Packet::Text(ping) if ping == "2" && self.version == Version::V4 => {
                    if self.answers_pings {
                        self.send("3");
                    }
                }
                Packet::Text(noop) if noop == "6" => {}
                Packet::Text(close) if close == "1" => return Packet::End(0),
                packet => return packet,
            }
        }
    }

    pub(crate) fn next_text(&mut self) -> String {
        match self.next() {
            Packet::Text(text) => text,
            other => panic!("no text but {other:?}"),
        }
    }

    pub(crate) fn expect(&mut self, text: &str) {
        assert_eq!(self.next_text(), text);
    }

    /// Sends a packet, and checks that the server echoes it.
    pub(crate) fn echoes(&mut self, packet: &str) {
        self.send(packet);
        self.expect(packet);
    }

    /// Expects a ping of a version 4 server, without answering it.
    pub(crate) fn expect_ping(&mut self) {
        assert_eq!(self.receive(), Packet::Text("2".to_owned()));
    }

    /// Checks that the session ends next. Returns the code or status.
    pub(crate) fn expect_end(&mut self) -> u16 {
        match self.next() {
            Packet::End(code) => code,
            other => panic!("no end but {other:?}"),
        }
    }

    /// Sends text packets: by polling in one POST, otherwise one after the other.
    pub(crate) fn send_all(&mut self, packets: &[&str]) {
        self.begin_send(packets);
        self.end_send();
    }

    /// As `send_all`, without waiting for the response to the POST, which the server sends after it has handled all
    /// packets.
    pub(crate) fn begin_send(&mut self, packets: &[&str]) {
        let target = self.target("polling");
        match &mut self.link {
            Link::Socket(ws) => packets.iter().for_each(|packet| ws.send_text(packet)),
            Link::Polling { post: http, .. } => {
                let body = body(self.version, packets);
                http.send(post(&target, "text/plain;charset=UTF-8", body.as_bytes()));
            }
        }
    }

    /// Reads the response to the POST of `begin_send`, if the client polls.
    pub(crate) fn end_send(&mut self) {
        if let Link::Polling { post: http, .. } = &mut self.link {
            let answer = http.response();
            assert_eq!((answer.status, answer.text()), (200, "ok"));
        }
    }

    pub(crate) fn send(&mut self, packet: &str) {
        self.send_all(&[packet]);
    }

    /// Sends a binary message in a session that may have ended.
    pub(crate) fn send_binary_if_open(&mut self, bytes: &[u8]) {
        self.begin_send_binary(bytes);
        if let Link::Polling { post: http, .. } = &mut self.link {
            http.response();
        }
    }

    /// Sends a binary message.
    pub(crate) fn send_binary(&mut self, bytes: &[u8]) {
        self.begin_send_binary(bytes);
        self.end_send();
    }

    /// As `send_binary`, without waiting for the response to the POST.
    pub(crate) fn begin_send_binary(&mut self, bytes: &[u8]) {
        let target = self.target("polling");
        match (&mut self.link, self.version) {
            (Link::Socket(ws), version) => {
                let prefix: &[u8] = if version == Version::V3 { &[4] } else { &[] };
                ws.send_frame_if_open(Opcode::Binary, &[prefix, bytes].concat());
            }
            (Link::Polling { .. }, Version::V4) => {
                self.begin_send(&[&format!("b{}", STANDARD.encode(bytes))])
            }
            (Link::Polling { post: http, .. }, Version::V3) => {
                let mut body = Vec::new();
                PayloadEncoder::new(PayloadFormat::Octets, &mut body)
                    .push(&stentor_wire::engineio::Packet::binary(bytes));
                http.send(post(&target, "application/octet-stream", &body));
            }
        }
    }

    /// Connects to a namespace (`""` is the main one). Returns the server's answer.
    pub(crate) fn connect(&mut self, namespace: &str, auth: Value) -> Value {
        let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace},") };
        if self.version == Version::V4 {
            let auth = if auth.is_null() { String::new() } else { auth.to_string() };
            self.send(&format!("40{namespace}{auth}"));
        } else if !namespace.is_empty() {
            self.send(&format!("40{namespace}"));
        }
        let answer = self.next_text();
        let rest = answer.strip_prefix(&format!("40{namespace}")).unwrap_or_else(|| panic!("{answer}"));
        serde_json::from_str(rest).unwrap_or_default()
    }

    /// Sends an event in the main namespace. Returns the arguments of its acknowledgement, as a list.
    pub(crate) fn ask(&mut self, name: &str, arguments: &[Value]) -> Value {
        self.acks += 1;
        let number = self.acks;
        let mut event = vec![Value::from(name)];
        event.extend_from_slice(arguments);
        self.send(&format!("42{number}{}", Value::from(event)));
        let answer = self.next_text();
        let list = answer.strip_prefix(&format!("43{number}")).unwrap_or_else(|| panic!("{answer}"));
        serde_json::from_str(list).unwrap()
    }

    /// Reads the next event in the main namespace, as a list.
    pub(crate) fn event(&mut self) -> Value {
        let text = self.next_text();
        serde_json::from_str(text.strip_prefix("42").unwrap_or_else(|| panic!("{text}"))).unwrap()
    }

    /// Sends a close packet.
    pub(crate) fn leave(mut self) {
        self.send("1");
    }

    /// Ends the session. A polling client sends a close packet; over a WebSocket, the connection ends without one.
    pub(crate) fn leave_abruptly(self) {
        if self.is_polled() { self.leave() } else { self.cut() }
    }

    /// Ends the connections without a close packet. A polling client aborts a waiting poll.
    pub(crate) fn cut(mut self) {
        if let Link::Polling { .. } = self.link {
            self.begin_poll();
        }
    }
}
