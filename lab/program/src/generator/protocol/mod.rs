//! The client role of each protocol, without any I/O: opening a connection, writing and reading payloads, and answering heartbeats.
//! The loads are independent of it.
//!
//! [`Protocol`] lists the protocols with the text around a payload. Each module describes how its protocol opens a connection.
//!
//! `feed` has the clients of a feed whose document is known (`Spec::document`).
//!
//! Pings of WebSocket and Engine.IO are answered; the `h` of SockJS needs no answer. Clients that have to ping do so at the interval
//! that the server requests ([`ProtocolClient::heartbeat_interval`]), and don't check the answers. Other well-formed messages are
//! ignored. If the server ends the session or violates the protocol, the connection counts as lost. To add a protocol: its
//! [`Protocol`] in `spoken`, its path here, its messages in `session`, and an implementation of [`ProtocolClient`] if it doesn't use
//! WebSocket.
//!
//! Deliberately absent: upgrades from one transport to another, binary messages, compression by clients.

mod answer;
mod bayeux;
mod centrifuge;
mod envelope;
mod feed;
mod frames;
mod gathered;
mod handshake;
mod hixie;
mod inflated;
mod lines;
mod mqtt;
mod nats;
mod polling;
mod publish;
mod rooms;
mod session;
mod socketio06;
mod socketio09;
mod spoken;
mod streaming;
mod websocket;

use std::borrow::Cow;
use std::time::Duration;

use stentor_wire::engineio::{self, Version};
use stentor_wire::ws::handshake::ResponseError;
use stentor_wire::{http1, socketio, sockjs};

use self::envelope::{Envelope, TooLong};
use self::feed::Feed;
use self::frames::Violation;
use self::inflated::Inflated;
use self::lines::LineClient;
use self::polling::PollingClient;
use self::publish::PublishingClient;
pub(crate) use self::rooms::WATCH;
pub use self::spoken::Protocol;
use self::streaming::StreamingClient;
use self::websocket::WebSocketClient;
use super::{LoadSpec, Spec};
use crate::payload::Head;

/// Maximum number of bytes of a refusal's body that an error message quotes.
const TOLD_BYTES: usize = 100;

/// Maximum size of the id of a client or a session, in bytes.
const ID_BYTES_MAX: usize = 128;

