//! The options of sessions: all of the data plane, but for sockets and threads.

use crate::app::Application;
use crate::defaults::with_defaults;
use crate::encode::CUSTOM_PROTOCOLS_MAX;
use crate::hosts::Hosts;
use crate::identity::PREFIXES_MAX;
use crate::ledger::Ledger;
use crate::limits::{AddressLimits, SessionLimits, UserLimits};
use crate::origin::Origins;
use crate::ports::{Authenticator, Authorizer, Broker, EventSink, NodeTag, NoticeSink, Relay};
use crate::proxies::Proxies;
use crate::rule::Rooms;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Body, CoreId, Data, KeyRule};
use stentor_wire::sockjs::ResponseLimit;

/// The built-in applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum App {
    /// Each message is sent back to its client.
    Echo,
    /// Each message is sent to all clients, its sender included.
    Chat,
    /// `stentor.v1`: feeds and rooms (docs/protocol.md).
    #[default]
    Rooms,
}

with_defaults! {
    /// Bounds on what clients can make the server do. Each is enforced per connection unless it says
    /// otherwise.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Bytes of a message, before and after inflating.
        pub message_bytes_max: usize = 1_000_000,
        /// Fragments of a message (Autobahn 9.3 needs 65,536).
        pub fragments_max: u32 = 131_072,
        /// From a message's first byte to its last.
        pub message_timeout: Duration = Duration::from_secs(30),
        /// Bytes of a request's head.
        pub header_bytes_max: usize = 16 * 1024,
        /// Headers of a request.
        pub headers_max: usize = 100,
        /// From a request's first byte, or the connection's start, to the end of the head.
        pub header_timeout: Duration = Duration::from_secs(10),
        /// From the begin of a connection to the end of its TLS handshake.
        pub tls_handshake_timeout: Duration = Duration::from_secs(10),
        /// Unfinished TLS handshakes of a core. Beyond it, the oldest one ends.
        pub tls_handshakes_max: usize = 4_096,
        /// Bytes of a request's body that are read and thrown away on routes that take none.
        pub body_bytes_max: usize = 64 * 1024,
        /// Silence of an HTTP connection between two requests; also the time for a body, and for any progress of
        /// an answer.
        pub idle_timeout: Duration = Duration::from_secs(75),
        /// From a request to what it waits for: a document, or an application's answer.
        pub request_timeout: Duration = Duration::from_secs(10),
        /// From the server's decision to close to the end of the connection, or to any progress of what the client
        /// must still get.
        pub close_timeout: Duration = Duration::from_secs(5),
        /// Maximum size of the pending deliveries of a session, encoded, under the policies `queue` and `drop_oldest`.
        pub send_buffer_bytes_max: usize = 1 << 20,
        /// Bytes of answers to a client that doesn't read them, before its messages are no longer read.
        pub replies_bytes_max: usize = 64 * 1024,
        /// Bytes that a core receives, inflates and handles for one connection per turn.
        pub turn_bytes_max: usize = 128 * 1024,
        /// How deep arrays and objects may be nested in JSON that a client publishes.
        pub json_depth_max: usize = 128,
        /// Topics that a session may be subscribed to.
        pub subscriptions_max: usize = 1_000,
        /// Topics that a core may know of.
        pub topics_max: usize = 1_000_000,
        /// Patches kept of a feed, for subscribers that are behind.
        pub feed_patches_max: usize = 100,
        /// Bytes of patches that a core keeps of the feeds whose home it is.
        pub feed_patches_bytes_max: usize = 16 << 20,
        /// The least time between two versions of a feed to one subscription of policy `latest`. Zero: as many as there
        /// are.
        pub feed_interval_min: Duration = Duration::ZERO,
        /// Connections of the process.
        pub connections_max: usize = 1_000_000,
        /// New connections of the process per second. Zero: any number.
        pub connections_per_second: u32 = 0,
        /// Connections that are passed through to other nodes.
        pub relayed_connections_max: usize = 10_000,
        /// Distinct live bytes of the process: frames, history, documents. Beyond it history is forgotten, then
        /// the slowest sessions end.
        pub memory_bytes_max: usize = 1 << 30,
        /// Questions to the authorizer per core whose answers aren't known yet. Beyond it, the last one of the address with the most is refused.
        pub decisions_max: usize = 10_000,
        /// From a question to the authorizer to its answer.
        pub decision_timeout: Duration = Duration::from_secs(5),
        /// Messages from the control plane queued for a core.
        pub inbox_messages_max: usize = 16_384,
        /// Bytes of messages of the control plane that wait for a core.
        pub inbox_bytes_max: usize = 64 << 20,
        /// Messages between each two cores that wait in their ring; what is beyond stays with the sender.
        pub mailbox_messages_max: usize = 4_096,
        /// Bytes of those messages.
        pub mailbox_bytes_max: usize = 16 << 20,
    }
}

