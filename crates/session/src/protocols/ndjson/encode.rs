//! Lines: each has one message and is a chunk of HTTP/1.1 (RFC 9112, 7.1). A response to HTTP/1.0 unwraps the chunks.
//!
//! Messages and publications have the same form, so pending deliveries can be sent as messages.

use crate::encode::{OwnWire, SharedFrames, json_string, v1};
use crate::message::{Envelope, Message};
use crate::model::{Body, Frame};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use stentor_wire::http1;

/// The only wire of NDJSON: messages of `stentor.v1`.
pub(crate) struct Lines;

/// Returns a JSON text without line ends. They can be replaced by spaces, because strings contain them only in escaped form.
fn line(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\r']) {
        Cow::Owned(text.replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(text)
    }
}

/// Appends one line.
pub(super) fn write_line(out: &mut Vec<u8>, text: &str) {
    http1::write_chunk(out, [line(text).as_bytes(), b"\n"].concat().as_slice());
}

/// Iterates over the lines in chunks, each with its line end.
pub(super) fn lines(mut chunks: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let head = chunks.iter().position(|byte| *byte == b'\n')?;
        let digits = std::str::from_utf8(&chunks[..head]).ok()?.trim_end();
        let bytes = usize::from_str_radix(digits, 16).ok()?;
        let (line, rest) = chunks[head + 1..].split_at_checked(bytes)?;
        chunks = rest.strip_prefix(b"\r\n")?;
        Some(line)
    })
}

impl OwnWire for Lines {
    fn protocol(&self) -> &'static str {
        "ndjson"
    }

    /// Appends a message as a line. Bytes become a string of base64.
    fn message(&self, out: &mut Vec<u8>, message: Message<'_>) {
        match message {
            Message::Text(text) => write_line(out, text),
            Message::Binary(bytes) => {
                let text = json_string(&STANDARD.encode(bytes));
                write_line(out, std::str::from_utf8(&text).unwrap_or_default());
            }
        }
    }

    fn publication(&self, frames: &SharedFrames, body: &Body, _envelope: Envelope) -> Option<Frame> {
        let mut chunk = Vec::new();
        write_line(&mut chunk, &v1(body).text());
        Some(frames.of(&[&chunk]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_chunk_without_other_line_ends() {
        let mut out = Vec::new();
        write_line(&mut out, "{\"a\":\r\n1}");
        write_line(&mut out, "{}");
        assert_eq!(out, b"a\r\n{\"a\":  1}\n\r\n3\r\n{}\n\r\n");
        let found: Vec<&[u8]> = lines(&out).collect();
        assert_eq!(found, [&b"{\"a\":  1}\n"[..], b"{}\n"]);
    }

    #[test]
    fn malformed_chunks_contain_no_lines() {
        for broken in [&b""[..], b"3", b"3\r\n", b"3\r\n{}", b"x\r\n{}\n\r\n", b"3\r\n{}\nxx"] {
            assert_eq!(lines(broken).count(), 0, "{broken:?}");
        }
    }
}
