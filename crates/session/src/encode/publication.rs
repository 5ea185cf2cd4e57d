//! Encodes publications: each once per format and node.

use super::content::{Plain, content, v1};
use super::encoding::{Encoding, EngineFraming, Wire};
use super::events::event;
use super::frame::SharedFrames;
use super::json::{json_string, json_value};
use bytes::Bytes;
use std::borrow::Cow;
use std::cell::RefCell;
use stentor_frame::{Frame, Meter};
use stentor_hub::{Body, Data, Encoder, FormatId, Publication};
use stentor_wire::socketio::{self, Head};
use stentor_wire::ws::{self, Deflater};

/// Window size of shared compressed frames (RFC 7692, 7.1.2.1). A client that requests a smaller window receives uncompressed
/// frames, so that one compressed frame serves all others.
pub(crate) const WINDOW_BITS: u8 = 15;

/// The events with which Socket.IO clients receive feeds and presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvents {
    /// The event's name.
    pub name: String,
    /// `true` if the event's argument is the document as a string, instead of an object with the document and its position.
    pub(crate) as_string: bool,
    /// The name of the event for presence.
    pub presence: String,
}

/// Writes a publication as a WebSocket message of a custom protocol.
type Encode = fn(&Body) -> Option<Data>;

/// Encodes publications.
pub struct Encodings {
    frames: SharedFrames,
    deflater: RefCell<Deflater>,
    deflate_bytes_min: usize,
    feeds: FeedEvents,
    custom: Vec<Encode>,
}

/// Socket.IO's placeholder for the first attachment.
const PLACEHOLDER: &[u8] = br#"{"_placeholder":true,"num":0}"#;

impl Encodings {
    /// Makes the encoders. `custom` are the encoders of custom protocols ([`Wire::Custom`]).
    pub fn new(
        meter: Meter,
        deflate_level: u8,
        deflate_bytes_min: usize,
        feeds: FeedEvents,
        custom: Vec<Encode>,
    ) -> Self {
        let deflater = RefCell::new(Deflater::new(deflate_level));
        Self { frames: SharedFrames::new(meter), deflater, deflate_bytes_min, feeds, custom }
    }

    /// Returns a frame with one WebSocket message.
    fn frame(&self, plain: &Plain<'_>, deflate: bool) -> Frame {
        let (Plain { opcode, head, data, tail }, len) = (plain, plain.len());
        if deflate && len >= self.deflate_bytes_min {
            let whole = [head, &data[..], tail].concat();
            let mut deflater = self.deflater.borrow_mut();
            let deflated = deflater.deflate(&whole, WINDOW_BITS);
            if deflated.len() < len {
                let header = ws::server_header(*opcode, deflated.len(), true);
                return self.frames.of(&[&header, deflated]);
            }
        }
        let header = ws::server_header(*opcode, len, false);
        self.frames.of(&[&header, head, data, tail])
    }

    /// Returns a frame with the Engine.IO packets that `write` appends.
    fn packets(&self, write: impl FnOnce(&mut Vec<u8>)) -> Frame {
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.frames.of(&[&bytes])
    }

    /// Returns a Socket.IO event. Feeds are in the main namespace.
    fn socketio(&self, framing: EngineFraming, publication: &Publication<Frame>, recovers: bool) -> Frame {
        let (mut namespace, mut name) = ("/", &*self.feeds.name);
        let mut attachments: &[Bytes] = &[];
        let one;
        let json: Cow<'_, [u8]> = match publication.body() {
            Body::Message { room, event, data, .. } => {
                namespace = room.namespace();
                name = event.as_deref().unwrap_or("message");
                match data {
                    Data::Arguments { json, attachments: several } => {
                        attachments = several;
                        Cow::Borrowed(json)
                    }
                    Data::Binary(bytes) => {
                        one = [bytes.clone()];
                        attachments = &one;
                        Cow::Borrowed(PLACEHOLDER)
                    }
                    data => json_value(data),
                }
            }
            Body::Presence { room, notice } => {
                (namespace, name) = (room.namespace(), &self.feeds.presence);
                Cow::Borrowed(notice)
            }
            Body::Snapshot { document, .. } if self.feeds.as_string => {
                match std::str::from_utf8(&document.body) {
                    Ok(text) => Cow::Owned(json_string(text)),
                    Err(_) => {
                        one = [document.body.clone()];
                        attachments = &one;
                        Cow::Borrowed(PLACEHOLDER)
                    }
                }
            }
            body => {
                let Plain { mut head, data, tail, .. } = v1(body);
                head.extend_from_slice(&data);
                head.extend_from_slice(tail);
                Cow::Owned(head)
            }
        };
        // A client that can be recovered takes a string at the end of any event for the offset, so every event ends with an
        // offset.
        let offset = match (recovers, publication.is_recoverable()) {
            (true, true) => write_offset(publication.id()),
            (true, false) if json.ends_with(b"\"") => "null".to_owned(),
            _ => String::new(),
        };
        // The conversion can't fail: published text was checked when it arrived.
        let json = std::str::from_utf8(&json).unwrap_or_default();
        let head = Head { attachments: attachments.len(), ..Head::new(namespace) };
        self.packets(|out| {
            framing.socketio(out, json.len() + name.len() + namespace.len() + 32, attachments, |out| {
                socketio::write_event(out, &head, name, &[json, &offset]);
            });
        })
    }
}

/// Returns a publication's id in the form that Socket.IO clients send back: a JSON string. 0 means that it has no id.
pub(crate) fn write_offset(id: u64) -> String {
    format!("\"{id:016x}\"")
}

/// Reads the offset that a client sends back. 0 means that the publication had no id.
pub(crate) fn parse_offset(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

impl Encoder for Encodings {
    type Frame = Frame;

    fn len(frame: &Frame) -> usize {
        frame.len()
    }

    fn encode(&self, format: FormatId, publication: &Publication<Frame>) -> Option<Frame> {
        let body = publication.body();
        let encoding = Encoding::from(format);
        let envelope = encoding.envelope();
        match encoding.wire() {
            Wire::Document => match body {
                Body::Snapshot { document, .. } => Some(self.frames.of(&[&document.body])),
                Body::Delta { .. } => None,
                Body::Message { .. } | Body::State { .. } => Some(Frame::owned(Vec::new())),
                Body::Presence { .. } => None,
            },
            Wire::WebSocket { deflated } => Some(self.frame(&content(body, envelope)?, deflated)),
            Wire::EngineIo(framing) => {
                let plain = content(body, envelope)?;
                Some(self.packets(|out| framing.message(out, &plain)))
            }
            Wire::SocketIo(framing) => {
                // A client that expects documents as strings expects no other events.
                let only_documents = self.feeds.as_string;
                if only_documents && matches!(body, Body::State { .. } | Body::Delta { .. }) {
                    return None;
                }
                Some(self.socketio(framing, publication, encoding.recovers()))
            }
            Wire::Own(wire) => wire.publication(&self.frames, body, envelope),
            Wire::Events => Some(self.frames.chunk(&event(body, encoding.has_ids())?)),
            Wire::Custom(place) => {
                let data = self.custom.get(usize::from(place))?(body)?;
                Some(self.frame(&Plain::of(&data), false))
            }
        }
    }
}
