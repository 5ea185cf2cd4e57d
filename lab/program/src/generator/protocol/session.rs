//! Messages of a connection besides the load: openings and heartbeats.
//!
//! Engine.IO opens with the server's open packet. In version 3, the client pings from then on. Socket.IO joins the
//! namespace `/` by CONNECT and its answer. Over Engine.IO 3, the server sends its CONNECT without a request. SockJS
//! opens with `o`.

use std::time::Duration;

use stentor_wire::engineio::{self, Data, Open, Packet, PacketKind};
use stentor_wire::primus::{self, FromServer};
use stentor_wire::socketio::{self, Body, Decoder, Role};
use stentor_wire::sockjs::{self, ServerFrame};
use stentor_wire::ws;

use super::{Fault, Protocol, Reaction, bayeux, centrifuge, mqtt, nats, socketio06, socketio09};

/// Minimum interval of heartbeats, even if a server requests a shorter one.
const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(10);
const HEARTBEAT_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// One client's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    protocol: Protocol,
    /// Interval of the client's heartbeats. `None` if it sends none.
    pub(super) heartbeat_interval: Option<Duration>,
    /// `true` once a message has opened the session. Used by Socket.IO 0.6, whose first message has no other mark, and
    /// by NATS.
    pub(super) is_open: bool,
    /// The client's id for Bayeux.
    pub(super) client_id: String,
}

impl Session {
    pub(super) fn new(protocol: Protocol) -> Self {
        let heartbeat_interval = match protocol {
            Protocol::Primus6 => Some(PRIMUS_HEARTBEAT_INTERVAL),
            Protocol::Mqtt => Some(mqtt::HEARTBEAT_INTERVAL),
            _ => None,
        };
        Self { protocol, heartbeat_interval, ..Self::default() }
    }

    /// Returns `true` if the load may begin as soon as the WebSocket is open.
    pub(super) fn opens_at_once(&self) -> bool {
        matches!(self.protocol, Protocol::WebSocket | Protocol::Primus | Protocol::Primus6)
    }

    /// First message of the client after the WebSocket handshake.
    pub(super) fn greeting(&self) -> Option<&'static [u8]> {
        match self.protocol {
            Protocol::Bayeux => Some(bayeux::HANDSHAKE.as_bytes()),
            Protocol::Centrifuge => Some(centrifuge::CONNECT.as_bytes()),
            Protocol::Mqtt => Some(mqtt::GREETING),
            _ => None,
        }
    }

    /// The client's heartbeat.
    pub(super) fn heartbeat(&self) -> &'static [u8] {
        match self.protocol {
            Protocol::Primus6 => PRIMUS_PING.as_bytes(),
            Protocol::Mqtt => mqtt::PING,
            _ => PING.as_bytes(),
        }
    }

    /// Handles a message, or a line of a stream, that doesn't belong to the load.
    pub(super) fn react_to_message(&mut self, message: &[u8]) -> Result<Reaction, Fault> {
        let reaction = match self.protocol {
            // Without an envelope, all messages are payloads. Lines of events may also be comments and other fields.
            Protocol::WebSocket
            | Protocol::Tcp
            | Protocol::Sse
            | Protocol::StentorV1
            | Protocol::Rooms
            | Protocol::PublishApi => Reaction::NOTHING,
            Protocol::SockJs | Protocol::SockJsStreaming => react_to_frame(message)?,
            Protocol::SocketIo07 | Protocol::SocketIo09 | Protocol::SocketIo09Polling => {
                socketio09::react(message)?
            }
            Protocol::SocketIo06 => socketio06::react(message, self.is_open),
            Protocol::Primus | Protocol::Primus6 => react_to_primus(self.protocol, message)?,
            Protocol::Bayeux => bayeux::react(message, &mut self.client_id)?,
            Protocol::Centrifuge => centrifuge::react(message)?,
            Protocol::Nats => nats::react(message, self.is_open)?,
            Protocol::Mqtt => mqtt::react(message)?,
            Protocol::EngineIo
            | Protocol::EngineIo3
            | Protocol::SocketIo
            | Protocol::SocketIoPolling
            | Protocol::SocketIo2
            | Protocol::SocketIo2Polling => {
                let version = self.protocol.engine().unwrap_or(engineio::Version::V4);
                let mut scratch = Vec::new();
                let message = ws::Kind::Text.message(message).ok_or(engineio::Error::BadUtf8)?;
                self.react_to_packet(engineio::decode_message(version, message, &mut scratch)?)?
            }
        };
        self.is_open |= reaction.opened;
        Ok(reaction)
    }

    /// Handles an Engine.IO packet that doesn't belong to the load.
    pub(super) fn react_to_packet(&mut self, packet: Packet<'_>) -> Result<Reaction, Fault> {
        let is_v3 = self.protocol.engine() == Some(engineio::Version::V3);
        match (packet.kind, packet.data) {
            (PacketKind::Open, Data::Text(text)) => {
                let open = Open::parse(text)?;
                let heartbeat_interval =
                    open.ping_interval.clamp(HEARTBEAT_INTERVAL_MIN, HEARTBEAT_INTERVAL_MAX);
                self.heartbeat_interval = is_v3.then_some(heartbeat_interval);
                Ok(if self.protocol.is_bare_engine() {
                    Reaction::OPENED
                } else if is_v3 {
                    // The server grants the main namespace without a request.
                    Reaction::NOTHING
                } else {
                    Reaction::answer(CONNECT.to_owned())
                })
            }
            (PacketKind::Ping, Data::Text(text)) => Ok(Reaction::answer(format!("3{text}"))),
            (PacketKind::Close, _) => Err(Fault::Ended("a close packet".to_owned())),
            (PacketKind::Message, Data::Text(text)) if !self.protocol.is_bare_engine() => {
                let version = if is_v3 { socketio::Version::V4 } else { socketio::Version::V5 };
                react_to_socketio(version, text)
            }
            _ => Ok(Reaction::NOTHING),
        }
    }
}

