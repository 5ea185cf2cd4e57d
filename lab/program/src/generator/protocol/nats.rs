//! The client protocol of NATS (docs.nats.io, "Client Protocol") over WebSocket: what is said besides the load.
//!
//! The protocol is a stream, cut into binary frames anywhere. It is read line by line: a payload of the load is a line as well,
//! behind one with `MSG` and its length, and the audit knows how long it has to be. A client subscribes to [`SUBJECT`] and asks for
//! a sign of life, whose answer says that the subscription is there.
//!
//! Deliberately absent: headers, replies, authentication.

use super::{Fault, Reaction};

/// Where the load's messages are published.
const SUBJECT: &str = "room";

/// A line that isn't the load's, of a session that `is_open` already or not.
pub(super) fn react(line: &[u8], is_open: bool) -> Result<Reaction, Fault> {
    let line = str::from_utf8(line).map_err(|_| Fault::Answer("a line that isn't text"))?.trim_end();
    Ok(match line.split(' ').next() {
        // It comes again when the server's cluster changes.
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
