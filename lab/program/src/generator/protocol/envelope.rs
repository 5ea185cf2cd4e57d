//! Wraps payloads in the messages of a protocol, and unwraps them without parsing.
//!
//! An [`Envelope`] is the text around a payload, such as `42["message","` and `"]`. No character of a payload ([`crate::payload`])
//! is ever escaped, so a message is compared in place: the envelope byte by byte, the payload by its checksum. A message that
//! doesn't begin with the envelope is returned for the protocol to handle.
//!
//! Without an envelope, a message that begins with `"` is a JSON string around the payload, like the documents of feeds. The quotes
//! are checked and count as bytes of the payload.

use std::borrow::Cow;

use memchr::memmem;

use super::ClientEvent;
use crate::payload::{self, HEAD_BYTES, Head, SEQUENCE_DIGITS, TIMED_BYTES, is_padding};

/// Maximum size of a message without a payload (handshakes, heartbeats, other events) in bytes.
pub(super) const OTHER_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a message with one or more payloads in pieces, in bytes.
const GATHERED_BYTES_MAX: usize = 16 << 20;

/// Maximum number of bytes after a payload.
const TAIL_BYTES_MAX: usize = 7;

/// The text around payloads. See the module's documentation.
///
/// Invariant: `close` has at most [`TAIL_BYTES_MAX`] bytes.
#[derive(Debug)]
pub(super) struct Envelope {
    open: Box<[u8]>,
    /// The text between two payloads of one message. Empty if there is only one payload.
    between: Box<[u8]>,
    close: Box<[u8]>,
    /// `true` if the protocol sends non-payload messages in the same envelope. Their content doesn't begin with a
    /// digit.
    pub(super) around_others: bool,
    /// `true` if payloads are long enough for a time and a checksum besides their number.
    pub(super) has_checksums: bool,
}

impl Envelope {
    /// Parses a template with `*` in place of the payload, or two of them if a message may have several payloads.
    pub(super) fn around(template: &str) -> Self {
        let (open, rest) = template.split_once('*').unwrap_or((template, ""));
        let (between, close) = rest.split_once('*').unwrap_or(("", rest));
        assert!(close.len() <= TAIL_BYTES_MAX, "{close:?}");
        let [open, between, close] = [open, between, close].map(|part| part.as_bytes().into());
        Self { open, between, close, around_others: false, has_checksums: true }
    }

    /// Appends a message with this payload.
    pub(super) fn wrap(&self, out: &mut Vec<u8>, payload: &[u8]) {
        for part in [&self.open, payload, &self.close] {
            out.extend_from_slice(part);
        }
    }

    /// Returns `true` if payloads are processed before they are complete.
    fn is_streamed(&self) -> bool {
        self.has_checksums && self.between.is_empty()
    }

    /// Reads a whole message. Returns it if it has no payload. If a payload came in pieces, the message may lack the
    /// `streamed` bytes.
    fn read<'a>(
        &self,
        message: Cow<'a, [u8]>,
        streamed: Option<Streamed>,
        happened: &mut Vec<ClientEvent>,
    ) -> Result<Option<Cow<'a, [u8]>>, TooLong> {
        let Some(payload) = self.payload_of(&message) else {
            return if message.len() > OTHER_BYTES_MAX { Err(TooLong) } else { Ok(Some(message)) };
        };
        let quote = self.quote_of(payload);
        let close = if quote > 0 { b"\"" } else { &*self.close };
        let body = &payload[quote..];
        let (mut body, complete) = match body.strip_suffix(close) {
            Some(body) => (body, true),
            None => (body, false),
        };
        while !self.between.is_empty()
            && let Some(at) = memmem::find(body, &self.between)
        {
            happened.push(self.event(&body[..at], None, true, 0));
            body = &body[at + self.between.len()..];
        }
        happened.push(self.event(body, streamed, complete, quote + quote * usize::from(complete)));
        Ok(None)
    }

    /// The bytes after the envelope's beginning. `None` if the message has another beginning.
    fn payload_of<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        let payload = message.strip_prefix(&*self.open)?;
        let is_other = self.around_others && payload.first().is_some_and(|byte| !byte.is_ascii_digit());
        (!is_other).then_some(payload)
    }

    /// Number of bytes of a quote before a payload's head.
    fn quote_of(&self, payload: &[u8]) -> usize {
        usize::from(self.close.is_empty() && payload.first() == Some(&b'"'))
    }

    fn event(
        &self,
        payload: &[u8],
        streamed: Option<Streamed>,
        complete: bool,
        quote_bytes: usize,
    ) -> ClientEvent {
        let head_bytes = if self.has_checksums { HEAD_BYTES } else { SEQUENCE_DIGITS };
        let (head, rest) = payload.split_at_checked(head_bytes).unwrap_or((b"", payload));
        let intact = match streamed {
            Some(Streamed { checksum, .. }) => payload::has_checksum(head, payload::append(checksum, rest)),
            None if self.has_checksums => payload::is_intact(payload),
            None => !head.is_empty() && is_padding(rest),
        };
        let streamed_bytes = streamed.map_or(0, |streamed| streamed.bytes);
        ClientEvent::Payload {
            head: Head::read(head),
            payload_bytes: (payload.len() + quote_bytes) as u64 + streamed_bytes,
            clean: complete && intact,
        }
    }
}

