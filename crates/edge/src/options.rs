//! What the data plane can be told.

use crate::app::Application;
use crate::encode::CUSTOM_PROTOCOLS_MAX;
use crate::hosts::Hosts;
use crate::identity::SOCKJS_PREFIXES_MAX;
use crate::origin::Origins;
use crate::ports::{Authorizer, Broker};
use crate::rule::Rooms;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Body, CoreId, Data};
use stentor_wire::sockjs::ResponseLimit;

/// The built-in applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum App {
    /// What a client sends comes back to it.
    Echo,
    /// What a client sends goes to all_members, the sender included.
    Chat,
    /// `stentor.v1`: feeds and rooms (docs/protocol.md).
    #[default]
    Rooms,
}

/// Bounds on what clients can make the server do. Each is enforced per connection unless it says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, before and after inflating.
    pub message_bytes_max: usize,
    /// Fragments of a message (Autobahn 9.3 needs 65,536).
    pub fragments_max: u32,
    /// From a message's first byte to its last.
    pub message_timeout: Duration,
    /// Bytes of a request's head.
    pub header_bytes_max: usize,
    /// Headers of a request.
    pub headers_max: usize,
    /// From a request's first byte, or the connection's start, to the end of the head.
    pub header_timeout: Duration,
    /// Bytes of a request's body that are read and thrown away on routes that take none.
    pub body_bytes_max: usize,
    /// Silence of an HTTP connection between two requests; also the time for a body, and for any progress of
    /// an answer.
    pub idle_timeout: Duration,
    /// From a request to what it waits for: a document, or an application's answer.
    pub request_timeout: Duration,
    /// From the server's decision to close to the end of the connection, or to any progress of what the client
    /// must still get.
    pub close_timeout: Duration,
    /// Maximum size of the pending deliveries of a session, encoded, under the policies `queue` and `drop_oldest`.
    pub send_buffer_bytes_max: usize,
    /// Bytes of answers to a client that doesn't read them, before its messages are no longer read.
    pub replies_bytes_max: usize,
    /// Bytes that a core receives, inflates and handles for one connection per turn.
    pub turn_bytes_max: usize,
    /// How deep arrays and objects may be nested in JSON that a client publishes.
    pub json_depth_max: usize,
    /// Topics that a session may be subscribed to.
    pub subscriptions_max: usize,
    /// Topics that a core may know of.
    pub topics_max: usize,
    /// Patches kept of a feed, for subscribers that are behind.
    pub feed_patches_max: usize,
    /// Bytes of patches that a core keeps of the feeds whose home it is.
    pub feed_patches_bytes_max: usize,
    /// The least time between two versions of a feed to one subscription of policy `latest`. Zero: as many as there
    /// are.
    pub feed_interval_min: Duration,
    /// Connections of the process.
    pub connections_max: usize,
    /// Distinct live bytes of the process: frames, history, documents. Beyond it history is forgotten, then
    /// the slowest sessions end.
    pub memory_bytes_max: usize,
    /// Messages from the control plane queued for a core.
    pub inbox_messages_max: usize,
    /// Bytes of messages of the control plane that wait for a core.
    pub inbox_bytes_max: usize,
    /// Messages between each two cores that wait in their ring; what is beyond stays with the sender.
    pub mailbox_messages_max: usize,
    /// Size of the messages from the control plane queued for a core.
    pub mailbox_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 1_000_000,
            fragments_max: 131_072,
            message_timeout: Duration::from_secs(30),
            header_bytes_max: 16 * 1024,
            headers_max: 64,
            header_timeout: Duration::from_secs(10),
            body_bytes_max: 64 * 1024,
            idle_timeout: Duration::from_secs(75),
            request_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            send_buffer_bytes_max: 1 << 20,
            replies_bytes_max: 64 * 1024,
            turn_bytes_max: 128 * 1024,
            json_depth_max: 128,
            subscriptions_max: 1_000,
            topics_max: 1_000_000,
            feed_patches_max: 100,
            feed_patches_bytes_max: 16 << 20,
            feed_interval_min: Duration::ZERO,
            connections_max: 1_000_000,
            memory_bytes_max: 1 << 30,
            inbox_messages_max: 16_384,
            inbox_bytes_max: 64 << 20,
            mailbox_messages_max: 4_096,
            mailbox_bytes_max: 16 << 20,
        }
    }
}

/// When a silent client is asked whether it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Silence before a ping.
    pub interval: Duration,
    /// From when the ping reached the kernel to the end of the session. Received bytes and progress of what
    /// is sent count as life, so that slow is not dead.
    pub timeout: Duration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { interval: Duration::from_secs(25), timeout: Duration::from_secs(20) }
    }
}

/// How messages are compressed for clients that offer it (RFC 7692, never with context takeover).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// Whether offers are accepted at all.
    pub enabled: bool,
    /// 1 (fast) to 9 (small).
    pub level: u8,
    /// Payloads below this leave as they are.
    pub bytes_min: usize,
}

