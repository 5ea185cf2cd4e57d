//! A WebSocket client that uses the client role of `stentor-wire`. It can also break the protocol.

use super::{PATIENCE, Stream, now};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use stentor_wire::http1::{HeadScanner, Limits, parse_response};
use stentor_wire::ws::handshake::ClientHandshake;
use stentor_wire::ws::{self, Connection, Deflater, Event, Message, Opcode, Role, Shared};

const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

/// Messages and events from the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    Pong(Vec<u8>),
    /// A Close frame, with its code and reason.
    Closed(u16, String),
    /// The end of the stream.
    End,
}

pub(crate) struct Ws {
    stream: Stream,
    connection: Connection,
    shared: Shared,
    seen: VecDeque<Seen>,
    /// The status line and headers of the response to the handshake.
    pub head: String,
    answers_pings: bool,
}

impl Ws {
    /// Opens a WebSocket. Returns the status as an error if the server refuses.
    pub(crate) fn open(
        addr: SocketAddr,
        target: &str,
        headers: &[(&str, &str)],
        deflate: bool,
    ) -> Result<Self, u16> {
        Self::open_with(addr, target, headers, deflate, &[])
    }

    /// As `open`, and sends `glued` together with the handshake.
    pub(crate) fn open_with(
        addr: SocketAddr,
        target: &str,
        headers: &[(&str, &str)],
        deflate: bool,
        glued: &[u8],
    ) -> Result<Self, u16> {
        let stream = Stream::connect(addr).unwrap();
        let begun = Self::begin(stream, &addr.to_string(), target, headers, deflate, glued);
        let (stream, handshake) = begun.unwrap();
        Self::answered(stream, Some(&handshake))
    }

    /// Opens a WebSocket over this stream.
    pub(crate) fn over(stream: impl Into<Stream>, target: &str) -> Self {
        let begun = Self::begin(stream.into(), "localhost", target, &[], false, &[]);
        let (stream, handshake) = begun.unwrap();
        Self::answered(stream, Some(&handshake)).unwrap()
    }

    /// Sends a handshake. [`Self::answered`] reads the response.
    pub(crate) fn begin_open(addr: SocketAddr, target: &str) -> Stream {
        let stream = Stream::connect(addr).unwrap();
        Self::begin(stream, &addr.to_string(), target, &[], false, &[]).unwrap().0
    }

    fn begin(
        mut stream: Stream,
        host: &str,
        target: &str,
        headers: &[(&str, &str)],
        deflate: bool,
        glued: &[u8],
    ) -> std::io::Result<(Stream, ClientHandshake)> {
        let handshake = ClientHandshake::new([7; 16], deflate);
        let mut request = Vec::new();
        handshake.write_request(&mut request, host, target, headers);
        request.extend_from_slice(glued);
        stream.write_all(&request)?;
        Ok((stream, handshake))
    }

    /// Reads the response to a handshake that was sent over `stream`. Checks it if `handshake` is given.
    pub(crate) fn answered(
        stream: impl Into<Stream>,
        handshake: Option<&ClientHandshake>,
    ) -> Result<Self, u16> {
        let mut stream = stream.into();
        let limits = Limits::default();
        let mut scanner = HeadScanner::default();
        let mut buffer = Vec::new();
        let end = loop {
            if let Some(end) = scanner.find_end(&buffer, &limits).unwrap() {
                break end;
            }
            let mut bytes = [0; 16 * 1024];
            let n = super::read(&mut stream, &mut bytes).unwrap();
            assert!(n > 0, "the stream ended in the handshake");
            buffer.extend_from_slice(&bytes[..n]);
        };
        let response = parse_response(&buffer[..end], &limits).unwrap();
        if response.status() != 101 {
            return Err(response.status());
        }
        let deflate = handshake.and_then(|handshake| handshake.check_response(&response).unwrap());
        let mut this = Self {
            stream,
            connection: Connection::new(Role::Client, deflate),
            shared: Shared::new(ws::Limits { message_bytes_max: 64 << 20, fragments_max: 1 << 20 }),
            seen: VecDeque::new(),
            head: String::from_utf8_lossy(&buffer[..end]).into_owned(),
            answers_pings: true,
        };
        let mut rest = buffer[end..].to_vec();
        this.feed(&mut rest);
        Ok(this)
    }

    /// Stops answering pings.
    pub(crate) fn ignore_pings(&mut self) {
        self.answers_pings = false;
    }

    pub(crate) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    fn feed(&mut self, input: &mut [u8]) {
        let mut answers = Vec::new();
        let mut at = 0;
        while at < input.len() {
            let received = self.connection.receive(&mut self.shared, &mut input[at..], &mut answers);
            at += received.consumed;
            self.seen.extend(received.event.map(|event| match event {
                Event::Message(Message::Text(text)) => Seen::Text(text.to_owned()),
                Event::Message(Message::Binary(data)) => Seen::Binary(data.to_vec()),
                Event::Ping => Seen::Ping,
                Event::Pong(data) => Seen::Pong(data.to_vec()),
                Event::Closed { code, reason, error } => {
                    assert_eq!(error, None, "the server broke the protocol");
                    Seen::Closed(code, reason.to_owned())
                }
            }));
        }
        if self.answers_pings && !answers.is_empty() {
            // The server may have closed already.
            let _ = self.stream.write_all(&answers);
        }
    }

