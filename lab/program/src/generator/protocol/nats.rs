//! The client protocol of NATS (docs.nats.io, "Client Protocol") over WebSocket: all lines except those of the load.
//!
//! The protocol is a stream, which may be split into binary frames anywhere. It is read line by line. A payload of the
//! load is a line as well, after a line with `MSG` and its length, and the audit knows the expected length. A client
//! subscribes to [`SUBJECT`] and sends a ping, whose answer confirms the subscription.
//!
//! Deliberately absent: headers, replies, authentication.

use super::{Fault, Reaction};

/// The subject of the load's messages.
const SUBJECT: &str = "room";

/// Handles a line that doesn't belong to the load. `is_open`: the session is already open.
pub(super) fn react(line: &[u8], is_open: bool) -> Result<Reaction, Fault> {
    let line = str::from_utf8(line).map_err(|_| Fault::Answer("a line that isn't text"))?.trim_end();
    Ok(match line.split(' ').next() {
        // The server sends INFO again when its cluster changes.
        Some("INFO") if !is_open => Reaction::answer(format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"echo\":true}}\r\nSUB {SUBJECT} 1\r\nPING\r\n"
        )),
        Some("PONG") if !is_open => Reaction::OPENED,
        Some("PING") => Reaction::answer("PONG\r\n".to_owned()),
        Some("INFO" | "PONG" | "MSG" | "+OK") => Reaction::NOTHING,
        Some("-ERR") => return Err(Fault::Ended(line.to_owned())),
        _ => return Err(Fault::Answer("a line that isn't of NATS")),
    })
}

/// Appends a publication.
pub(super) fn write_publication(out: &mut Vec<u8>, text: &[u8]) {
    let head = format!("PUB {SUBJECT} {}\r\n", text.len());
    for part in [head.as_bytes(), text, b"\r\n"] {
        out.extend_from_slice(part);
    }
}
