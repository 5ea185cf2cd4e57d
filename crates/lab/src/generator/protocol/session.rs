//! What is said on a connection besides the load: openings and heartbeats.

use stentor_wire::engineio::{self, Data, Open, Packet, PacketKind};
use stentor_wire::socketio::{self, Body, Decoder, Role};
use stentor_wire::sockjs::{self, ServerFrame};

use super::{Fault, Protocol};

/// What a session makes of what it hears.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard<'a> {
    /// Nothing is to be done.
    Nothing,
    /// The load may begin.
    Opened,
    /// This packet is to be sent.
    Reply(Packet<'a>),
}

/// One client's session.
#[derive(Debug)]
pub(super) struct Session {
    protocol: Protocol,
}

impl Session {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { protocol }
    }

    /// Whether the load may begin as soon as there is a WebSocket.
    pub(super) fn opens_at_once(&self) -> bool {
        self.protocol == Protocol::WebSocket
    }

    /// A WebSocket message that isn't the load's.
    pub(super) fn hear_message<'a>(
        &self,
        message: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<Heard<'a>, Fault> {
        match self.protocol {
            // Without an envelope there is no such message.
            Protocol::WebSocket | Protocol::Tcp | Protocol::Sse | Protocol::StentorV1 => Ok(Heard::Nothing),
            Protocol::SockJs | Protocol::SockJsStreaming => hear_frame(message),
            Protocol::EngineIo | Protocol::SocketIo | Protocol::SocketIoPolling => {
                let kind = stentor_wire::ws::Kind::Text;
                let packet = engineio::decode_message(engineio::Version::V4, kind, message, scratch)?;
                self.hear_packet(packet)
            }
        }
    }

    /// A line of a streaming response that isn't the load's.
    pub(super) fn hear_line(&self, line: &[u8]) -> Result<Heard<'static>, Fault> {
        match self.protocol {
            // The prelude of `xhr_streaming`, and the line that ends a frame.
            Protocol::SockJsStreaming if line.iter().all(|byte| *byte == b'h') => Ok(Heard::Nothing),
            Protocol::SockJsStreaming => hear_frame(line),
            // Comments, and the other fields of events.
            _ => Ok(Heard::Nothing),
        }
    }

    /// An Engine.IO packet that isn't the load's.
    pub(super) fn hear_packet<'a>(&self, packet: Packet<'a>) -> Result<Heard<'a>, Fault> {
        match (packet.kind, packet.data) {
            (PacketKind::Open, Data::Text(text)) => {
                Open::parse(text)?;
                Ok(match self.protocol {
                    Protocol::EngineIo => Heard::Opened,
                    // CONNECT to the main namespace.
                    _ => Heard::Reply(Packet::text(PacketKind::Message, CONNECT)),
                })
            }
            (PacketKind::Ping, data) => Ok(Heard::Reply(Packet { kind: PacketKind::Pong, data })),
            (PacketKind::Close, _) => Err(Fault::Ended("a close packet".to_owned())),
            (PacketKind::Message, Data::Text(text)) if self.protocol != Protocol::EngineIo => {
                hear_socketio(text)
            }
            _ => Ok(Heard::Nothing),
        }
    }
}

/// What `write_connect` makes of the main namespace, checked by a test.
const CONNECT: &str = "0";

fn hear_socketio(text: &str) -> Result<Heard<'_>, Fault> {
    let mut decoder = Decoder::new(socketio::Version::V5, Role::Client);
    let Some(packet) = decoder.text(text, &socketio::Limits::default())? else {
        return Err(Fault::Ended("an event with attachments".to_owned()));
    };
    match packet.body {
        Body::Connect { .. } => Ok(Heard::Opened),
        Body::ConnectError { .. } => Err(Fault::Ended(format!("it refused the namespace: {text}"))),
        Body::Disconnect => Err(Fault::Ended("it disconnected the namespace".to_owned())),
        _ => Ok(Heard::Nothing),
    }
}

fn hear_frame(message: &[u8]) -> Result<Heard<'static>, Fault> {
    let text = str::from_utf8(message).map_err(|_| Fault::SockJs(sockjs::Error::BadFrame))?;
    match ServerFrame::parse(text, &sockjs::Limits::default())? {
        ServerFrame::Open => Ok(Heard::Opened),
        ServerFrame::Close { code, reason } => Err(Fault::Ended(format!("{code} {reason}"))),
        ServerFrame::Heartbeat | ServerFrame::Messages(_) => Ok(Heard::Nothing),
    }
}
