//! The wire formats of publications: how each is encoded, once per node.

use std::cell::RefCell;
use stentor_driver::{Frame, Meter};
use stentor_hub::{Body, Data, Encoder, FormatId, Position, Publication};
use stentor_wire::ws::{self, Deflater, Opcode};

/// A document's body alone, for answers over HTTP. Other publications are empty.
pub(crate) const BODY: FormatId = FormatId(0);
/// `stentor.v1` over WebSocket.
pub(crate) const WS_V1: FormatId = FormatId(1);
/// `stentor.v1` over WebSocket, deflated.
pub(crate) const WS_V1_DEFLATED: FormatId = FormatId(2);
/// Bodies only, over WebSocket.
pub(crate) const WS_RAW: FormatId = FormatId(3);
/// Bodies only, over WebSocket, deflated.
pub(crate) const WS_RAW_DEFLATED: FormatId = FormatId(4);

/// Window that shared deflated frames are made with (RFC 7692, 7.1.2.1). A client that asks for a smaller
/// one is sent plain frames, so that one deflated frame serves all.
pub(crate) const WINDOW_BITS: u8 = 15;

/// Encodes publications.
pub(crate) struct Formats {
    meter: Meter,
    deflater: RefCell<Deflater>,
    deflate_bytes_min: usize,
}

impl Formats {
    pub(crate) fn new(meter: Meter, deflate_level: u8, deflate_bytes_min: usize) -> Self {
        Self { meter, deflater: RefCell::new(Deflater::new(deflate_level)), deflate_bytes_min }
    }

    /// One WebSocket message in one frame.
    fn frame(&self, opcode: Opcode, parts: &[&[u8]], deflate: bool) -> Frame {
        let len = parts.iter().map(|p| p.len()).sum::<usize>();
        if deflate && len >= self.deflate_bytes_min {
            let whole = parts.concat();
            let mut deflater = self.deflater.borrow_mut();
            let deflated = deflater.deflate(&whole, WINDOW_BITS);
            if deflated.len() < len {
                let header = ws::server_header(opcode, deflated.len(), true);
                return Frame::shared(&[&header, deflated], &self.meter);
            }
        }
        let header = ws::server_header(opcode, len, false);
        let mut framed: Vec<&[u8]> = Vec::with_capacity(parts.len() + 1);
        framed.push(&header);
        framed.extend(parts);
        Frame::shared(&framed, &self.meter)
    }
}

impl Encoder for Formats {
    type Frame = Frame;

    fn len(frame: &Frame) -> usize {
        frame.len()
    }

    fn encode(&self, format: FormatId, publication: &Publication<Frame>) -> Option<Frame> {
        let body = publication.body();
        let deflate = matches!(format, WS_V1_DEFLATED | WS_RAW_DEFLATED);
        match (format, body) {
            (BODY, Body::Snapshot { document, .. }) => Some(Frame::shared(&[&document.body], &self.meter)),
            (BODY, _) => Some(Frame::owned(Vec::new())),
            (WS_RAW | WS_RAW_DEFLATED, Body::Snapshot { document, .. }) => {
                let opcode = if document.json || std::str::from_utf8(&document.body).is_ok() {
                    Opcode::Text
                } else {
                    Opcode::Binary
                };
                Some(self.frame(opcode, &[&document.body], deflate))
            }
            (WS_RAW | WS_RAW_DEFLATED, Body::Message { event, data, .. }) => Some(match (event, data) {
                (None, Data::Binary(bytes)) => self.frame(Opcode::Binary, &[bytes], deflate),
                (None, Data::Json(bytes) | Data::Text(bytes)) => self.frame(Opcode::Text, &[bytes], deflate),
                (None, data @ Data::Arguments { .. }) => {
                    self.frame(Opcode::Text, &[&json_value(data)], deflate)
                }
                (Some(event), Data::Arguments { json, .. }) => {
                    let comma: &[u8] = if json.is_empty() { b"" } else { b"," };
                    self.frame(Opcode::Text, &[b"[", &json_string(event), comma, json, b"]"], deflate)
                }
                (Some(event), data) => {
                    let (name, value) = (json_string(event), json_value(data));
                    self.frame(Opcode::Text, &[b"[", &name, b",", &value, b"]"], deflate)
                }
            }),
            (WS_RAW | WS_RAW_DEFLATED, Body::State { .. }) => None,
            (WS_V1 | WS_V1_DEFLATED, body) => {
                let (head, data, tail) = v1(body);
                Some(self.frame(Opcode::Text, &[&head, data.as_deref().unwrap_or_default(), tail], deflate))
            }
            (other, _) => unreachable!("no session is opened with format {}", other.0),
        }
    }
}

