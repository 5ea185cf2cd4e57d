//! The protocols by name: what a generator speaks, how command lines and descriptions of peers call it, and where it
//! usually lives.

use serde::{Deserialize, Serialize};
use stentor_wire::engineio;

/// What a generator speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Protocol {
    /// Messages over WebSocket, nothing around them.
    #[default]
    #[serde(rename = "websocket")]
    #[value(name = "websocket")]
    WebSocket,
    /// Engine.IO 4 over WebSocket.
    #[serde(rename = "engineio")]
    #[value(name = "engineio")]
    EngineIo,
    /// Engine.IO 3, or 2, over WebSocket: the client pings.
    #[serde(rename = "engineio3")]
    #[value(name = "engineio3")]
    EngineIo3,
    /// Socket.IO 5 over WebSocket: what Socket.IO 3 and 4 speak.
    #[serde(rename = "socketio")]
    #[value(name = "socketio")]
    SocketIo,
    /// Socket.IO 5 over long polling.
    #[serde(rename = "socketio-polling")]
    #[value(name = "socketio-polling")]
    SocketIoPolling,
    /// Socket.IO 4, over Engine.IO 3, over WebSocket: what Socket.IO 1 and 2 speak.
    #[serde(rename = "socketio2")]
    #[value(name = "socketio2")]
    SocketIo2,
    /// Socket.IO 4 over long polling.
    #[serde(rename = "socketio2-polling")]
    #[value(name = "socketio2-polling")]
    SocketIo2Polling,
    /// Socket.IO 0.8 and 0.9 over WebSocket.
    #[serde(rename = "socketio09")]
    #[value(name = "socketio09")]
    SocketIo09,
    /// Socket.IO 0.7 to 0.9 over `xhr-polling`.
    #[serde(rename = "socketio09-polling")]
    #[value(name = "socketio09-polling")]
    SocketIo09Polling,
    /// Socket.IO 0.7 over WebSocket as it was then (hixie-76).
    #[serde(rename = "socketio07")]
    #[value(name = "socketio07")]
    SocketIo07,
    /// Socket.IO 0.6 over WebSocket as it was then (hixie-76).
    #[serde(rename = "socketio06")]
    #[value(name = "socketio06")]
    SocketIo06,
    /// SockJS over WebSocket.
    #[serde(rename = "sockjs")]
    #[value(name = "sockjs")]
    SockJs,
    /// SockJS over `xhr_streaming`.
    #[serde(rename = "sockjs-streaming")]
    #[value(name = "sockjs-streaming")]
    SockJsStreaming,
    /// Primus 7 and 8, JSON over WebSocket.
    #[serde(rename = "primus")]
    #[value(name = "primus")]
    Primus,
    /// Primus up to 6, JSON over WebSocket: the client pings.
    #[serde(rename = "primus6")]
    #[value(name = "primus6")]
    Primus6,
    /// Bayeux over WebSocket.
    #[serde(rename = "bayeux")]
    #[value(name = "bayeux")]
    Bayeux,
    /// Centrifuge's protocol, JSON over WebSocket.
    #[serde(rename = "centrifuge")]
    #[value(name = "centrifuge")]
    Centrifuge,
    /// NATS over WebSocket.
    #[serde(rename = "nats")]
    #[value(name = "nats")]
    Nats,
    /// MQTT 3.1.1 over WebSocket.
    #[serde(rename = "mqtt")]
    #[value(name = "mqtt")]
    Mqtt,
    /// Server-Sent Events.
    #[serde(rename = "sse")]
    #[value(name = "sse")]
    Sse,
    /// Lines over TCP.
    #[serde(rename = "tcp")]
    #[value(name = "tcp")]
    Tcp,
    /// `stentor.v1` over WebSocket, subscribed to a feed.
    #[serde(rename = "stentor-v1")]
    #[value(name = "stentor-v1")]
    StentorV1,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::WebSocket,
        Self::EngineIo,
        Self::EngineIo3,
        Self::SocketIo,
        Self::SocketIoPolling,
        Self::SocketIo2,
        Self::SocketIo2Polling,
        Self::SocketIo09,
        Self::SocketIo09Polling,
        Self::SocketIo07,
        Self::SocketIo06,
        Self::SockJs,
        Self::SockJsStreaming,
        Self::Primus,
        Self::Primus6,
        Self::Bayeux,
        Self::Centrifuge,
        Self::Nats,
        Self::Mqtt,
        Self::Sse,
        Self::Tcp,
        Self::StentorV1,
    ];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::EngineIo => "engineio",
            Self::EngineIo3 => "engineio3",
            Self::SocketIo => "socketio",
            Self::SocketIoPolling => "socketio-polling",
            Self::SocketIo2 => "socketio2",
            Self::SocketIo2Polling => "socketio2-polling",
            Self::SocketIo09 => "socketio09",
            Self::SocketIo09Polling => "socketio09-polling",
            Self::SocketIo07 => "socketio07",
            Self::SocketIo06 => "socketio06",
            Self::SockJs => "sockjs",
            Self::SockJsStreaming => "sockjs-streaming",
            Self::Primus => "primus",
            Self::Primus6 => "primus6",
            Self::Bayeux => "bayeux",
            Self::Centrifuge => "centrifuge",
            Self::Nats => "nats",
            Self::Mqtt => "mqtt",
            Self::Sse => "sse",
            Self::Tcp => "tcp",
            Self::StentorV1 => "stentor-v1",
        }
    }

    /// Where it usually lives on a server.
    pub fn usual_path(self) -> &'static str {
        match self {
            Self::WebSocket | Self::StentorV1 => "/ws",
            Self::EngineIo | Self::EngineIo3 => "/engine.io/",
            Self::SocketIo
            | Self::SocketIoPolling
            | Self::SocketIo2
            | Self::SocketIo2Polling
            | Self::SocketIo09
            | Self::SocketIo09Polling
            | Self::SocketIo07
            | Self::SocketIo06 => "/socket.io/",
            Self::SockJs | Self::SockJsStreaming => "/sockjs",
            Self::Primus | Self::Primus6 => "/primus/",
            Self::Bayeux => "/faye",
            Self::Centrifuge => "/connection/websocket",
            Self::Nats => "/",
            Self::Mqtt => "/mqtt",
            Self::Sse => "/sse",
            Self::Tcp => "",
        }
    }

    /// Whether its clients can say what a load gives them.
    pub fn sends(self) -> bool {
        !matches!(self, Self::Sse | Self::StentorV1)
    }

    /// Whether its messages go as binary ones.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Self::Nats | Self::Mqtt)
    }

    /// The version of Engine.IO that it stands on.
    pub(super) fn engine(self) -> Option<engineio::Version> {
        match self {
            Self::EngineIo | Self::SocketIo | Self::SocketIoPolling => Some(engineio::Version::V4),
            Self::EngineIo3 | Self::SocketIo2 | Self::SocketIo2Polling => Some(engineio::Version::V3),
            _ => None,
        }
    }

    /// Whether it is nothing but Engine.IO.
    pub(super) fn is_bare_engine(self) -> bool {
        matches!(self, Self::EngineIo | Self::EngineIo3)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_protocol_has_one_name() {
        assert_eq!(Protocol::ALL.len(), Protocol::value_variants().len());
        for (protocol, variant) in Protocol::ALL.into_iter().zip(Protocol::value_variants()) {
            assert_eq!(protocol, *variant);
            let value = protocol.to_possible_value().unwrap();
            assert_eq!(value.get_name(), protocol.name());
            assert_eq!(serde_json::to_value(protocol).unwrap(), protocol.name());
        }
    }
}
