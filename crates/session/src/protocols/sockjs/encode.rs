//! Encodes messages and publications: as frames, and as records that wait for a request.

use crate::encode::{Own, OwnWire, SharedFrames, TEXT, content, record, unchunked};
use crate::message::{Envelope, Message};
use crate::model::{Body, Frame};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stentor_wire::sockjs::{self, Wrapping};
use stentor_wire::ws::{self, Opcode};

/// The frames of a transport. Publications for streaming transports are chunks of HTTP/1.1 (RFC 9112, 7.1); polls and HTTP/1.0
/// unwrap them with [`frame_of`]. Messages for a transport over HTTP are records.
pub(crate) struct Frames(Wrapping);

impl Frames {
    pub(crate) const WEBSOCKET: Self = Self(Wrapping::WebSocket);
    pub(crate) const XHR: Self = Self(Wrapping::Xhr);
    pub(crate) const EVENT_SOURCE: Self = Self(Wrapping::EventSource);
    pub(crate) const HTML_FILE: Self = Self(Wrapping::HtmlFile);
    pub(crate) const JSONP: Self = Self(Wrapping::Jsonp);
}

/// The wire of a transport.
pub(super) fn wire(wrapping: Wrapping) -> Own {
    match wrapping {
        Wrapping::WebSocket => Own::SockJsWebSocket,
        Wrapping::Xhr => Own::SockJsXhr,
        Wrapping::EventSource => Own::SockJsEventSource,
        Wrapping::HtmlFile => Own::SockJsHtmlFile,
        Wrapping::Jsonp => Own::SockJsJsonp,
    }
}

/// Returns the frame within an encoded publication.
pub(super) fn frame_of(wrapping: Wrapping, encoded: &[u8]) -> &[u8] {
    match wrapping {
        Wrapping::Xhr | Wrapping::EventSource | Wrapping::HtmlFile => unchunked(encoded),
        Wrapping::WebSocket | Wrapping::Jsonp => encoded,
    }
}

/// Appends a frame as a WebSocket message.
pub(super) fn write_to_socket(out: &mut Vec<u8>, estimate: usize, what: &sockjs::Frame<'_>) {
    ws::encode_with(out, Opcode::Text, estimate, |out| Wrapping::WebSocket.write(out, what));
}

impl OwnWire for Frames {
    fn protocol(&self) -> &'static str {
        "sockjs"
    }

    /// Appends a message. SockJS has no binary messages, so bytes are sent as base64.
    fn message(&self, out: &mut Vec<u8>, message: Message<'_>) {
        match (self.0, message) {
            (Wrapping::WebSocket, Message::Text(text)) => {
                write_to_socket(out, text.len() + 5, &sockjs::Frame::Messages(&[text]));
            }
            (_, Message::Text(text)) => record(out, TEXT, |out| out.extend_from_slice(text.as_bytes())),
            (_, Message::Binary(bytes)) => self.message(out, Message::Text(&STANDARD.encode(bytes))),
        }
    }

    /// Encodes a publication as a frame with one message.
    fn publication(&self, frames: &SharedFrames, body: &Body, envelope: Envelope) -> Option<Frame> {
        let plain = content(body, envelope)?;
        let text = plain.text();
        let mut frame = Vec::with_capacity(text.len() + text.len() / 8 + 64);
        self.0.write(&mut frame, &sockjs::Frame::Messages(&[&text]));
        Some(match self.0 {
            Wrapping::WebSocket => frames.of(&[&ws::server_header(Opcode::Text, frame.len(), false), &frame]),
            Wrapping::Xhr | Wrapping::EventSource | Wrapping::HtmlFile => frames.chunk(&frame),
            Wrapping::Jsonp => frames.of(&[&frame]),
        })
    }

    /// The frames of a client over HTTP depend on the request that will carry them, so pending deliveries become messages
    /// again. They are encoded as frames of `xhr`, which are the shortest.
    fn message_wire(&self) -> Option<Own> {
        (self.0 != Wrapping::WebSocket).then_some(Own::SockJsXhr)
    }

    fn append_message_of(&self, encoded: &[u8], out: &mut Vec<u8>) {
        if self.0 == Wrapping::WebSocket {
            return out.extend_from_slice(encoded);
        }
        let messages = Wrapping::Xhr.messages_of(frame_of(Wrapping::Xhr, encoded));
        let message = messages.and_then(|message| std::str::from_utf8(message).ok());
        if let Some(text) = message.and_then(stentor_json::string) {
            self.message(out, Message::Text(&text));
        }
    }
}