/// A message without the envelope is longer than [`OTHER_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of over {OTHER_BYTES_MAX} bytes that isn't the load's")]
pub(in super::super) struct TooLong;

/// The middle of a payload, which isn't stored.
#[derive(Clone, Copy, Debug)]
struct Streamed {
    bytes: u64,
    /// The checksum of the head and of these bytes.
    checksum: u32,
}

/// Reads the messages of one connection, in pieces of any size. Pieces are gathered, except the middle of a payload that is alone in
/// its message: large payloads aren't copied.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    /// Received bytes of the message. Of a `streamed` payload, only the envelope, the header, and at most [`TAIL_BYTES_MAX`] bytes
    /// that may belong to the envelope.
    gathered: Vec<u8>,
    streamed: Option<Streamed>,
}

impl MessageReader {
    /// Consumes the next bytes of a message, which are the last ones if `ends`. Appends its payloads to `happened`.
    /// Returns a message without a payload.
    pub(super) fn take<'a>(
        &mut self,
        envelope: &Envelope,
        bytes: &'a [u8],
        ends: bool,
        happened: &mut Vec<ClientEvent>,
    ) -> Result<Option<Cow<'a, [u8]>>, TooLong> {
        if ends && self.gathered.is_empty() {
            return envelope.read(Cow::Borrowed(bytes), None, happened);
        }
        // The envelope, a possible quote, and the head.
        let start_bytes = envelope.open.len() + 1 + HEAD_BYTES;
        let (start, rest) = bytes.split_at(start_bytes.saturating_sub(self.gathered.len()).min(bytes.len()));
        self.gathered.extend_from_slice(start);
        if !self.stream(envelope, rest) {
            let is_payload = self.gathered.starts_with(&envelope.open);
            let bytes_max = if is_payload { GATHERED_BYTES_MAX } else { OTHER_BYTES_MAX };
            if self.gathered.len() + rest.len() > bytes_max {
                return Err(TooLong);
            }
            self.gathered.extend_from_slice(rest);
        }
        if !ends {
            return Ok(None);
        }
        envelope.read(Cow::Owned(std::mem::take(&mut self.gathered)), self.streamed.take(), happened)
    }

    /// Adds bytes after a payload's head to its checksum, if the payload is alone in its message. Returns `false` if it
    /// may not be alone.
    fn stream(&mut self, envelope: &Envelope, bytes: &[u8]) -> bool {
        let payload =
            envelope.payload_of(&self.gathered).filter(|_| envelope.is_streamed() && !bytes.is_empty());
        let Some(payload) = payload else { return false };
        let quote = envelope.quote_of(payload);
        let begin = envelope.open.len() + quote + HEAD_BYTES;
        let streamed = self.streamed.get_or_insert_with(|| Streamed {
            bytes: 0,
            checksum: payload::append(0, &payload[quote..quote + TIMED_BYTES]),
        });
        let had = self.gathered.len() - begin;
        let sure = (had + bytes.len()).saturating_sub(TAIL_BYTES_MAX);
        let (now, later) = bytes.split_at(sure.saturating_sub(had));
        let old = begin..begin + sure.min(had);
        streamed.checksum =
            payload::append(payload::append(streamed.checksum, &self.gathered[old.clone()]), now);
        streamed.bytes += sure as u64;
        self.gathered.drain(old);
        self.gathered.extend_from_slice(later);
        true
    }
}
