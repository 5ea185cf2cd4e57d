//! Rooms of `stentor.v1` (docs/protocol.md), of which servers other than Stentor support a part: `welcome`, `ok`, `message` with a
//! string payload, and `presence`.

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ClientEvent, Fault};
use crate::payload::{HEAD_BYTES, Head, is_intact};

/// Subscribes to a room with presence.
pub(crate) const WATCH: &str = r#"{"type":"subscribe","room":"room","presence":true}"#;

/// Members that joined and left. A replaced member is another session of the same user.
#[derive(Deserialize)]
struct Presence {
    joined: Vec<IgnoredAny>,
    left: Vec<IgnoredAny>,
    #[serde(default)]
    replaced: Vec<IgnoredAny>,
    /// Number of members that aren't listed.
    #[serde(default)]
    more: u64,
}

/// Reads a message of the server. An answer becomes a payload of no bytes.
pub(super) fn react(message: &[u8]) -> Result<ClientEvent, Fault> {
    if let Some(message) = message.strip_prefix(br#"{"type":"message","room":""#) {
        let data = memmem::find(message, br#"","data":""#).map(|at| &message[at + 10..]);
        let payload = data.and_then(|data| data.strip_suffix(br#""}"#)).unwrap_or_default();
        return Ok(ClientEvent::Payload {
            head: payload.get(..HEAD_BYTES).and_then(Head::read),
            payload_bytes: payload.len() as u64,
            clean: is_intact(payload),
        });
    }
    if message.starts_with(br#"{"type":"presence""#) {
        let notice: Presence =
            serde_json::from_slice(message).map_err(|_| Fault::Answer("a notice that isn't stentor.v1's"))?;
        let listed = notice.joined.len() + notice.left.len() + 2 * notice.replaced.len();
        let payload_bytes = listed as u64 + notice.more;
        return Ok(ClientEvent::Payload { head: None, payload_bytes, clean: true });
    }
    if message.starts_with(br#"{"type":"welcome""#) {
        return Ok(ClientEvent::Opened);
    }
    if message.starts_with(br#"{"type":"ok""#) {
        return Ok(ClientEvent::Payload { head: None, payload_bytes: 0, clean: true });
    }
    Err(Fault::Ended(String::from_utf8_lossy(message).into_owned()))
}