/// A publication as a message of `stentor.v1`, in three parts so that a document isn't copied twice.
fn v1(body: &Body) -> (Vec<u8>, Option<Cow<'_>>, &'static [u8]) {
    let mut head = Vec::with_capacity(128);
    match body {
        Body::Message { room, event, data, position } => {
            head.extend_from_slice(br#"{"type":"message","room":"#);
            head.extend_from_slice(&json_string(room.name()));
            if let Some(event) = event {
                head.extend_from_slice(br#","event":"#);
                head.extend_from_slice(&json_string(event));
            }
            if let Some(position) = position {
                write_position(&mut head, *position);
            }
            if matches!(data, Data::Binary(_)) {
                head.extend_from_slice(br#","encoding":"base64""#);
            }
            head.extend_from_slice(br#","data":"#);
            (head, Some(json_value(data)), b"}")
        }
        Body::Snapshot { key, position, state, document } => {
            head.extend_from_slice(br#"{"type":"snapshot","feed":"#);
            head.extend_from_slice(&json_string(key.as_str()));
            write_position(&mut head, *position);
            head.extend_from_slice(br#","state":""#);
            head.extend_from_slice(state.as_str().as_bytes());
            head.extend_from_slice(br#"","data":"#);
            let data = if document.json {
                Cow::Borrowed(&document.body[..])
            } else {
                json_value(&Data::Text(document.body.clone())).into_owned().into()
            };
            (head, Some(data), b"}")
        }
        Body::State { key, state, reason } => {
            head.extend_from_slice(br#"{"type":"state","feed":"#);
            head.extend_from_slice(&json_string(key.as_str()));
            head.extend_from_slice(br#","state":""#);
            head.extend_from_slice(state.as_str().as_bytes());
            head.extend_from_slice(br#"","reason":"#);
            head.extend_from_slice(&json_string(reason));
            (head, None, b"}")
        }
    }
}

type Cow<'a> = std::borrow::Cow<'a, [u8]>;

fn write_position(out: &mut Vec<u8>, position: Position) {
    out.extend_from_slice(
        format!(r#","epoch":{},"offset":{}"#, position.epoch.0, position.offset).as_bytes(),
    );
}

/// A text as a JSON string.
pub(crate) fn json_string(text: &str) -> Vec<u8> {
    // Writing a string to memory can't fail; an empty string would be the answer if it did.
    serde_json::to_vec(text).unwrap_or_else(|_| b"\"\"".to_vec())
}

/// Data as a JSON value: JSON as it is, text as a string (bad UTF-8 replaced), bytes as base64, arguments as
/// an array (without their attachments).
fn json_value(data: &Data) -> Cow<'_> {
    match data {
        Data::Json(bytes) => Cow::Borrowed(bytes),
        Data::Text(bytes) => Cow::Owned(json_string(&String::from_utf8_lossy(bytes))),
        Data::Arguments { json, .. } => Cow::Owned([b"[", &json[..], b"]"].concat()),
        Data::Binary(bytes) => {
            use base64::Engine;
            Cow::Owned(json_string(&base64::engine::general_purpose::STANDARD.encode(bytes)))
        }
    }
}