/// The reason why a connection can't continue. The server is always at fault.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0}")]
    Http(#[from] http1::Error),
    #[error("{0}")]
    Handshake(#[from] ResponseError),
    #[error("{0}")]
    Frame(#[from] Violation),
    #[error("{0}")]
    Deflate(#[from] stentor_wire::ws::Error),
    #[error("{0}")]
    Message(#[from] TooLong),
    #[error("{0}")]
    EngineIo(#[from] engineio::Error),
    #[error("{0}")]
    SocketIo(#[from] socketio::Error),
    #[error("{0}")]
    SockJs(#[from] sockjs::Error),
    /// The answer has another status than 200. The text is the start of its body.
    #[error("the server answers with status {0}: {1}")]
    Status(u16, String),
    /// The answer belongs to no request, or is too long.
    #[error("{0}")]
    Answer(&'static str),
    /// The server ended the session by the protocol.
    #[error("the server sent {0}")]
    Ended(String),
}

impl Fault {
    /// An answer with another status than 200, with the received part of its body.
    fn refused(status: u16, body: &[u8]) -> Self {
        Self::Status(status, String::from_utf8_lossy(&body[..body.len().min(TOLD_BYTES)]).into_owned())
    }
}

/// Protocol, path and envelope of a generator's clients.
#[derive(Debug)]
pub(super) struct Dialect {
    protocol: Protocol,
    /// The envelope of clients' messages.
    outbound: Envelope,
    /// The envelope of servers' messages.
    inbound: Envelope,
    host: String,
    path: String,
    /// One token for all clients, or one for each.
    pub(super) tokens: Vec<String>,
    /// `true` if clients of a WebSocket require permessage-deflate.
    deflate: bool,
    /// The feed that clients are subscribed to, if its document is known.
    feed: Option<Feed>,
}

/// One of a client's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The first connection, which receives the messages.
    Main,
    /// A second connection for protocols that need one to send while the main connection waits for an answer. It is opened when
    /// needed.
    Side,
}

/// Output of a client: bytes to send, and events. The pool empties it.
#[derive(Default)]
pub(super) struct Out {
    pub(super) main: Vec<u8>,
    pub(super) side: Vec<u8>,
    pub(super) happened: Vec<ClientEvent>,
    scratch: Vec<u8>,
    inflated: Option<Box<Inflated>>,
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientEvent {
    /// The load may begin.
    Opened,
    /// A message of the load.
    Payload {
        /// The message's head. `None` if it doesn't have that layout.
        head: Option<Head>,
        /// The length of the payload. For a presence notice: the number of members that joined and left.
        payload_bytes: u64,
        /// `true` if padding and envelope are intact.
        clean: bool,
    },
}

/// Reaction of a session to a message.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reaction {
    /// The load may begin.
    opened: bool,
    /// A message to send.
    answer: Option<String>,
    /// The number of members that joined or left a room.
    changes: u64,
}

impl Reaction {
    /// No reaction.
    const NOTHING: Self = Self { opened: false, answer: None, changes: 0 };
    const OPENED: Self = Self { opened: true, answer: None, changes: 0 };

    fn answer(text: String) -> Self {
        Self { answer: Some(text), ..Self::NOTHING }
    }
}

/// A client of any protocol.
pub(super) type Client = Box<dyn ProtocolClient>;

/// The client's side of a protocol, independent of the connections.
pub(super) trait ProtocolClient {
    /// Called when the main connection is open. `key` is different for each client.
    fn connected(&mut self, dialect: &Dialect, key: u128, out: &mut Out);

    /// Handles received bytes. Appends events to `out`, also those before a fault.
    fn receive(&mut self, dialect: &Dialect, lane: Lane, data: &[u8], out: &mut Out) -> Result<(), Fault>;

    /// Sends a payload as the next message of the load.
    fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out);

    /// Interval at which [`Self::heartbeat`] must be called once the load may begin. `None` if clients send no
    /// heartbeats.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }

    /// Sends a heartbeat.
    fn heartbeat(&mut self, _dialect: &Dialect, _out: &mut Out) {}

    /// Returns `true` if the side connection may end without loss.
    fn side_is_idle(&self) -> bool {
        true
    }

    /// The number of wrong documents and of all documents of this client. `None` if it doesn't verify.
    fn verify(&self, _dialect: &Dialect) -> Option<(u64, u64)> {
        None
    }
}

impl Dialect {
    pub(super) fn new(spec: &Spec) -> Self {
        let path = &spec.path;
        let query = |query: &str| match path.contains('?') {
            true => format!("{path}&{query}"),
            false => format!("{path}?{query}"),
        };
        let engine_path = |transport| {
            // A path may request another version, such as 2, which works like one of these.
            let eio = match spec.protocol.engine() {
                _ if path.contains("EIO=") => "",
                Some(Version::V3) => "EIO=3&",
                _ => "EIO=4&",
            };
            query(&format!("{eio}transport={transport}"))
        };
        let path = match spec.protocol {
            Protocol::EngineIo | Protocol::EngineIo3 | Protocol::SocketIo | Protocol::SocketIo2 => {
                engine_path("websocket")
            }
            Protocol::SocketIoPolling | Protocol::SocketIo2Polling => engine_path("polling"),
            Protocol::SocketIo09 | Protocol::SocketIo09Polling | Protocol::SocketIo07 => {
                format!("{}/1/", path.trim_end_matches('/'))
            }
            Protocol::SocketIo06 => format!("{}/websocket", path.trim_end_matches('/')),
            Protocol::SockJs | Protocol::SockJsStreaming => path.trim_end_matches('/').to_owned(),
            _ => path.clone(),
        };
        let is_call = spec.protocol == Protocol::Centrifuge
            && matches!(
                spec.load,
                LoadSpec::EchoOpen { .. } | LoadSpec::EchoClosed { .. } | LoadSpec::Budget(_)
            );
        let templates = if is_call { [centrifuge::CALL; 2] } else { spec.protocol.templates() };
        let [outbound, mut inbound] = templates.map(Envelope::around);
        inbound.has_checksums = !matches!(spec.load, LoadSpec::Budget { .. });
        // Primus sends its own strings in the same quotes, and NATS its own lines.
        inbound.around_others =
            matches!(spec.protocol, Protocol::Primus | Protocol::Primus6 | Protocol::Nats);
        Self {
            protocol: spec.protocol,
            outbound,
            inbound,
            host: spec.target().to_string(),
            path,
            tokens: Vec::new(),
            deflate: spec.deflate,
            feed: spec.document.map(Feed::new),
        }
    }

    /// Creates a client, whose main connection isn't open yet.
    pub(super) fn client(&self) -> Client {
        match self.protocol {
            Protocol::SocketIoPolling | Protocol::SocketIo2Polling | Protocol::SocketIo09Polling => {
                Box::new(PollingClient::new(self.protocol))
            }
            Protocol::SockJsStreaming | Protocol::Sse => Box::new(StreamingClient::new(self.protocol)),
            Protocol::Tcp => Box::new(LineClient::default()),
            Protocol::PublishApi => Box::new(PublishingClient::default()),
            _ => Box::new(WebSocketClient::new(self)),
        }
    }

    /// The path for the client with this key, including its token.
    fn path_of(&self, key: u128) -> Cow<'_, str> {
        // The lower half is the client's number.
        let number = key as u64 as usize;
        match number.checked_rem(self.tokens.len()).map(|number| &self.tokens[number]) {
            None if self.path.contains("{}") => Cow::Owned(self.path.replace("{}", &number.to_string())),
            None => Cow::Borrowed(&self.path),
            Some(token) => {
                let join = if self.path.contains('?') { '&' } else { '?' };
                Cow::Owned(format!("{}{join}token={token}", self.path))
            }
        }
    }

    /// The path of a new SockJS session.
    fn sockjs_session(&self, key: u128) -> String {
        format!("{}/{:03}/{key:032x}", self.path, key % 1000)
    }
}

/// Returns `true` if a server's id needs no escaping in JSON and in requests.
fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(plain)
}

#[cfg(test)]
mod tests;
