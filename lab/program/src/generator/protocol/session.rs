//! What is said on a connection besides the load: openings and heartbeats.
//!
//! Engine.IO opens with the server's open packet; in version 3 the client pings from then on. Socket.IO joins the namespace
//! `/` by CONNECT and its answer; over Engine.IO 3 the server sends its CONNECT unasked. SockJS opens with `o`.

use std::time::Duration;

use stentor_wire::engineio::{self, Data, Open, Packet, PacketKind};
use stentor_wire::primus::{self, FromServer};
use stentor_wire::socketio::{self, Body, Decoder, Role};
use stentor_wire::sockjs::{self, ServerFrame};
use stentor_wire::ws;

use super::{Fault, Heard, Protocol, bayeux, centrifuge, mqtt, nats, socketio06, socketio09};

/// Between two signs of life that a server asks for; it is held to what makes sense.
const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(10);
const HEARTBEAT_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// One client's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    protocol: Protocol,
    /// How often the client says that it lives, where it has to.
    heartbeat_interval: Option<Duration>,
    /// Of Socket.IO 0.6, whose first message is known by nothing else, and of NATS.
    is_open: bool,
    /// Of Bayeux.
    client_id: String,
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

    /// Whether the load may begin as soon as there is a WebSocket.
    pub(super) fn opens_at_once(&self) -> bool {
        matches!(self.protocol, Protocol::WebSocket | Protocol::Primus | Protocol::Primus6)
    }

    /// What the client says as soon as there is a WebSocket.
    pub(super) fn greeting(&self) -> Option<&'static [u8]> {
        match self.protocol {
            Protocol::Bayeux => Some(bayeux::HANDSHAKE.as_bytes()),
            Protocol::Centrifuge => Some(centrifuge::CONNECT.as_bytes()),
            Protocol::Mqtt => Some(mqtt::GREETING),
            _ => None,
        }
    }

    /// Whether the load has begun; of Socket.IO 0.6 and NATS only.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Who the client is to a server of Bayeux's.
    pub(super) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// How often [`Self::heartbeat`] is to be said, once the session is open.
    pub(super) fn heartbeat_interval(&self) -> Option<Duration> {
        self.heartbeat_interval
    }

    /// The client lives.
    pub(super) fn heartbeat(&self) -> &'static [u8] {
        match self.protocol {
            Protocol::Primus6 => PRIMUS_PING.as_bytes(),
            Protocol::Mqtt => mqtt::PING,
            _ => PING.as_bytes(),
        }
    }

    /// A message, or a line of a stream, that isn't the load's.
    pub(super) fn hear_message(&mut self, message: &[u8]) -> Result<Heard, Fault> {
        match self.protocol {
            // Without an envelope there is no such message; of events, these are comments and other fields.
            Protocol::WebSocket
            | Protocol::Tcp
            | Protocol::Sse
            | Protocol::StentorV1
            | Protocol::Rooms
            | Protocol::PublishApi => Ok(Heard::NOTHING),
            Protocol::SockJs | Protocol::SockJsStreaming => hear_frame(message),
            Protocol::SocketIo07 | Protocol::SocketIo09 | Protocol::SocketIo09Polling => {
                socketio09::hear(message)
            }
            Protocol::SocketIo06 => {
                let heard = socketio06::hear(message, self.is_open);
                self.is_open |= heard.opened;
                Ok(heard)
            }
            Protocol::Primus | Protocol::Primus6 => hear_primus(self.protocol, message),
            Protocol::Bayeux => bayeux::hear(message, &mut self.client_id),
            Protocol::Centrifuge => centrifuge::hear(message),
            Protocol::Nats => {
                let heard = nats::hear(message, self.is_open)?;
                self.is_open |= heard.opened;
                Ok(heard)
            }
            Protocol::Mqtt => mqtt::hear(message),
            Protocol::EngineIo
            | Protocol::EngineIo3
            | Protocol::SocketIo
            | Protocol::SocketIoPolling
            | Protocol::SocketIo2
            | Protocol::SocketIo2Polling => {
                let version = self.protocol.engine().unwrap_or(engineio::Version::V4);
                let mut scratch = Vec::new();
                let message = ws::Kind::Text.message(message).ok_or(engineio::Error::BadUtf8)?;
                self.hear_packet(engineio::decode_message(version, message, &mut scratch)?)
            }
        }
    }

    /// An Engine.IO packet that isn't the load's.
    pub(super) fn hear_packet(&mut self, packet: Packet<'_>) -> Result<Heard, Fault> {
        let is_v3 = self.protocol.engine() == Some(engineio::Version::V3);
        match (packet.kind, packet.data) {
            (PacketKind::Open, Data::Text(text)) => {
                let open = Open::parse(text)?;
                let heartbeat_interval =
                    open.ping_interval.clamp(HEARTBEAT_INTERVAL_MIN, HEARTBEAT_INTERVAL_MAX);
                self.heartbeat_interval = is_v3.then_some(heartbeat_interval);
                Ok(if self.protocol.is_bare_engine() {
                    Heard::OPENED
                } else if is_v3 {
                    // The server grants the main namespace unasked.
                    Heard::NOTHING
                } else {
                    Heard::say(CONNECT.to_owned())
                })
            }
            (PacketKind::Ping, Data::Text(text)) => Ok(Heard::say(format!("3{text}"))),
            (PacketKind::Close, _) => Err(Fault::Ended("a close packet".to_owned())),
            (PacketKind::Message, Data::Text(text)) if !self.protocol.is_bare_engine() => {
                let version = if is_v3 { socketio::Version::V4 } else { socketio::Version::V5 };
                hear_socketio(version, text)
            }
            _ => Ok(Heard::NOTHING),
        }
    }
}

