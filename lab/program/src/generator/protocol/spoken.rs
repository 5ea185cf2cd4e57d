//! The protocols: name on the command line and in `peer.toml`, usual path, and the text around a payload (`*`) of a
//! client and of a server. A template `*` alone may also mean that the text varies: lengths and names are written with
//! each message.

use serde::{Deserialize, Serialize};
use stentor_wire::engineio;

macro_rules! protocols {
    ($($(#[$attribute:meta])* $name:ident $key:literal $path:literal $outbound:tt $inbound:tt)*) => {
        /// Protocol of the generator's clients.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
        )]
        pub enum Protocol {
            $($(#[$attribute])* #[serde(rename = $key)] #[value(name = $key)] $name,)*
        }

        impl Protocol {
            /// The name on command lines.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $key),* }
            }

            /// The usual path on a server.
            pub fn usual_path(self) -> &'static str {
                match self { $(Self::$name => $path),* }
            }

            /// Text around the payloads of clients and of servers.
            pub(super) fn templates(self) -> [&'static str; 2] {
                match self { $(Self::$name => [$outbound, $inbound]),* }
            }
        }
    };
}

/// Events of Socket.IO in messages of Engine.IO, in bodies of polls and in old Socket.IO, and publications of Centrifuge.
const EVENT: &str = r#"42["message","*"]"#;
const POLLED: &str = r#"2["message","*"]"#;
const EVENT_09: &str = r#"5:::{"name":"message","args":["*"]}"#;
const PUBLISH: &str = r#"{"id":2,"publish":{"channel":"room","data":"*"}}"#;
const PUSH: &str = r#"{"push":{"channel":"room","pub":{"data":"*"}}}"#;

protocols! {
    /// Plain messages over WebSocket.
    #[default]
    WebSocket "websocket" "/ws" "*" "*"
    /// Engine.IO 4 over WebSocket.
    EngineIo "engineio" "/engine.io/" "4*" "4*"
    /// Engine.IO 3, or 2, over WebSocket: the client pings.
    EngineIo3 "engineio3" "/engine.io/" "4*" "4*"
    /// Socket.IO 5 over WebSocket, the protocol of Socket.IO 3 and 4.
    SocketIo "socketio" "/socket.io/" EVENT EVENT
    /// Socket.IO 5 over long polling.
    SocketIoPolling "socketio-polling" "/socket.io/" POLLED POLLED
    /// Socket.IO 4 over Engine.IO 3 over WebSocket, the protocol of Socket.IO 1 and 2.
    SocketIo2 "socketio2" "/socket.io/" EVENT EVENT
    /// Socket.IO 4 over long polling.
    SocketIo2Polling "socketio2-polling" "/socket.io/" POLLED POLLED
    /// Socket.IO 0.8 and 0.9 over WebSocket.
    SocketIo09 "socketio09" "/socket.io/" EVENT_09 EVENT_09
    /// Socket.IO 0.7 to 0.9 over `xhr-polling`.
    SocketIo09Polling "socketio09-polling" "/socket.io/" EVENT_09 EVENT_09
    /// Socket.IO 0.7 over the WebSocket draft of its time (hixie-76).
    SocketIo07 "socketio07" "/socket.io/" EVENT_09 EVENT_09
    /// Socket.IO 0.6 over the WebSocket draft of its time (hixie-76).
    SocketIo06 "socketio06" "/socket.io/" "*" "*"
    /// SockJS over WebSocket.
    SockJs "sockjs" "/sockjs" r#"["*"]"# r#"a["*","*"]"#
    /// SockJS over `xhr_streaming`.
    SockJsStreaming "sockjs-streaming" "/sockjs" r#"["*"]"# r#"a["*","*"]"#
    /// Primus 7 and 8, JSON over WebSocket.
    Primus "primus" "/primus/" r#""*""# r#""*""#
    /// Primus up to 6, JSON over WebSocket: the client pings.
    Primus6 "primus6" "/primus/" r#""*""# r#""*""#
    /// Bayeux over WebSocket.
    Bayeux "bayeux" "/faye" "*" r#"[{"channel":"/room","data":"*"}]"#
    /// Centrifuge's protocol, JSON over WebSocket.
    Centrifuge "centrifuge" "/connection/websocket" PUBLISH PUSH
    /// NATS over WebSocket.
    Nats "nats" "/" "*" "*\r"
    /// MQTT 3.1.1 over WebSocket.
    Mqtt "mqtt" "/mqtt" "*" "\0\x04room*"
    /// Server-Sent Events.
    Sse "sse" "/sse" "*" "data: *"
    /// Lines over TCP.
    Tcp "tcp" "" "*" "*"
    /// `stentor.v1` over WebSocket, subscribed to a feed.
    StentorV1 "stentor-v1" "/ws" "*" "*"
    /// `stentor.v1` over WebSocket, with rooms.
    Rooms "stentor-v1-rooms" "/ws" "*" "*"
    /// Publishing over HTTP, at the address of the admin API.
    PublishApi "publish-api" "/api/v1/publish" r#"{"room":"room","data":"*"}"# "*"
}

impl Protocol {
    /// Returns `true` if the protocol's clients can send the messages of a load.
    pub fn sends(self) -> bool {
        !matches!(self, Self::Sse | Self::StentorV1)
    }

    /// Returns `true` if the protocol's messages are binary.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Self::Nats | Self::Mqtt)
    }

    /// The version of Engine.IO that carries the protocol.
    pub(super) fn engine(self) -> Option<engineio::Version> {
        match self {
            Self::EngineIo | Self::SocketIo | Self::SocketIoPolling => Some(engineio::Version::V4),
            Self::EngineIo3 | Self::SocketIo2 | Self::SocketIo2Polling => Some(engineio::Version::V3),
            _ => None,
        }
    }

    /// Returns `true` for Engine.IO alone.
    pub(super) fn is_bare_engine(self) -> bool {
        matches!(self, Self::EngineIo | Self::EngineIo3)
    }
}