impl Default for Deflate {
    fn default() -> Self {
        Self { enabled: true, level: 5, bytes_min: 512 }
    }
}

/// A page or file that is served as it is.
#[derive(Clone, Debug)]
pub struct StaticRoute {
    /// The whole path, beginning with `/`.
    pub path: String,
    /// The media type.
    pub content_type: String,
    /// The content.
    pub body: Arc<[u8]>,
}

/// For how long, and how much, lost Socket.IO clients are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How long a client may be away.
    pub age_max: Duration,
    /// Bytes of publications that each core keeps for those who are away.
    pub bytes_max: usize,
    /// Sockets of lost clients that each core keeps.
    pub sessions_max: usize,
}

impl Default for Recovery {
    fn default() -> Self {
        Self { age_max: Duration::from_secs(120), bytes_max: 16 << 20, sessions_max: 100_000 }
    }
}

/// The sites from which browsers send a cookie (RFC 6265bis, section 5.6.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// The cookie's own site, and navigation from others.
    #[default]
    Lax,
    /// The cookie's own site only.
    Strict,
    /// Any site. Browsers require [`EngineIo::cookie_secure`] for this.
    None,
}

impl SameSite {
    /// The attribute's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lax => "Lax",
            Self::Strict => "Strict",
            Self::None => "None",
        }
    }
}

/// Engine.IO, and Socket.IO upon it. Heartbeats are those of [`Heartbeat`], the largest message or body is
/// [`Limits::message_bytes_max`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineIo {
    /// Whether clients of Engine.IO 3 (Socket.IO 1 and 2) are let in.
    pub allow_version_3: bool,
    /// A cookie of this name is set to the session's id, for balancers that go by it.
    pub cookie: Option<String>,
    /// Whether browsers send the cookie over HTTPS only.
    pub cookie_secure: bool,
    /// The sites from which browsers send the cookie.
    pub cookie_same_site: SameSite,
    /// Packets in one body. Clients put everything that they have to say into one.
    pub packets_max: usize,
    /// From a WebSocket's handshake to the end of the move to it.
    pub upgrade_timeout: Duration,
    /// From the start of a Socket.IO session, or from the last namespace that was left, to a namespace.
    pub connect_timeout: Duration,
    /// Attachments of a Socket.IO packet.
    pub attachments_max: usize,
    /// Namespaces that a client may be connected to at once.
    pub namespaces_max: usize,
    /// Whether and how lost clients get what they missed.
    pub recovery: Option<Recovery>,
    /// How long the first packet waits after a WebSocket's handshake. Zero but for test suites, which listen for one
    /// thing after the other and miss what comes in the same segment.
    pub open_delay: Duration,
    /// The event by which Socket.IO clients get what their feeds say.
    pub feed_event: String,
    /// They get the document as one string, instead of an object with its position.
    pub feed_as_string: bool,
}

impl Default for EngineIo {
    fn default() -> Self {
        Self {
            allow_version_3: true,
            cookie: None,
            cookie_secure: false,
            cookie_same_site: SameSite::default(),
            packets_max: 100_000,
            upgrade_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(45),
            attachments_max: 10,
            namespaces_max: 16,
            recovery: None,
            open_delay: Duration::ZERO,
            feed_event: "feed".to_owned(),
            feed_as_string: false,
        }
    }
}

/// A prefix that SockJS is served at. The largest message or body is [`Limits::message_bytes_max`]; its WebSockets have
/// the heartbeats of [`Heartbeat`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SockJs {
    /// The path, beginning with `/`, and not ending with one. Where several fit, the longest wins; server's own
    /// routes win over all of them.
    pub prefix: String,
    /// The built-in application that runs here; `None` is the node's.
    pub app: Option<App>,
    /// Whether there are WebSockets. Clients learn it before they choose a transport.
    pub websocket: bool,
    /// Whether answers set the cookie `JSESSIONID`, for balancers that go by it.
    pub jsessionid: bool,
    /// Where the page for frames of other origins finds the client library, in the version that these use. Its code acts
    /// in the server's origin.
    pub client_url: String,
    /// Bytes of a streaming response, after which it ends and the client asks for another. Browsers keep all of it in
    /// memory.
    pub response_bytes_max: usize,
    /// How long a waiting request is left without a sign of life.
    pub heartbeat: Duration,
    /// For how long a session lives without a request that waits; and for how long it is told how it ended.
    pub disconnect_delay: Duration,
    /// Messages in one body or WebSocket message. Clients put everything that they have to say into one.
    pub messages_max: usize,
}

