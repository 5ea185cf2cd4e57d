//! The protocols by name: what a generator speaks, how command lines and descriptions of peers call it, and where it
//! usually lives.

use serde::{Deserialize, Serialize};
use stentor_wire::engineio;

macro_rules! protocols {
    ($($(#[$attribute:meta])* $name:ident $key:literal $path:literal)*) => {
        /// What a generator speaks.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
        pub enum Protocol {
            $($(#[$attribute])* #[serde(rename = $key)] #[value(name = $key)] $name,)*
        }

        impl Protocol {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name on command lines.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $key),* }
            }

            /// Where it usually lives on a server.
            pub fn usual_path(self) -> &'static str {
                match self { $(Self::$name => $path),* }
            }
        }
    };
}

protocols! {
    /// Messages over WebSocket, nothing around them.
    #[default]
    WebSocket "websocket" "/ws"
    /// Engine.IO 4 over WebSocket.
    EngineIo "engineio" "/engine.io/"
    /// Engine.IO 3, or 2, over WebSocket: the client pings.
    EngineIo3 "engineio3" "/engine.io/"
    /// Socket.IO 5 over WebSocket: what Socket.IO 3 and 4 speak.
    SocketIo "socketio" "/socket.io/"
    /// Socket.IO 5 over long polling.
    SocketIoPolling "socketio-polling" "/socket.io/"
    /// Socket.IO 4, over Engine.IO 3, over WebSocket: what Socket.IO 1 and 2 speak.
    SocketIo2 "socketio2" "/socket.io/"
    /// Socket.IO 4 over long polling.
    SocketIo2Polling "socketio2-polling" "/socket.io/"
    /// Socket.IO 0.8 and 0.9 over WebSocket.
    SocketIo09 "socketio09" "/socket.io/"
    /// Socket.IO 0.7 to 0.9 over `xhr-polling`.
    SocketIo09Polling "socketio09-polling" "/socket.io/"
    /// Socket.IO 0.7 over WebSocket as it was then (hixie-76).
    SocketIo07 "socketio07" "/socket.io/"
    /// Socket.IO 0.6 over WebSocket as it was then (hixie-76).
    SocketIo06 "socketio06" "/socket.io/"
    /// SockJS over WebSocket.
    SockJs "sockjs" "/sockjs"
    /// SockJS over `xhr_streaming`.
    SockJsStreaming "sockjs-streaming" "/sockjs"
    /// Primus 7 and 8, JSON over WebSocket.
    Primus "primus" "/primus/"
    /// Primus up to 6, JSON over WebSocket: the client pings.
    Primus6 "primus6" "/primus/"
    /// Bayeux over WebSocket.
    Bayeux "bayeux" "/faye"
    /// Centrifuge's protocol, JSON over WebSocket.
    Centrifuge "centrifuge" "/connection/websocket"
    /// NATS over WebSocket.
    Nats "nats" "/"
    /// MQTT 3.1.1 over WebSocket.
    Mqtt "mqtt" "/mqtt"
    /// Server-Sent Events.
    Sse "sse" "/sse"
    /// Lines over TCP.
    Tcp "tcp" ""
    /// `stentor.v1` over WebSocket, subscribed to a feed.
    StentorV1 "stentor-v1" "/ws"
    /// `stentor.v1` over WebSocket, with rooms.
    Rooms "stentor-v1-rooms" "/ws"
    /// Publishing over HTTP, at the admin API's address.
    PublishApi "publish-api" "/api/v1/publish"
}

impl Protocol {
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
