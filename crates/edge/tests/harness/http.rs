//! A raw HTTP client. It sends any bytes, well-formed or not, and parses answers strictly.

use super::{Stream, now, pass};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::time::Duration;
use stentor_wire::http1::{BodyDecoder, BodyKind, HeadScanner, Limits, parse_response};

/// The headers of a WebSocket handshake (RFC 6455).
pub(crate) const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A request with these headers and no body.
pub(crate) fn request(method: &str, target: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n")
}

pub(crate) struct Http {
    stream: Stream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header, or `""` if the response doesn't have it.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Http {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self { stream: Stream::connect(addr).unwrap(), buffer: Vec::new() }
    }

    /// Makes a client that uses this stream.
    pub(crate) fn over(stream: impl Into<Stream>) -> Self {
        Self { stream: stream.into(), buffer: Vec::new() }
    }

    pub(crate) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// The client's stream. All received bytes must have been used.
    pub(crate) fn into_stream(self) -> Stream {
        assert!(self.buffer.is_empty());
        self.stream
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes. Returns `false` if the server closes the connection first.
    pub(crate) fn send_if_open(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends a request. Returns the response.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request);
        self.response()
    }

    /// Sends `GET target`. Returns the response.
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.ask(request("GET", target, ""))
    }

    /// As `get`. Returns `None` if the server has closed the connection.
    pub(crate) fn get_if_open(&mut self, target: &str) -> Option<Response> {
        let sent = self.send_if_open(request("GET", target, ""));
        let is_open = sent && self.stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
        is_open.then(|| self.response())
    }

    pub(crate) fn finish_sending(&mut self) {
        self.stream.finish_sending();
    }

    /// Resets the connection, in a simulation.
    pub(crate) fn reset(&self) {
        self.stream.reset();
    }

    /// Reads from the stream without parsing. Returns the number of bytes.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> usize {
        super::read(&mut self.stream, bytes).unwrap()
    }

    /// Reads at least this many bytes without parsing, with a pause after each read. Checks that this takes longer than
    /// `least`.
    pub(crate) fn read_slowly(&mut self, bytes: usize, pause: Duration, least: Duration) {
        let begun = now();
        let mut buffer = vec![0; 256 * 1024];
        let mut left = bytes;
        while left > 0 {
            let n = self.read(&mut buffer);
            assert!(n > 0, "cut off with {left} bytes left after {:?}", now() - begun);
            left = left.saturating_sub(n);
            pass(pause);
        }
        assert!(now() - begun > least, "too fast to show anything");
    }

    /// Reads more bytes into the buffer. Returns `false` at the end of the stream.
    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        let n = super::read(&mut self.stream, &mut bytes).unwrap();
        self.buffer.extend_from_slice(&bytes[..n]);
        n > 0
    }

    pub(crate) fn response(&mut self) -> Response {
        self.response_to(false)
    }

    /// Reads the headers of the next response. `head` is `true` if it answers a HEAD request. Returns the framing of
    /// the body too.
    fn head(&mut self, head: bool) -> (Response, BodyKind) {
        let limits = Limits::default();
        let mut scanner = HeadScanner::default();
        let end = loop {
            if let Some(end) = scanner.find_end(&self.buffer, &limits).unwrap() {
                break end;
            }
            assert!(self.read_more(), "the stream ended: {:?}", String::from_utf8_lossy(&self.buffer));
        };
        let bytes: Vec<u8> = self.buffer.drain(..end).collect();
        let parsed = parse_response(&bytes, &limits).unwrap();
        let headers = parsed.headers().iter();
        let headers = headers.map(|(n, v)| (n.to_owned(), String::from_utf8_lossy(v).into_owned())).collect();
        (Response { status: parsed.status(), headers, body: Vec::new() }, parsed.body(head))
    }

    /// Reads the next response. `head` is `true` if it answers a HEAD request.
    pub(crate) fn response_to(&mut self, head: bool) -> Response {
        let (mut response, kind) = self.head(head);
        assert_ne!(kind, BodyKind::UntilClose, "every answer says where it ends");
        let mut decoder = BodyDecoder::new(kind);
        while !decoder.is_done() {
            if self.buffer.is_empty() {
                assert!(self.read_more(), "the stream ended in a body");
            }
            let decoded = decoder.decode(&self.buffer).unwrap();
            response.body.extend_from_slice(decoded.data);
            let consumed = decoded.consumed;
            self.buffer.drain(..consumed);
        }
        response
    }

    /// Reads the headers of a chunked response with status 200.
    pub(crate) fn stream_head(&mut self) -> Response {
        let (response, kind) = self.head(false);
        assert_eq!((response.status, kind), (200, BodyKind::Chunked));
        response
    }

    /// Reads the headers of a response whose body ends with the connection.
    pub(crate) fn endless_head(&mut self) -> Response {
        let (response, kind) = self.head(false);
        assert_eq!(kind, BodyKind::UntilClose);
        response
    }

    /// Reads the next bytes of a body without chunks.
    pub(crate) fn next_bytes(&mut self, bytes: usize) -> String {
        while self.buffer.len() < bytes {
            assert!(self.read_more(), "the stream ended: {:?}", String::from_utf8_lossy(&self.buffer));
        }
        String::from_utf8(self.buffer.drain(..bytes).collect()).unwrap()
    }

    /// Reads the next chunk. Returns `None` for the last chunk, which is empty.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let line = loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                break self.next_bytes(at + 1);
            }
            assert!(self.read_more(), "the stream ended in a chunk's size");
        };
        let bytes = usize::from_str_radix(line.trim_end(), 16).unwrap();
        let data = self.next_bytes(bytes + 2);
        assert_eq!(&data[bytes..], "\r\n");
        (bytes > 0).then(|| data[..bytes].to_owned())
    }

    /// Reads the next chunk, which must not be the last one.
    pub(crate) fn next_chunk(&mut self) -> String {
        self.chunk().expect("the stream has ended")
    }

    /// Checks that the server ends the connection without sending more bytes.
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }

    /// Returns the remaining bytes until the connection ends by a FIN or a reset.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        loop {
            let mut bytes = [0; 64 * 1024];
            match super::read(&mut self.stream, &mut bytes) {
                Ok(0) => break,
                Ok(n) => self.buffer.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("the server doesn't end the connection: {error}"),
            }
        }
        std::mem::take(&mut self.buffer)
    }
}
