//! Rooms of `stentor.v1` (docs/protocol.md), of which peers speak a part: `welcome`, `ok`, and `message` with a payload in a string.

use memchr::memmem;

use super::{ClientEvent, Fault};
use crate::payload::{HEAD_BYTES, Head, is_intact};

/// What a server's message says; an answer is a payload of no bytes.
pub(super) fn hear(message: &[u8]) -> Result<ClientEvent, Fault> {
    if let Some(message) = message.strip_prefix(br#"{"type":"message","room":""#) {
        let data = memmem::find(message, br#"","data":""#).map(|at| &message[at + 10..]);
        let payload = data.and_then(|data| data.strip_suffix(br#""}"#)).unwrap_or_default();
        return Ok(ClientEvent::Payload {
            head: payload.get(..HEAD_BYTES).and_then(Head::read),
            payload_bytes: payload.len() as u64,
            clean: is_intact(payload),
        });
    }
    if message.starts_with(br#"{"type":"welcome""#) {
        return Ok(ClientEvent::Opened);
    }
    if message.starts_with(br#"{"type":"ok""#) {
        return Ok(ClientEvent::Payload { head: None, payload_bytes: 0, clean: true });
    }
    Err(Fault::Ended(String::from_utf8_lossy(message).into_owned()))
}
