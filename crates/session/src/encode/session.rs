//! Encodes messages, events and acknowledgements to one session, in the frames and packets of its protocol.

use super::content::Plain;
use super::encoding::{Encoding, EngineFraming, Wire};
use super::frame::{BINARY, TEXT, record};
use super::json_string;
use crate::message::{Arguments, Message};
use bytes::Bytes;
use stentor_wire::socketio::{self, Head};
use stentor_wire::ws::{self, Opcode};

fn websocket_message(out: &mut Vec<u8>, message: Message<'_>) {
    let (opcode, bytes) = match message {
        Message::Text(text) => (Opcode::Text, text.as_bytes()),
        Message::Binary(bytes) => (Opcode::Binary, bytes),
    };
    ws::encode(out, opcode, bytes, false, None);
}

impl Encoding {
    /// Writes a message to a plain session. A Socket.IO session receives the event `message` with one string, or with
    /// bytes. Only Socket.IO uses the namespace.
    #[inline]
    pub fn message(self, namespace: &str, out: &mut Vec<u8>, message: Message<'_>) {
        if self.is_websocket() {
            websocket_message(out, message);
        } else {
            self.wrapped_message(namespace, out, message);
        }
    }

    fn wrapped_message(self, namespace: &str, out: &mut Vec<u8>, message: Message<'_>) {
        match (self.wire(), message) {
            (Wire::EngineIo(framing), message) => framing.message(out, &message.into()),
            (Wire::Own(wire), message) => wire.message(out, message),
            (Wire::SocketIo(_), Message::Text(text)) => {
                let json = json_string(text);
                let json = std::str::from_utf8(&json).unwrap_or("\"\"");
                self.event(namespace, out, "message", Arguments { json, attachments: &[] }, None);
            }
            (Wire::SocketIo(_), Message::Binary(bytes)) => {
                let attachments = &[Bytes::copy_from_slice(bytes)];
                let json = r#"{"_placeholder":true,"num":0}"#;
                self.event(namespace, out, "message", Arguments { json, attachments }, None);
            }
            (Wire::Document | Wire::Events | Wire::WebSocket { .. } | Wire::Custom(_), message) => {
                websocket_message(out, message);
            }
        }
    }

    /// Writes a Socket.IO event. With `ack`, the client acknowledges the event by this number. Plain sessions receive
    /// `["name", …]`. Events to recoverable sockets go through the hub instead: a client takes any string at the end of an
    /// event for its offset, so these events always end with an offset.
    #[inline]
    pub fn event(
        self,
        namespace: &str,
        out: &mut Vec<u8>,
        name: &str,
        arguments: Arguments<'_>,
        ack: Option<u64>,
    ) {
        let Wire::SocketIo(framing) = self.wire() else {
            return self.plain_event(namespace, out, name, arguments);
        };
        let Arguments { json, attachments } = arguments;
        let is_lone = ack.is_none() && attachments.is_empty() && namespace.len() == 1;
        if is_lone && framing != EngineFraming::Record && socketio::write_lone_event(out, name, json) {
            return;
        }
        let head = Head { id: ack, attachments: attachments.len(), ..Head::new(namespace) };
        let estimate = json.len() + name.len() + namespace.len() + 8;
        framing.socketio(out, estimate, attachments, |out| {
            socketio::write_event(out, &head, name, &[json]);
        });
    }

    /// Writes an event to a plain session.
    fn plain_event(self, namespace: &str, out: &mut Vec<u8>, name: &str, arguments: Arguments<'_>) {
        let mut text = String::from("[");
        text.push_str(std::str::from_utf8(&json_string(name)).unwrap_or("\"\""));
        if !arguments.json.is_empty() {
            text.push(',');
            text.push_str(arguments.json);
        }
        text.push(']');
        match self.wire() {
            Wire::Own(wire) => wire.json(out, &text),
            _ => self.message(namespace, out, Message::Text(&text)),
        }
    }

    /// Writes the acknowledgement of a Socket.IO event.
    pub fn ack(self, namespace: &str, out: &mut Vec<u8>, ack: u64, arguments: Arguments<'_>) {
        if let Wire::SocketIo(framing) = self.wire() {
            let Arguments { json, attachments } = arguments;
            framing.socketio(out, json.len() + namespace.len() + 8, attachments, |out| {
                socketio::write_ack(out, namespace, ack, attachments.len(), &[json]);
            });
        }
    }
}

impl EngineFraming {
    /// Writes a text packet of about `estimate` bytes.
    #[inline]
    pub(crate) fn packet(self, out: &mut Vec<u8>, estimate: usize, write: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Self::V4 | Self::V3 => ws::encode_with(out, Opcode::Text, estimate, write),
            Self::Record => record(out, TEXT, write),
        }
    }

    /// Writes a complete text packet.
    pub fn text(self, out: &mut Vec<u8>, packet: &str) {
        self.packet(out, packet.len(), |out| out.extend_from_slice(packet.as_bytes()));
    }

    /// Writes a binary message.
    pub(crate) fn binary(self, out: &mut Vec<u8>, bytes: &[u8]) {
        match self {
            Self::V4 => ws::encode(out, Opcode::Binary, bytes, false, None),
            Self::V3 => ws::encode_with(out, Opcode::Binary, bytes.len() + 1, |out| {
                // In version 3, each binary message begins with its packet type: 4 for a message.
                out.push(4);
                out.extend_from_slice(bytes);
            }),
            Self::Record => record(out, BINARY, |out| out.extend_from_slice(bytes)),
        }
    }

    /// Writes a message to a plain session.
    pub(super) fn message(self, out: &mut Vec<u8>, plain: &Plain<'_>) {
        if plain.opcode == Opcode::Text {
            self.packet(out, plain.len() + 1, |out| {
                out.push(b'4');
                for part in [&plain.head, &plain.data[..], plain.tail] {
                    out.extend_from_slice(part);
                }
            });
        } else {
            self.binary(out, &plain.data);
        }
    }

    /// Writes a Socket.IO packet, whose text has about `estimate` bytes, and its attachments.
    #[inline]
    pub fn socketio(
        self,
        out: &mut Vec<u8>,
        estimate: usize,
        attachments: &[Bytes],
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.packet(out, estimate, |out| {
            out.push(b'4');
            write(out);
        });
        for attachment in attachments {
            self.binary(out, attachment);
        }
    }
}

#[cfg(test)]
mod tests;