with_defaults! {
    /// When a silent client is asked whether it is still there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Heartbeat {
        /// Silence before a ping.
        pub interval: Duration = Duration::from_secs(25),
        /// From when the ping reached the kernel to the end of the session. Received bytes and progress of what
        /// is sent count as life, so that slow is not dead.
        pub timeout: Duration = Duration::from_secs(20),
    }
}

with_defaults! {
    /// How messages are compressed for clients that offer it (RFC 7692). The server never takes its context over.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Deflate {
        /// Whether offers are accepted at all.
        pub enabled: bool = true,
        /// 1 (fast) to 9 (small).
        pub level: u8 = 5,
        /// Payloads below this leave as they are.
        pub bytes_min: usize = 512,
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

/// A file that pages of all origins may load, as it is or compressed.
#[derive(Clone, Debug)]
pub struct PublicFile {
    /// The whole path, beginning with `/`.
    pub path: String,
    /// The media type.
    pub content_type: String,
    /// The value of `Cache-Control`.
    pub cache_control: String,
    /// The entity tag, without quotes: two contents have different ones.
    pub tag: String,
    /// The content.
    pub body: Bytes,
    /// The content in the coding `br`.
    pub brotli: Bytes,
    /// The content in the coding `gzip`.
    pub gzip: Bytes,
}

with_defaults! {
    /// For how long, and how much, lost Socket.IO clients are remembered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Recovery {
        /// How long a client may be away.
        pub age_max: Duration = Duration::from_secs(120),
        /// Bytes of publications that each core keeps for those who are away.
        pub bytes_max: usize = 16 << 20,
        /// Sockets of lost clients that each core keeps.
        pub sessions_max: usize = 100_000,
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

with_defaults! {
    /// Engine.IO, and Socket.IO upon it. Heartbeats are those of [`Heartbeat`], the largest message or body is
    /// [`Limits::message_bytes_max`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EngineIo {
        /// Whether clients of Engine.IO 3 (Socket.IO 1 and 2) are let in.
        pub allow_version_3: bool = true,
        /// Whether clients of Engine.IO 3 that poll are of version 1.x, whose text is encoded as UTF-8 twice.
        pub polling_1: bool = false,
        /// A cookie of this name is set to the session's id, for balancers that go by it.
        pub cookie: Option<String> = None,
        /// Whether browsers send the cookie over HTTPS only.
        pub cookie_secure: bool = false,
        /// The sites from which browsers send the cookie.
        pub cookie_same_site: SameSite = SameSite::default(),
        /// Packets in one body. Clients put everything that they have to say into one.
        pub packets_max: usize = 100_000,
        /// From a WebSocket's handshake to the end of the move to it.
        pub upgrade_timeout: Duration = Duration::from_secs(10),
        /// From the start of a Socket.IO session, or from the last namespace that was left, to a namespace.
        pub connect_timeout: Duration = Duration::from_secs(45),
        /// Attachments of a Socket.IO packet.
        pub attachments_max: usize = 10,
        /// Namespaces that a client may be connected to at once.
        pub namespaces_max: usize = 16,
        /// Whether and how lost clients get what they missed.
        pub recovery: Option<Recovery> = None,
        /// How long the first packet waits after a WebSocket's handshake. Zero but for test suites, which listen for one
        /// thing after the other and miss what comes in the same segment.
        pub open_delay: Duration = Duration::ZERO,
        /// The event by which Socket.IO clients get what their feeds say.
        pub feed_event: String = "feed".to_owned(),
        /// They get the document as one string, instead of an object with its position.
        pub feed_as_string: bool = false,
    }
}

/// Maximum number of prefixes that SockJS is served at.
pub const SOCKJS_PREFIXES_MAX: usize = PREFIXES_MAX;

with_defaults! {
    /// A prefix that SockJS is served at. The largest message or body is [`Limits::message_bytes_max`]; its WebSockets have
    /// the heartbeats of [`Heartbeat`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SockJs {
        /// The path, beginning with `/`, and not ending with one. Where several fit, the longest wins; server's own
        /// routes win over all of them.
        pub prefix: String = "/sockjs".to_owned(),
        /// The built-in application that runs here; `None` is the node's.
        pub app: Option<App> = None,
        /// Whether there are WebSockets. Clients learn it before they choose a transport.
        pub websocket: bool = true,
        /// Whether answers set the cookie `JSESSIONID`, for balancers that go by it.
        pub jsessionid: bool = false,
        /// Where the page for frames of other origins finds the client library, in the version that these use. Its code acts
        /// in the server's origin.
        pub client_url: String = "/sockjs.min.js".to_owned(),
        /// Bytes of a streaming response, after which it ends and the client asks for another. Browsers keep all of it in
        /// memory.
        pub response_bytes_max: usize = ResponseLimit::STREAMING_BYTES,
        /// How long a waiting request is left without a sign of life.
        pub heartbeat: Duration = Duration::from_secs(25),
        /// For how long a session lives without a request that waits; and for how long the server reports how it ended.
        pub disconnect_delay: Duration = Duration::from_secs(5),
        /// Messages in one body or WebSocket message. Clients put everything that they have to say into one.
        pub messages_max: usize = 100_000,
    }
}