impl SockJs {
    /// With the defaults at `prefix`.
    pub fn at(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            app: None,
            websocket: true,
            jsessionid: false,
            client_url: "/sockjs.min.js".to_owned(),
            response_bytes_max: ResponseLimit::STREAMING_BYTES,
            heartbeat: Duration::from_secs(25),
            disconnect_delay: Duration::from_secs(5),
            messages_max: 100_000,
        }
    }

    /// Checks a list of prefixes.
    ///
    /// # Errors
    /// For people: what is wrong with which.
    pub fn check(all: &[Self]) -> Result<(), String> {
        if all.len() > SOCKJS_PREFIXES_MAX {
            return Err(format!(
                "at most {SOCKJS_PREFIXES_MAX} SockJS prefixes are allowed, found {}",
                all.len()
            ));
        }
        for (n, SockJs { prefix, .. }) in all.iter().enumerate() {
            let fits = prefix.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
            if !fits || !prefix.starts_with('/') || prefix.ends_with('/') {
                return Err(format!(
                    "{prefix:?} is not a SockJS prefix: it must begin with \"/\", not end with \"/\", and have no \"?\""
                ));
            }
            if all[..n].iter().any(|other| other.prefix == *prefix) {
                return Err(format!("the SockJS prefix {prefix:?} is configured twice"));
            }
        }
        Ok(())
    }
}

/// Server-Sent Events. Comments are sent every [`Heartbeat::interval`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sse {
    /// How long clients wait before they come back, in the mean: each is told another time, from half of it on.
    pub retry: Duration,
    /// How long those wait for whose feeds there are none. They ask again for ever.
    pub retry_lost: Duration,
}

impl Default for Sse {
    fn default() -> Self {
        Self { retry: Duration::from_secs(3), retry_lost: Duration::from_secs(60) }
    }
}

/// Primus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Primus {
    /// How often clients are pinged, and how long they have for the answer. They give up after 45 s without a ping.
    pub ping_interval: Duration,
}

impl Default for Primus {
    fn default() -> Self {
        Self { ping_interval: Duration::from_secs(30) }
    }
}

/// A protocol of the embedder's own: WebSocket messages on a path of its own, in the same rooms and feeds as all other
/// protocols. `crates/edge/examples/lines` is one.
#[derive(Clone, Debug)]
pub struct CustomProtocol {
    /// The path, beginning with `/`. The server's own routes win.
    pub path: String,
    /// Makes the application of a core that handles the messages of its clients.
    pub app: fn(CoreId) -> Box<dyn Application>,
    /// Writes a publication as a message, for all of its clients: once per core at most. `None`: they don't receive it;
    /// instead of a delta, they receive the snapshot.
    pub encode: fn(&Body) -> Option<Data>,
}

impl CustomProtocol {
    /// Checks a list of protocols.
    ///
    /// # Errors
    /// For people: what is wrong with which.
    pub fn check(all: &[Self]) -> Result<(), String> {
        if all.len() > CUSTOM_PROTOCOLS_MAX {
            return Err(format!("at most {CUSTOM_PROTOCOLS_MAX} protocols are allowed, found {}", all.len()));
        }
        for (n, Self { path, .. }) in all.iter().enumerate() {
            if !path.starts_with('/') || all[..n].iter().any(|other| other.path == *path) {
                return Err(format!(
                    "{path:?} is not a protocol's path: it must begin with \"/\", and be its own"
                ));
            }
        }
        Ok(())
    }
}

/// Everything that the data plane can be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where clients connect. Port 0 picks one.
    pub listen: SocketAddr,
    /// Threads of the data plane; 0 means as many as the machine has processors.
    pub cores: usize,
    /// Which built-in application runs.
    pub app: App,
    /// The host names of the server.
    pub hosts: Hosts,
    /// Which pages may connect.
    pub origins: Origins,
    /// Bounds.
    pub limits: Limits,
    /// Heartbeats.
    pub heartbeat: Heartbeat,
    /// Compression.
    pub deflate: Deflate,
    /// Engine.IO and Socket.IO.
    pub engine: EngineIo,
    /// Where SockJS is served.
    pub sockjs: Vec<SockJs>,
    /// Server-Sent Events.
    pub sse: Sse,
    /// Primus.
    pub primus: Primus,
    /// The application `rooms`.
    pub rooms: Rooms,
    /// Pages.
    pub routes: Vec<StaticRoute>,
    /// Protocols of the embedder's own.
    pub protocols: Vec<CustomProtocol>,
    /// Decides what clients may do. `None`: everything.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Carries publications to other nodes. `None`: there are no others.
    pub broker: Option<Arc<dyn Broker>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            cores: 0,
            app: App::default(),
            hosts: Hosts::default(),
            origins: Origins::default(),
            limits: Limits::default(),
            heartbeat: Heartbeat::default(),
            deflate: Deflate::default(),
            engine: EngineIo::default(),
            sockjs: vec![SockJs::at("/sockjs")],
            sse: Sse::default(),
            primus: Primus::default(),
            rooms: Rooms::default(),
            routes: Vec::new(),
            protocols: Vec::new(),
            authorizer: None,
            broker: None,
        }
    }
}
