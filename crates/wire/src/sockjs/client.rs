//! The client role: decodes a server's frames from WebSocket messages and from `xhr_streaming` and `xhr`
//! bodies.

use super::incoming::{parse_array, parse_single};
use super::{Error, Limits, Messages, Wrapping};
use std::borrow::Cow;
use stentor_json::{RawString, trim_start};

/// A decoded frame of a server.
#[derive(Debug, Clone)]
pub enum ServerFrame<'b> {
    /// A session has begun.
    Open,
    /// Heartbeat of the server.
    Heartbeat,
    /// Messages (`a`, or a single one as `m`, which only old servers send).
    Messages(Messages<'b>),
    /// The session is over.
    Close {
        /// The close code.
        code: u16,
        /// The reason, for people.
        reason: Cow<'b, str>,
    },
}

impl<'b> ServerFrame<'b> {
    /// Reads one frame without its wrapping.
    ///
    /// # Errors
    /// [`Error::BadFrame`], [`Error::TooManyMessages`].
    pub fn parse(text: &'b str, limits: &Limits) -> Result<Self, Error> {
        let broken = |error| if error == Error::TooManyMessages { error } else { Error::BadFrame };
        match text.as_bytes() {
            b"o" => Ok(ServerFrame::Open),
            b"h" => Ok(ServerFrame::Heartbeat),
            [b'a', ..] => parse_array(&text[1..], limits).map(ServerFrame::Messages).map_err(broken),
            [b'm', ..] => parse_single(&text[1..]).map(ServerFrame::Messages).map_err(broken),
            [b'c', ..] => parse_close(&text[1..]).ok_or(Error::BadFrame),
            _ => Err(Error::BadFrame),
        }
    }
}

/// Parses `[code,"reason"]`.
fn parse_close(text: &str) -> Option<ServerFrame<'_>> {
    let (code, rest) = trim_start(text).strip_prefix('[')?.split_once(',')?;
    let code = code.trim_matches([' ', '\t', '\n', '\r']);
    let code = code.bytes().all(|byte| byte.is_ascii_digit()).then(|| code.parse().ok())??;
    let (reason, rest) = RawString::read(trim_start(rest)).ok()?;
    let rest = trim_start(rest).strip_prefix(']')?;
    trim_start(rest).is_empty().then(|| ServerFrame::Close { code, reason: reason.unescape() })
}

/// The result of one [`FrameDecoder::receive`].
#[derive(Debug)]
pub struct Received<'a> {
    /// Number of input bytes that are processed.
    pub consumed: usize,
    /// The frame that these bytes complete.
    pub frame: Option<ServerFrame<'a>>,
}

/// Splits the body of an `xhr_streaming` or `xhr` response into frames. The prelude and empty lines are
/// skipped.
///
/// A frame that is complete in the input is read in place; a frame that arrives in pieces is copied first.
/// The caller must give up the response after an error.
#[derive(Debug)]
pub struct FrameDecoder {
    limits: Limits,
    frame_bytes_max: usize,
    /// The incomplete line, or the delivered one if `is_delivered`.
    /// Invariant: `gathered.len() <= frame_bytes_max`.
    gathered: Vec<u8>,
    is_delivered: bool,
}

impl FrameDecoder {
    /// Makes a decoder. `frame_bytes_max` limits one line; the prelude has 2,048 bytes.
    pub fn new(frame_bytes_max: usize, limits: Limits) -> Self {
        FrameDecoder { limits, frame_bytes_max, gathered: Vec::new(), is_delivered: false }
    }

    /// Processes the next bytes of the body, up to the end of one frame. Call it again with the remaining
    /// bytes.
    ///
    /// # Errors
    /// [`Error::BadFrame`], [`Error::FrameTooBig`], [`Error::TooManyMessages`].
    pub fn receive<'a>(&'a mut self, input: &'a [u8]) -> Result<Received<'a>, Error> {
        if std::mem::take(&mut self.is_delivered) {
            self.gathered.clear();
        }
        let end = memchr::memchr(b'\n', input);
        let piece = &input[..end.unwrap_or(input.len())];
        if piece.len() > self.frame_bytes_max - self.gathered.len() {
            return Err(Error::FrameTooBig);
        }
        if end.is_none() || !self.gathered.is_empty() {
            self.gathered.extend_from_slice(piece);
        }
        if end.is_none() {
            return Ok(Received { consumed: input.len(), frame: None });
        }
        self.is_delivered = true;
        let line = if self.gathered.is_empty() { piece } else { &self.gathered[..] };
        let consumed = piece.len() + 1;
        if line.len() != 1 && line.iter().all(|&byte| byte == b'h') {
            return Ok(Received { consumed, frame: None });
        }
        let text = simdutf8::basic::from_utf8(line).map_err(|_| Error::BadFrame)?;
        Ok(Received { consumed, frame: Some(ServerFrame::parse(text, &self.limits)?) })
    }
}

/// Appends a client's messages: the body of an `xhr_send`, or a WebSocket message.
pub fn write_messages(out: &mut Vec<u8>, messages: &[&str]) {
    out.push(b'[');
    Wrapping::WebSocket.write_joined(out, messages);
    out.push(b']');
}
