//! Centrifuge's client protocol as JSON over WebSocket (`client.proto` of github.com/centrifugal/protocol): all messages except
//! those of the load.
//!
//! A message has one or more replies or pushes, one per line. A client sends `connect`. The server subscribes it to the
//! channel `room`, and delivers publications from then on. `{}` is the server's ping, and also the client's answer. All
//! commands may have the same id, so the text around a payload never changes.
//!
//! Deliberately absent: subscribing by command, history, recovery, and presence except notices that a member joined or left.

use serde::Deserialize;
use serde_json::Value;

use super::{Fault, Reaction};

/// The first message of a client.
pub(super) const CONNECT: &str = r#"{"id":1,"connect":{}}"#;
const PING: &str = "{}";
/// A call whose answer is its own data.
pub(super) const CALL: &str = r#"{"id":2,"rpc":{"data":"*"}}"#;

#[derive(Deserialize)]
struct Reply {
    connect: Option<Value>,
    error: Option<Value>,
    push: Option<Push>,
}

#[derive(Deserialize)]
struct Push {
    disconnect: Option<Value>,
    join: Option<Value>,
    leave: Option<Value>,
}

/// Handles a line other than a payload: pings, replies, and pushes of joins, departures and disconnects.
pub(super) fn react(line: &[u8]) -> Result<Reaction, Fault> {
    if line == PING.as_bytes() {
        return Ok(Reaction::answer(PING.to_owned()));
    }
    // The end of a line may also end the message.
    if line.is_empty() {
        return Ok(Reaction::NOTHING);
    }
    let reply: Reply =
        serde_json::from_slice(line).map_err(|_| Fault::Answer("a message that isn't Centrifuge's"))?;
    if reply.push.as_ref().is_some_and(|push| push.join.is_some() || push.leave.is_some()) {
        return Ok(Reaction { changes: 1, ..Reaction::NOTHING });
    }
    let ended = reply.error.or_else(|| reply.push.and_then(|push| push.disconnect));
    match ended {
        Some(why) => Err(Fault::Ended(why.to_string())),
        None if reply.connect.is_some() => Ok(Reaction::OPENED),
        None => Ok(Reaction::NOTHING),
    }
}
