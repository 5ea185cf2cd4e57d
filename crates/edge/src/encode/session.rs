//! Messages, events and acknowledgements to one session, in the frames and packets of its protocol.

use super::frame::{BINARY, TEXT, frame, record};
use super::json_string;
use crate::message::{Arguments, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use stentor_json as json;
use stentor_wire::engineio::Version;
use stentor_wire::primus;
use stentor_wire::socketio::{self, Head};
use stentor_wire::sockjs::{self, Wrapping};
use stentor_wire::ws::{self, Opcode};

/// Where a packet or message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameTarget {
    /// Into a WebSocket message.
    WebSocket,
    /// Into a record that waits for a poll.
    Poll,
}

/// Where Engine.IO packets go, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineWriter {
    pub(crate) version: Version,
    pub(crate) target: FrameTarget,
}

/// How one session is written to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writer<'a> {
    /// A message is a WebSocket message.
    WebSocket,
    /// A message is an Engine.IO packet.
    Engine(EngineWriter),
    /// A message is a frame of SockJS, which has no bytes: they leave as base64.
    SockJs(FrameTarget),
    /// A message is a JSON value of Primus in a WebSocket message: with `is_value` text that is JSON leaves as that value,
    /// else as a string. Bytes leave as base64, and what a client would take for the protocol's own doesn't leave.
    Primus { is_value: bool },
    /// A message is an event of a Socket.IO namespace. What a client that can be recovered is sent goes through the hub
    /// instead, so that it has an offset; but for what is to be acknowledged, which carries none.
    SocketIo { engine: EngineWriter, namespace: &'a str },
}

fn websocket_message(out: &mut Vec<u8>, message: Message<'_>) {
    let (opcode, bytes) = match message {
        Message::Text(text) => (Opcode::Text, text.as_bytes()),
        Message::Binary(bytes) => (Opcode::Binary, bytes),
    };
    ws::encode(out, opcode, bytes, false, None);
}

/// A message of Primus: nothing where clients would take it for the protocol's own.
pub(super) fn write_primus(out: &mut Vec<u8>, text: &str, is_json: bool) {
    if is_json && !primus::is_reserved(text) {
        frame(out, Opcode::Text, text.len(), |out| primus::write_message(out, text));
    } else if !is_json && !text.starts_with(primus::PREFIX) {
        frame(out, Opcode::Text, text.len() + 2, |out| primus::write_text(out, text));
    }
}

impl Writer<'_> {
    /// The name of the session's protocol.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Engine(_) => "engineio",
            Self::SockJs(_) => "sockjs",
            Self::Primus { .. } => "primus",
            Self::SocketIo { .. } => "socketio",
        }
    }

    /// A message of a plain session; for Socket.IO the event `message` with one string, or with bytes.
    #[inline]
    pub(crate) fn message(self, out: &mut Vec<u8>, message: Message<'_>) {
        if let Self::WebSocket = self {
            websocket_message(out, message);
        } else {
            self.wrapped_message(out, message);
        }
    }

    fn wrapped_message(self, out: &mut Vec<u8>, message: Message<'_>) {
        match (self, message) {
            (Self::WebSocket, message) => websocket_message(out, message),
            (Self::Engine(engine), Message::Text(text)) => engine.packet(out, text.len() + 1, |out| {
                out.push(b'4');
                out.extend_from_slice(text.as_bytes());
            }),
            (Self::Engine(engine), Message::Binary(bytes)) => engine.binary(out, bytes),
            (Self::SockJs(FrameTarget::WebSocket), Message::Text(text)) => {
                frame(out, Opcode::Text, text.len() + 5, |out| {
                    Wrapping::WebSocket.write(out, &sockjs::Frame::Messages(&[text]));
                });
            }
            (Self::SockJs(FrameTarget::Poll), Message::Text(text)) => {
                record(out, TEXT, |out| out.extend_from_slice(text.as_bytes()));
            }
            (Self::SockJs(_) | Self::Primus { .. }, Message::Binary(bytes)) => {
                self.message(out, Message::Text(&STANDARD.encode(bytes)));
            }
            (Self::Primus { is_value }, Message::Text(text)) => {
                write_primus(out, text, is_value && json::check(text).is_ok());
            }
            (Self::SocketIo { .. }, Message::Text(text)) => {
                let json = json_string(text);
                let json = std::str::from_utf8(&json).unwrap_or("\"\"");
                self.event(out, "message", Arguments { json, attachments: &[] }, None);
            }
            (Self::SocketIo { .. }, Message::Binary(bytes)) => {
                let attachments = &[Bytes::copy_from_slice(bytes)];
                let json = r#"{"_placeholder":true,"num":0}"#;
                self.event(out, "message", Arguments { json, attachments }, None);
            }
        }
    }

    /// A Socket.IO event, with the number that its acknowledgement is to carry. Plain sessions get `["name", …]`.
    pub(crate) fn event(self, out: &mut Vec<u8>, name: &str, arguments: Arguments<'_>, ack: Option<u64>) {
        let Self::SocketIo { engine, namespace } = self else {
            let mut text = String::from("[");
            text.push_str(std::str::from_utf8(&json_string(name)).unwrap_or("\"\""));
            if !arguments.json.is_empty() {
                text.push(',');
                text.push_str(arguments.json);
            }
            text.push(']');
            let writer = if let Self::Primus { .. } = self { Self::Primus { is_value: true } } else { self };
            return writer.message(out, Message::Text(&text));
        };
        let Arguments { json, attachments } = arguments;
        let head = Head { id: ack, attachments: attachments.len(), ..Head::new(namespace) };
        let estimate = json.len() + name.len() + namespace.len() + 8;
        engine.socketio(out, estimate, attachments, |out| {
            socketio::write_event(out, &head, name, &[json]);
        });
    }

    /// The acknowledgement of a Socket.IO event.
    pub(crate) fn ack(self, out: &mut Vec<u8>, ack: u64, arguments: Arguments<'_>) {
        if let Self::SocketIo { engine, namespace, .. } = self {
            let Arguments { json, attachments } = arguments;
            engine.socketio(out, json.len() + namespace.len() + 8, attachments, |out| {
                socketio::write_ack(out, namespace, ack, attachments.len(), &[json]);
            });
        }
    }
}

impl EngineWriter {
    /// A packet that is text, about `estimate` bytes long.
    pub(crate) fn packet(self, out: &mut Vec<u8>, estimate: usize, write: impl FnOnce(&mut Vec<u8>)) {
        match self.target {
            FrameTarget::WebSocket => frame(out, Opcode::Text, estimate, write),
            FrameTarget::Poll => record(out, TEXT, write),
        }
    }

    /// A packet given whole.
    pub(crate) fn text(self, out: &mut Vec<u8>, packet: &str) {
        self.packet(out, packet.len(), |out| out.extend_from_slice(packet.as_bytes()));
    }

    /// A message that is bytes.
    pub(crate) fn binary(self, out: &mut Vec<u8>, bytes: &[u8]) {
        match self.target {
            FrameTarget::WebSocket => frame(out, Opcode::Binary, bytes.len() + 1, |out| {
                // Version 3 says in each binary message what it is (its number for a message is 4).
                if self.version == Version::V3 {
                    out.push(4);
                }
                out.extend_from_slice(bytes);
            }),
            FrameTarget::Poll => record(out, BINARY, |out| out.extend_from_slice(bytes)),
        }
    }

    /// A Socket.IO packet, whose text is about `estimate` bytes long, and its attachments.
    pub(crate) fn socketio(
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