/// Engine.IO's ping.
const PING: &str = "2";

/// The ping of Primus up to 6. It tells a time, which the server repeats and doesn't read.
const PRIMUS_PING: &str = "\"primus::ping::1388534400000\"";

/// How often clients of Primus up to 6 ping by default.
const PRIMUS_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(25);

/// What `write_connect` makes of the main namespace in a message of Engine.IO's, checked by a test.
const CONNECT: &str = "40";

fn hear_socketio(version: socketio::Version, text: &str) -> Result<Heard, Fault> {
    let mut decoder = Decoder::new(version, Role::Client);
    let Some(packet) = decoder.text(text, &socketio::Limits::default())? else {
        return Err(Fault::Ended("an event with attachments".to_owned()));
    };
    match packet.body {
        Body::Connect { .. } => Ok(Heard::OPENED),
        Body::ConnectError { .. } => Err(Fault::Ended(format!("it refused the namespace: {text}"))),
        Body::Disconnect => Err(Fault::Ended("it disconnected the namespace".to_owned())),
        _ => Ok(Heard::NOTHING),
    }
}

fn hear_primus(protocol: Protocol, message: &[u8]) -> Result<Heard, Fault> {
    let text = str::from_utf8(message).map_err(|_| Fault::Answer("a message that isn't text"))?;
    Ok(match primus::from_server(text) {
        FromServer::Ping(time) if protocol == Protocol::Primus => {
            let mut pong = Vec::new();
            primus::write_pong(&mut pong, time);
            Heard::say(String::from_utf8_lossy(&pong).into_owned())
        }
        FromServer::Close => return Err(Fault::Ended("the end".to_owned())),
        _ => Heard::NOTHING,
    })
}

fn hear_frame(message: &[u8]) -> Result<Heard, Fault> {
    // The prelude of `xhr_streaming`, and the line that ends a frame.
    if message.iter().all(|byte| *byte == b'h') {
        return Ok(Heard::NOTHING);
    }
    let text = str::from_utf8(message).map_err(|_| Fault::SockJs(sockjs::Error::BadFrame))?;
    match ServerFrame::parse(text, &sockjs::Limits::default())? {
        ServerFrame::Open => Ok(Heard::OPENED),
        ServerFrame::Close { code, reason } => Err(Fault::Ended(format!("{code} {reason}"))),
        ServerFrame::Heartbeat | ServerFrame::Messages(_) => Ok(Heard::NOTHING),
    }
}
