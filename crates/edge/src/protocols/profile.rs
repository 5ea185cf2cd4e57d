//! What is spoken on a WebSocket that has a session of its own.

use crate::encode::Encoding;
use crate::identity::{ClientId, Service};
use stentor_wire::ws::Negotiated;

/// How the messages of the session are framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The application's messages as they are.
    #[default]
    Plain,
    /// Frames of SockJS.
    SockJs,
    /// JSON values and heartbeats of Primus.
    Primus(Pinging),
}

/// Who pings in Primus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pinging {
    /// The server, and it has been answered.
    #[default]
    Idle,
    /// The server, and it waits for the answer.
    Awaited,
    /// The client.
    Theirs,
}

impl Framing {
    /// The protocol's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "websocket",
            Self::SockJs => "sockjs",
            Self::Primus(_) => "primus",
        }
    }
}

/// What is spoken, and by which service the client came in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SocketProfile {
    pub(crate) framing: Framing,
    /// The server accepts no message.
    pub(crate) push_only: bool,
    pub(crate) service: Service,
}

/// What a connection carries that has become a WebSocket.
#[derive(Debug)]
pub(crate) struct Upgraded {
    /// The client whose packets it carries, or wants to; otherwise it has a session of its own.
    pub(crate) client: Option<ClientId>,
    pub(crate) profile: SocketProfile,
    /// How the messages of its own session are written.
    pub(crate) encoding: Encoding,
    pub(crate) deflate: Option<Negotiated>,
}

impl Upgraded {
    /// The connection of a client.
    pub(crate) fn to_client(client: ClientId) -> Self {
        let (client, profile) = (Some(client), SocketProfile::default());
        Self { client, profile, encoding: Encoding::RAW, deflate: None }
    }
}