impl SockJs {
    /// With the defaults at `prefix`.
    pub fn at(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..Self::default() }
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

with_defaults! {
    /// Server-Sent Events. Comments are sent every [`Heartbeat::interval`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Sse {
        /// How long clients wait before they come back, in the mean: each receives another time, from half of it on.
        pub retry: Duration = Duration::from_secs(3),
        /// How long those wait for whose feeds there are none. They ask again for ever.
        pub retry_lost: Duration = Duration::from_secs(60),
    }
}

with_defaults! {
    /// Primus.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Primus {
        /// How often clients are pinged, and how long they have for the answer. They give up after 45 s without a ping.
        pub ping_interval: Duration = Duration::from_secs(30),
    }
}

with_defaults! {
    /// Tokens of clients.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Tokens {
        /// The cookie that may carry a token. It counts only if the request's `Origin` is the server's own or listed by name.
        pub cookie: Option<String> = None,
        /// How long before its token expires a client is asked for a new one; at most half of the remaining time.
        pub renewal_lead: Duration = Duration::from_secs(30),
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

with_defaults! {
    /// The options of sessions.
    #[derive(Clone, Debug)]
    pub struct Options {
        /// Which built-in application runs.
        pub app: App = App::default(),
        /// The host names of the server.
        pub hosts: Hosts = Hosts::default(),
        /// Which pages may connect.
        pub origins: Origins = Origins::default(),
        /// Whether there is an event of `tracing` per request, with the target [`ACCESS_LOG`](crate::access::ACCESS_LOG).
        pub access_log: bool = false,
        /// Bounds.
        pub limits: Limits = Limits::default(),
        /// The proxies in front of the server.
        pub proxies: Proxies = Proxies::default(),
        /// Limits of one address.
        pub address_limits: AddressLimits = AddressLimits::default(),
        /// Limits of one user.
        pub user_limits: UserLimits = UserLimits::default(),
        /// Limits of one session.
        pub session_limits: SessionLimits = SessionLimits::default(),
        /// Heartbeats.
        pub heartbeat: Heartbeat = Heartbeat::default(),
        /// Compression.
        pub deflate: Deflate = Deflate::default(),
        /// Engine.IO and Socket.IO.
        pub engine: EngineIo = EngineIo::default(),
        /// Whether it is remembered how clients of Socket.IO have connected, for other servers that ask.
        pub keeps_handshakes: bool = false,
        /// Where SockJS is served.
        pub sockjs: Vec<SockJs> = vec![SockJs::default()],
        /// Server-Sent Events.
        pub sse: Sse = Sse::default(),
        /// Primus.
        pub primus: Primus = Primus::default(),
        /// The keys of feeds that clients may name.
        pub keys: KeyRule = KeyRule::default(),
        /// The application `rooms`.
        pub rooms: Rooms = Rooms::default(),
        /// Pages.
        pub routes: Vec<StaticRoute> = Vec::new(),
        /// Files for pages of all origins. Pages with the same path win.
        pub files: Vec<PublicFile> = Vec::new(),
        /// Protocols of the embedder's own.
        pub protocols: Vec<CustomProtocol> = Vec::new(),
        /// Decides who clients are, and by their identities what they may do. `None`: they are anonymous.
        pub authenticator: Option<Arc<dyn Authenticator>> = None,
        /// Tokens.
        pub tokens: Tokens = Tokens::default(),
        /// Decides what clients may do, if there is no authenticator. `None`: everything.
        pub authorizer: Option<Arc<dyn Authorizer>> = None,
        /// Takes events of clients that the application `rooms` doesn't handle itself. `None`: they are ignored.
        pub events: Option<Arc<dyn EventSink>> = None,
        /// Is notified of sessions that begin and end, and of subscriptions. `None`: nobody is.
        pub notices: Option<Arc<dyn NoticeSink>> = None,
        /// Carries publications to other nodes. `None`: there are no others.
        pub broker: Option<Arc<dyn Broker>> = None,
        /// Names the node in the ids of its clients, for other nodes. `None`: there are no others.
        pub node_tag: Option<NodeTag> = None,
        /// The ledger of the process, of which [`Limits::memory_bytes_max`] is the budget, if others than the node count in it.
        pub ledger: Option<Arc<Ledger>> = None,
        /// Passes requests through to the node that has their session. `None`: they are answered here.
        pub relay: Option<Arc<dyn Relay>> = None,
    }
}

impl Options {
    /// Checks the lists of prefixes and of custom protocols.
    ///
    /// # Errors
    /// For people: what is wrong with which.
    pub fn check(&self) -> Result<(), String> {
        SockJs::check(&self.sockjs)?;
        CustomProtocol::check(&self.protocols)
    }

    /// A prefix, by its place, and the built-in application that runs there instead of the node's.
    pub fn prefix(&self, place: usize) -> Option<(&str, Option<App>)> {
        self.sockjs.get(place).map(|sockjs| (&*sockjs.prefix, sockjs.app))
    }
}