/// Engine.IO's ping.
const PING: &str = "2";

/// The ping of Primus up to 6. It contains a time, which the server repeats and doesn't read.
const PRIMUS_PING: &str = "\"primus::ping::1388534400000\"";

/// Default interval of pings for clients of Primus up to 6.
const PRIMUS_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(25);

/// Output of `write_connect` for the main namespace, in an Engine.IO message; a test checks it.
const CONNECT: &str = "40";

fn react_to_socketio(version: socketio::Version, text: &str) -> Result<Reaction, Fault> {
    let mut decoder = Decoder::new(version, Role::Client);
    let Some(packet) = decoder.text(text, &socketio::Limits::default())? else {
        return Err(Fault::Ended("an event with attachments".to_owned()));
    };
    match packet.body {
        Body::Connect { .. } => Ok(Reaction::OPENED),
        Body::ConnectError { .. } => Err(Fault::Ended(format!("it refused the namespace: {text}"))),
        Body::Disconnect => Err(Fault::Ended("it disconnected the namespace".to_owned())),
        _ => Ok(Reaction::NOTHING),
    }
}

fn react_to_primus(protocol: Protocol, message: &[u8]) -> Result<Reaction, Fault> {
    let text = str::from_utf8(message).map_err(|_| Fault::Answer("a message that isn't text"))?;
    Ok(match primus::from_server(text) {
        FromServer::Ping(time) if protocol == Protocol::Primus => {
            let mut pong = Vec::new();
            primus::write_pong(&mut pong, time);
            Reaction::answer(String::from_utf8_lossy(&pong).into_owned())
        }
        FromServer::Close => return Err(Fault::Ended("the end".to_owned())),
        _ => Reaction::NOTHING,
    })
}

fn react_to_frame(message: &[u8]) -> Result<Reaction, Fault> {
    // The prelude of `xhr_streaming`, and the line feed at the end of a frame.
    if message.iter().all(|byte| *byte == b'h') {
        return Ok(Reaction::NOTHING);
    }
    let text = str::from_utf8(message).map_err(|_| Fault::SockJs(sockjs::Error::BadFrame))?;
    match ServerFrame::parse(text, &sockjs::Limits::default())? {
        ServerFrame::Open => Ok(Reaction::OPENED),
        ServerFrame::Close { code, reason } => Err(Fault::Ended(format!("{code} {reason}"))),
        ServerFrame::Heartbeat | ServerFrame::Messages(_) => Ok(Reaction::NOTHING),
    }
}