    /// The next message or event from the server.
    pub(crate) fn next(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return seen;
            }
            let mut bytes = vec![0; 256 * 1024];
            match super::read(&mut self.stream, &mut bytes) {
                Ok(0) => return Seen::End,
                Ok(n) => self.feed(&mut bytes[..n]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Seen::End,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// Opens a WebSocket. Returns an error if the server closes the connection at once.
    pub(crate) fn open_if_accepted(addr: SocketAddr, target: &str, deflate: bool) -> std::io::Result<Self> {
        let (mut stream, handshake) =
            Self::begin(Stream::connect(addr)?, &addr.to_string(), target, &[], deflate, &[])?;
        let mut byte = [0];
        if stream.peek(&mut byte)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Self::answered(stream, Some(&handshake)).map_err(|_| ErrorKind::ConnectionRefused.into())
    }

    /// Returns `true` if an answer of type `ok` arrives before an error and before the end.
    pub(crate) fn answers_ok(&mut self) -> bool {
        loop {
            match self.next() {
                Seen::Text(text) if text.contains(r#""type":"ok""#) => return true,
                Seen::Text(text) if text.contains(r#""type":"error""#) => return false,
                Seen::Closed(..) | Seen::End => return false,
                _ => {}
            }
        }
    }

    /// Reads up to `messages` messages, until the stream ends. Returns the number of read messages.
    pub(crate) fn read_some(&mut self, messages: usize) -> usize {
        (0..messages).take_while(|_| !matches!(self.next(), Seen::Closed(..) | Seen::End)).count()
    }

    /// Sends a message. Returns `false` if the server has closed the connection.
    pub(crate) fn send_frame_if_open(&mut self, opcode: Opcode, payload: &[u8]) -> bool {
        self.stream.write_all(&frame(opcode, payload, true, false)).is_ok()
    }

    /// The next message or end. Skips pings, which a slow machine may receive.
    fn next_message(&mut self) -> Seen {
        let deadline = now() + PATIENCE;
        loop {
            match self.next() {
                Seen::Ping if now() < deadline => {}
                seen => return seen,
            }
        }
    }

    pub(crate) fn next_text(&mut self) -> String {
        match self.next_message() {
            Seen::Text(text) => text,
            other => panic!("no text but {other:?}"),
        }
    }

    pub(crate) fn next_binary(&mut self) -> Vec<u8> {
        match self.next_message() {
            Seen::Binary(bytes) => bytes,
            other => panic!("not binary but {other:?}"),
        }
    }

    pub(crate) fn next_json(&mut self) -> Value {
        serde_json::from_str(&self.next_text()).unwrap()
    }

    /// Sends a text, and checks that the server echoes it.
    pub(crate) fn echoes(&mut self, text: &str) {
        self.send_text(text);
        assert_eq!(self.next_text(), text);
    }

    /// Checks that the next text is this JSON.
    pub(crate) fn expect_json(&mut self, expect: Value) {
        assert_eq!(self.next_json(), expect);
    }

    /// Returns the next close code and reason. Only pings may come before, and the connection must end after it.
    pub(crate) fn expect_close(&mut self) -> (u16, String) {
        let closed = loop {
            match self.next() {
                Seen::Ping => {}
                Seen::Closed(code, reason) => break (code, reason),
                other => panic!("no close but {other:?}"),
            }
        };
        assert_eq!(self.next(), Seen::End);
        closed
    }

    /// As `expect_close`, but skips pending messages before it.
    pub(crate) fn skip_to_close(&mut self) -> u16 {
        loop {
            match self.next() {
                Seen::Closed(code, _) => return code,
                Seen::End => panic!("the stream ended without a close"),
                _ => {}
            }
        }
    }

    /// Sends a ping. Returns the messages and events before its pong.
    pub(crate) fn fence(&mut self) -> Vec<Seen> {
        self.send_frame(Opcode::Ping, b"fence", true, false);
        let mut before = Vec::new();
        loop {
            match self.next() {
                Seen::Pong(payload) if payload == b"fence" => return before,
                Seen::End => panic!("the stream ended before the fence, after {before:?}"),
                other => before.push(other),
            }
        }
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.send_frame(Opcode::Text, text.as_bytes(), true, false);
    }

    pub(crate) fn send_binary(&mut self, bytes: &[u8]) {
        self.send_frame(Opcode::Binary, bytes, true, false);
    }

    pub(crate) fn send_json(&mut self, value: Value) {
        self.send_text(&value.to_string());
    }

    /// Sends a message of `stentor.v1` and checks that it is answered with `ok`.
    pub(crate) fn ask(&mut self, mut value: Value) {
        value["id"] = "asked".into();
        self.send_json(value);
        self.expect_json(serde_json::json!({"type": "ok", "id": "asked"}));
    }

    /// Sends a close frame.
    pub(crate) fn send_close(&mut self, code: u16, reason: &str) {
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(reason.as_bytes());
        self.send_frame(Opcode::Close, &payload, true, false);
    }

    pub(crate) fn send_frame(&mut self, opcode: Opcode, payload: &[u8], fin: bool, rsv1: bool) {
        self.send_raw(&frame(opcode, payload, fin, rsv1));
    }

    pub(crate) fn send_deflated(&mut self, text: &str) {
        let deflated = Deflater::new(6).deflate(text.as_bytes(), 15).to_vec();
        self.send_frame(Opcode::Text, &deflated, true, true);
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes. Returns `false` if the server closes the connection first.
    pub(crate) fn send_if_open(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }
}

/// A client's frame.
pub(crate) fn frame(opcode: Opcode, payload: &[u8], fin: bool, rsv1: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    ws::frame::encode_fragment(&mut bytes, opcode, payload, fin, rsv1, Some(MASK));
    bytes
}
