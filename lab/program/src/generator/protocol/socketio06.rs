//! The messages in the WebSocket frames (draft 76, see `hixie`) of Socket.IO 0.6, after its `lib/socket.io/utils.js` and
//! `client.js`.
//!
//! A frame has one or more messages, each `~m~LENGTH~m~` and that number of UTF-16 units. The first one is the session's id. Those
//! that begin with `~h~` are heartbeats, answered with the same text; those with `~j~` are JSON. All others belong to the
//! application.

use super::socketio09::counted;
use super::{Fault, Reaction};

const MARK: &str = "~m~";
const HEARTBEAT: &[u8] = b"~h~";

/// Calls `each` for the messages of a frame.
pub(super) fn messages(frame: &[u8], each: impl FnMut(&str) -> Result<(), Fault>) -> Result<(), Fault> {
    let frame = str::from_utf8(frame).map_err(|_| Fault::Answer("a frame that isn't text"))?;
    counted(frame, MARK, each)
}

/// Handles a message that doesn't belong to the load. `is_open`: the session is already open.
pub(super) fn react(message: &[u8], is_open: bool) -> Reaction {
    match str::from_utf8(message) {
        _ if !is_open => Reaction::OPENED,
        Ok(heartbeat) if message.starts_with(HEARTBEAT) => Reaction::answer(heartbeat.to_owned()),
        _ => Reaction::NOTHING,
    }
}

/// Appends a message, which must be ASCII.
pub(super) fn write_message(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(format!("{MARK}{}{MARK}", message.len()).as_bytes());
    out.extend_from_slice(message);
}
