//! Bayeux 1.0 (the specification of CometD), as faye 1.4 serves it over WebSocket: all messages except those of the load.
//!
//! A message is a JSON array of objects. A client sends `/meta/handshake` and receives its id, subscribes to
//! [`CHANNEL`], and sends `/meta/connect`, the first time for an immediate answer. From then on it receives
//! publications. Later, the server chooses when to answer, and the client repeats `/meta/connect`. Each request is a
//! message of its own, because a server answers several in one message only when it can answer all. A client's
//! publication is acknowledged, and delivered to all clients including its sender. Ids of messages are left out, so
//! deliveries differ only in their data.
//!
//! Deliberately absent: advice, other transports, extensions.

use serde::Deserialize;

use super::{Fault, Reaction, is_plain};

/// The channel of the load's messages.
pub(super) const CHANNEL: &str = "/room";
/// The first message of a client.
pub(super) const HANDSHAKE: &str =
    r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket"]}]"#;

#[derive(Deserialize)]
struct Reply {
    channel: String,
    successful: Option<bool>,
    #[serde(rename = "clientId")]
    client_id: Option<String>,
    error: Option<String>,
}

/// Handles a message that doesn't belong to the load. `client_id` is set once the server has assigned it.
pub(super) fn react(message: &[u8], client_id: &mut String) -> Result<Reaction, Fault> {
    let replies: Vec<Reply> =
        serde_json::from_slice(message).map_err(|_| Fault::Answer("a message that isn't Bayeux"))?;
    let mut reaction = Reaction::NOTHING;
    for Reply { channel, successful, client_id: id, error } in replies {
        let is_meta = channel.starts_with("/meta/");
        if successful == Some(false) || is_meta && successful.is_none() {
            let error = error.unwrap_or_default();
            return Err(Fault::Ended(format!("a refusal of {channel}: {error}")));
        }
        match channel.as_str() {
            "/meta/handshake" => {
                let id = id.filter(|id| is_plain(id));
                *client_id = id.ok_or(Fault::Answer("a client id that is none"))?;
                reaction.answer = Some(format!(
                    r#"[{{"channel":"/meta/subscribe","clientId":"{client_id}","subscription":"{CHANNEL}"}}]"#
                ));
            }
            "/meta/subscribe" => reaction.answer = Some(connect(client_id, r#","advice":{"timeout":0}"#)),
            "/meta/connect" => {
                reaction.opened = true;
                reaction.answer = Some(connect(client_id, ""));
            }
            // Publications of other clients, and acknowledgements.
            _ => {}
        }
    }
    Ok(reaction)
}

fn connect(client_id: &str, more: &str) -> String {
    format!(r#"[{{"channel":"/meta/connect","clientId":"{client_id}","connectionType":"websocket"{more}}}]"#)
}

/// Appends a publication of this text, which needs no escaping.
pub(super) fn write_publication(out: &mut Vec<u8>, client_id: &str, text: &[u8]) {
    let begin = format!(r#"[{{"channel":"{CHANNEL}","clientId":"{client_id}","data":""#);
    for part in [begin.as_bytes(), text, b"\"}]"] {
        out.extend_from_slice(part);
    }
}
