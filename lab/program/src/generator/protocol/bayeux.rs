//! Bayeux 1.0 (the specification of CometD), as faye 1.4 serves it over WebSocket: what is said besides the load.
//!
//! A message is a JSON array of objects. A client says `/meta/handshake` and is named, subscribes to [`CHANNEL`], and says
//! `/meta/connect`, the first time for an answer at once: from then on it is delivered to. Later the server answers when it
//! likes, and the client says it again. Each is a message of its own, since a server answers several when it can answer
//! all. What a client publishes is acknowledged, and comes back as to everybody. Ids of messages are left out, so what is
//! delivered is always the same but for its data.
//!
//! Deliberately absent: advice, other transports, extensions.

use serde::Deserialize;

use super::{Fault, Heard, is_plain};

/// Where the load's messages are published.
pub(super) const CHANNEL: &str = "/room";
/// What a client says first.
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

/// A message that isn't the load's, to a client whose id, once it has one, is `client_id`.
pub(super) fn hear(message: &[u8], client_id: &mut String) -> Result<Heard, Fault> {
    let replies: Vec<Reply> =
        serde_json::from_slice(message).map_err(|_| Fault::Answer("a message that isn't Bayeux"))?;
    let mut heard = Heard::NOTHING;
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
                heard.say = Some(format!(
                    r#"[{{"channel":"/meta/subscribe","clientId":"{client_id}","subscription":"{CHANNEL}"}}]"#
                ));
            }
            "/meta/subscribe" => heard.say = Some(connect(client_id, r#","advice":{"timeout":0}"#)),
            "/meta/connect" => {
                heard.opened = true;
                heard.say = Some(connect(client_id, ""));
            }
            // What others say, and that they heard us.
            _ => {}
        }
    }
    Ok(heard)
}

fn connect(client_id: &str, more: &str) -> String {
    format!(r#"[{{"channel":"/meta/connect","clientId":"{client_id}","connectionType":"websocket"{more}}}]"#)
}

/// Appends a publication of this text, in which nothing is to be escaped.
pub(super) fn write_publication(out: &mut Vec<u8>, client_id: &str, text: &[u8]) {
    let begin = format!(r#"[{{"channel":"{CHANNEL}","clientId":"{client_id}","data":""#);
    for part in [begin.as_bytes(), text, b"\"}]"] {
        out.extend_from_slice(part);
    }
}
