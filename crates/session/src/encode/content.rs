//! The content of publications for plain sessions, before framing.

use super::json::{json_string, json_value, push_string};
use crate::message::{Envelope, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use stentor_hub::{Body, Data, Position};
use stentor_wire::ws::Opcode;

/// The member that marks a message whose `data` is base64 of bytes.
const BASE64: &[u8] = br#","encoding":"base64""#;

/// One message of a plain session, in parts so that a document isn't copied twice.
pub(crate) struct Plain<'a> {
    pub(super) opcode: Opcode,
    /// Bytes before the data.
    pub(crate) head: Vec<u8>,
    pub(super) data: Cow<'a, [u8]>,
    pub(super) tail: &'static [u8],
}

impl<'a> Plain<'a> {
    /// Makes a message of data without an envelope.
    pub(super) fn of(data: &'a Data) -> Self {
        let (opcode, data) = match data {
            Data::Binary(bytes) => (Opcode::Binary, Cow::Borrowed(&bytes[..])),
            Data::Json(bytes) | Data::Text(bytes) => (Opcode::Text, Cow::Borrowed(&bytes[..])),
            Data::Arguments { .. } => (Opcode::Text, json_value(data)),
        };
        Plain { opcode, head: Vec::new(), data, tail: b"" }
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.data.len() + self.tail.len()
    }

    /// The message as text, with bytes as base64.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        if self.opcode != Opcode::Text {
            return STANDARD.encode(&self.data).into();
        }
        if self.head.is_empty() && self.tail.is_empty() {
            return String::from_utf8_lossy(&self.data);
        }
        // The conversion can't fail: published text was checked when it arrived.
        String::from_utf8([&self.head, &self.data[..], self.tail].concat()).unwrap_or_default().into()
    }
}

impl<'a> From<Message<'a>> for Plain<'a> {
    fn from(message: Message<'a>) -> Self {
        let opcode = if message.text().is_some() { Opcode::Text } else { Opcode::Binary };
        Self { opcode, head: Vec::new(), data: Cow::Borrowed(message.bytes()), tail: b"" }
    }
}

/// Returns the content for a plain session. `None` if the session doesn't receive the publication.
pub(crate) fn content(body: &Body, envelope: Envelope) -> Option<Plain<'_>> {
    match envelope {
        Envelope::V1 => Some(v1(body)),
        Envelope::Raw | Envelope::SocketIo => raw(body),
    }
}

/// Returns a publication's body without an envelope. `None` for states, deltas and presence, which raw mode lacks.
pub(crate) fn raw(body: &Body) -> Option<Plain<'_>> {
    let plain = |opcode, data| Some(Plain { opcode, head: Vec::new(), data, tail: b"" });
    match body {
        Body::Snapshot { document, .. } => {
            let is_text = document.json || std::str::from_utf8(&document.body).is_ok();
            let opcode = if is_text { Opcode::Text } else { Opcode::Binary };
            plain(opcode, Cow::Borrowed(&document.body[..]))
        }
        Body::Message { event: None, data, .. } => Some(Plain::of(data)),
        Body::Message { event: Some(event), data, .. } => {
            // An event `message` with one string corresponds to a plain client's text message.
            if &**event == "message"
                && let Data::Arguments { json, attachments } = data
                && attachments.is_empty()
                && let Ok(text) = serde_json::from_slice::<String>(json)
            {
                return plain(Opcode::Text, Cow::Owned(text.into_bytes()));
            }
            let mut head = Vec::new();
            push_string(&mut head, "[", event);
            let data = match data {
                Data::Arguments { json, .. } => Cow::Borrowed(&json[..]),
                data => json_value(data),
            };
            if !data.is_empty() {
                head.push(b',');
            }
            Some(Plain { opcode: Opcode::Text, head, data, tail: b"]" })
        }
        // A session in raw mode receives only whole documents.
        Body::State { .. } | Body::Delta { .. } | Body::Presence { .. } => None,
    }
}

/// A publication as a message of `stentor.v1`.
pub(crate) fn v1(body: &Body) -> Plain<'_> {
    let mut head = Vec::with_capacity(128);
    let text = |head, data, tail| Plain { opcode: Opcode::Text, head, data, tail };
    match body {
        Body::Message { room, event, data, position } => {
            head.extend_from_slice(br#"{"type":"message""#);
            // A message to a single session has no room.
            if !room.is_all_members() {
                push_string(&mut head, r#","room":"#, room.name());
            }
            if let Some(event) = event {
                push_string(&mut head, r#","event":"#, event);
            }
            if let Some(position) = position {
                write_position(&mut head, *position);
            }
            if matches!(data, Data::Binary(_)) {
                head.extend_from_slice(BASE64);
            }
            head.extend_from_slice(br#","data":"#);
            // A single argument is the data itself. Several arguments become a list.
            let data = match data {
                Data::Arguments { json, .. }
                    if std::str::from_utf8(json)
                        .is_ok_and(|json| stentor_json::elements(json).count() == 1) =>
                {
                    Cow::Borrowed(&json[..])
                }
                data => json_value(data),
            };
            text(head, data, b"}")
        }
        Body::Snapshot { key, position, state, snapshot_reason, document } => {
            push_string(&mut head, r#"{"type":"snapshot","feed":"#, key.as_str());
            write_position(&mut head, *position);
            push_string(&mut head, r#","state":"#, state.as_str());
            if let Some(snapshot_reason) = snapshot_reason {
                push_string(&mut head, r#","reason":"#, snapshot_reason.as_str());
            }
            let data = if document.json {
                Cow::Borrowed(&document.body[..])
            } else if let Ok(document) = std::str::from_utf8(&document.body) {
                json_string(document).into()
            } else {
                head.extend_from_slice(BASE64);
                json_value(&Data::Binary(document.body.clone())).into_owned().into()
            };
            head.extend_from_slice(br#","data":"#);
            text(head, data, b"}")
        }
        Body::Delta { key, base, position, patch } => {
            push_string(&mut head, r#"{"type":"delta","feed":"#, key.as_str());
            let Position { epoch, offset } = position;
            let place = format!(r#","epoch":{},"base":{base},"offset":{offset},"patch":"#, epoch.0);
            head.extend_from_slice(place.as_bytes());
            text(head, Cow::Borrowed(&patch[..]), b"}")
        }
        Body::State { key, state, reason } => {
            push_string(&mut head, r#"{"type":"state","feed":"#, key.as_str());
            push_string(&mut head, r#","state":"#, state.as_str());
            push_string(&mut head, r#","reason":"#, reason);
            text(head, Cow::Borrowed(b""), b"}")
        }
        Body::Presence { notice, .. } => text(Vec::new(), Cow::Borrowed(&notice[..]), b""),
    }
}

fn write_position(out: &mut Vec<u8>, position: Position) {
    out.extend_from_slice(
        format!(r#","epoch":{},"offset":{}"#, position.epoch.0, position.offset).as_bytes(),
    );
}
