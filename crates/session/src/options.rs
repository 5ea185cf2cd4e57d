//! The options of sessions: all options of the data plane except those of sockets and threads.

use crate::app::Application;
use crate::encode::CUSTOM_PROTOCOLS_MAX;
use crate::hosts::Hosts;
use crate::identity::PREFIXES_MAX;
use crate::ledger::Ledger;
use crate::limits::{AddressLimits, SessionLimits, UserLimits};
use crate::origin::Origins;
use crate::ports::with_defaults;
use crate::ports::{
    Authenticator, Authorizer, Broker, EventSink, Forward, LinkApp, LinkApps, LinkSink, NodeTag, NoticeSink,
    Relay,
};
use crate::proxies::Proxies;
use crate::proxy_users::ProxyUsers;
use crate::rule::Rooms;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Body, CoreId, Data, KeyRule};
use stentor_wire::sockjs::ResponseLimit;

/// The built-in applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum App {
    /// Returns each message to its client.
    Echo,
    /// Sends each message to all clients, including the sender.
    Chat,
    /// `stentor.v1`: feeds and rooms (docs/protocol.md).
    #[default]
    Rooms,
}

with_defaults! {
    /// Limits for clients. A limit applies to each connection unless its description says otherwise.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Maximum size of a message in bytes, before and after decompression.
        pub message_bytes_max: usize = 1_000_000,
        /// Maximum number of fragments of a message (Autobahn 9.3 needs 65,536).
        pub fragments_max: u32 = 131_072,
        /// Maximum time from the first byte of a message to its last.
        pub message_timeout: Duration = Duration::from_secs(30),
        /// Maximum size of a request's headers in bytes.
        pub header_bytes_max: usize = 16 * 1024,
        /// Maximum number of headers of a request.
        pub headers_max: usize = 100,
        /// Maximum time from the first byte of a request, or the start of the connection, to the end of the headers.
        pub header_timeout: Duration = Duration::from_secs(10),
        /// Maximum time from the start of a connection to the end of its TLS handshake.
        pub tls_handshake_timeout: Duration = Duration::from_secs(10),
        /// Maximum number of unfinished TLS handshakes per core. When exceeded, the oldest one ends.
        pub tls_handshakes_max: usize = 4_096,
        /// Maximum number of bytes of a request's body that are read and discarded on routes that take none.
        pub body_bytes_max: usize = 64 * 1024,
        /// Maximum time of an HTTP connection between two requests. It also limits the time for a body, and the time without any
        /// progress of an answer.
        pub idle_timeout: Duration = Duration::from_secs(75),
        /// Maximum time for which a request waits for a document, or for the answer of an application.
        pub request_timeout: Duration = Duration::from_secs(10),
        /// Maximum time from the server's decision to close to the end of the connection. Each progress of bytes that the client
        /// must still receive starts it again.
        pub close_timeout: Duration = Duration::from_secs(5),
        /// Maximum size of the pending deliveries of a session, encoded, under the policies `queue` and `drop_oldest`.
        pub send_buffer_bytes_max: usize = 1 << 20,
        /// Size of unread answers, in bytes, at which the server stops reading the client's messages.
        pub replies_bytes_max: usize = 64 * 1024,
        /// Maximum number of bytes that a core receives, decompresses and handles for one connection per turn.
        pub turn_bytes_max: usize = 128 * 1024,
        /// Maximum nesting of arrays and objects in JSON that a client publishes.
        pub json_depth_max: usize = 128,
        /// Maximum number of topics that a session is subscribed to.
        pub subscriptions_max: usize = 1_000,
        /// Maximum number of topics per core.
        pub topics_max: usize = 1_000_000,
        /// Maximum number of patches kept per feed, for subscribers that are behind.
        pub feed_patches_max: usize = 100,
        /// Maximum size, in bytes, of the patches that a core keeps for the feeds whose home core it is.
        pub feed_patches_bytes_max: usize = 16 << 20,
        /// Minimum time between two versions of a feed for one subscription with policy `latest`. With zero, there is no minimum.
        pub feed_interval_min: Duration = Duration::ZERO,
        /// Maximum number of connections of the process.
        pub connections_max: usize = 1_000_000,
        /// Maximum number of new connections of the process per second. With zero, there is no limit.
        pub connections_per_second: u32 = 0,
        /// Maximum number of connections that are relayed to other nodes.
        pub relayed_connections_max: usize = 10_000,
        /// Maximum number of bytes that the process holds for clients: frames, history, documents. When exceeded, history is
        /// evicted, and then the slowest sessions end.
        pub memory_bytes_max: usize = 1 << 30,
        /// Maximum number of open questions to the authorizer per core. When exceeded, the last question of the address with the
        /// most is refused.
        pub decisions_max: usize = 10_000,
        /// Maximum time from a question to the authorizer to its answer.
        pub decision_timeout: Duration = Duration::from_secs(5),
        /// Maximum number of publications with an idempotency key within five minutes.
        pub idempotency_keys_max: usize = 200_000,
        /// Maximum number of messages of the control plane that are queued for a core.
        pub inbox_messages_max: usize = 16_384,
        /// Maximum number of bytes of messages of the control plane that are queued for a core.
        pub inbox_bytes_max: usize = 64 << 20,
        /// Maximum number of messages in the ring from one core to another. Further messages stay with the sender.
        pub mailbox_messages_max: usize = 4_096,
        /// Maximum number of bytes of messages in the ring from one core to another.
        pub mailbox_bytes_max: usize = 16 << 20,
    }
}

with_defaults! {
    /// Times of heartbeats.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Heartbeat {
        /// Time without input before a ping.
        pub interval: Duration = Duration::from_secs(25),
        /// Time from the kernel's acceptance of the ping to the end of the session. Received bytes, and progress of sent bytes,
        /// count as a sign of life, so a slow client isn't closed.
        pub timeout: Duration = Duration::from_secs(20),
    }
}

with_defaults! {
    /// Compression of messages for clients that offer it (RFC 7692). The server resets its context after each message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Deflate {
        /// `true` if offers are accepted.
        pub enabled: bool = true,
        /// Compression level from 1 (fast) to 9 (small).
        pub level: u8 = 5,
        /// Minimum size of a payload that is compressed, in bytes.
        pub bytes_min: usize = 512,
    }
}

/// A page or file that is served unchanged.
#[derive(Clone, Debug)]
pub struct StaticRoute {
    /// The complete path, beginning with `/`.
    pub path: String,
    /// The media type.
    pub content_type: String,
    /// The content.
    pub body: Arc<[u8]>,
}

/// A file that pages of all origins may load, as it is or compressed.
#[derive(Clone, Debug)]
pub struct PublicFile {
    /// The complete path, beginning with `/`.
    pub path: String,
    /// The media type.
    pub content_type: String,
    /// The value of `Cache-Control`.
    pub cache_control: String,
    /// The entity tag, without quotes. Different contents have different tags.
    pub tag: String,
    /// The content.
    pub body: Bytes,
    /// The content in the coding `br`.
    pub brotli: Bytes,
    /// The content in the coding `gzip`.
    pub gzip: Bytes,
}

with_defaults! {
    /// Limits of the recovery of Socket.IO clients that are disconnected.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Recovery {
        /// Maximum time for which a client may be disconnected.
        pub age_max: Duration = Duration::from_secs(120),
        /// Maximum number of bytes of publications that each core keeps for disconnected clients.
        pub bytes_max: usize = 16 << 20,
        /// Maximum number of sockets of disconnected clients that each core keeps.
        pub sessions_max: usize = 100_000,
    }
}

crate::ports::named! {
    /// The sites from which browsers send a cookie (RFC 6265bis, section 5.6.7).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SameSite {
        /// Requests from the cookie's own site, and navigation from other sites.
        #[default]
        Lax = "Lax",
        /// Requests from the cookie's own site only.
        Strict = "Strict",
        /// Requests from any site. Browsers require [`EngineIo::cookie_secure`] for this.
        None = "None",
    }
}

with_defaults! {
    /// Options of Engine.IO and of Socket.IO on top of it. Heartbeats are those of [`Heartbeat`]; the maximum size of a message
    /// or body is [`Limits::message_bytes_max`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EngineIo {
        /// `true` if clients of Engine.IO 3 (Socket.IO 1 and 2) are accepted.
        pub allow_version_3: bool = true,
        /// `true` if polling clients of Engine.IO 3 are of version 1.x, whose text is encoded as UTF-8 twice.
        pub polling_1: bool = false,
        /// Name of a cookie with the session's id, for load balancers with sticky sessions.
        pub cookie: Option<String> = None,
        /// `true` if browsers send the cookie only over HTTPS.
        pub cookie_secure: bool = false,
        /// The sites from which browsers send the cookie.
        pub cookie_same_site: SameSite = SameSite::default(),
        /// Maximum number of packets in one body. Clients put all pending packets into one body.
        pub packets_max: usize = 100_000,
        /// Maximum time from a WebSocket's handshake to the end of the client's upgrade to it.
        pub upgrade_timeout: Duration = Duration::from_secs(10),
        /// Maximum time without a namespace, from the start of a Socket.IO session or from leaving the last namespace.
        pub connect_timeout: Duration = Duration::from_secs(45),
        /// Maximum number of attachments of a Socket.IO packet.
        pub attachments_max: usize = 10,
        /// Maximum number of namespaces that a client is connected to at once.
        pub namespaces_max: usize = 16,
        /// Recovery of disconnected clients. `None` disables it.
        pub recovery: Option<Recovery> = None,
        /// Delay of the first packet after a WebSocket's handshake. It is zero except for test suites that listen for one event
        /// after the other and miss a packet in the same segment.
        pub open_delay: Duration = Duration::ZERO,
        /// The event that delivers feeds to Socket.IO clients.
        pub feed_event: String = "feed".to_owned(),
        /// `true` if the event has the document as one string, instead of an object with its position.
        pub feed_as_string: bool = false,
    }
}

impl Options {
    /// The attribute `Path` of cookies.
    pub(crate) fn cookie_path(&self) -> &str {
        if self.base_path.is_empty() { "/" } else { &self.base_path }
    }

    /// Returns `true` if the other end of a socket is an authenticating proxy, which may name users.
    pub fn is_gateway(&self, peer: std::net::IpAddr) -> bool {
        self.tokens.proxy.as_ref().is_some_and(|proxy| proxy.from.contains(peer))
    }
}

/// Maximum number of prefixes at which SockJS is served.
pub const SOCKJS_PREFIXES_MAX: usize = PREFIXES_MAX;

with_defaults! {
    /// A path prefix at which SockJS is served. The maximum size of a message or body is [`Limits::message_bytes_max`].
    /// WebSockets have the heartbeats of [`Heartbeat`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SockJs {
        /// The path, with a `/` at the beginning and none at the end. If several prefixes match, the longest applies. The
        /// server's own routes precede all of them.
        pub prefix: String = "/sockjs".to_owned(),
        /// The built-in application for this prefix. `None` selects the node's application.
        pub app: Option<App> = None,
        /// `true` if WebSockets are offered. Clients learn this before they choose a transport.
        pub websocket: bool = true,
        /// `true` if answers set the cookie `JSESSIONID`, for load balancers with sticky sessions.
        pub jsessionid: bool = false,
        /// URL of the client library for the iframe page, in the version that the pages use. Its code runs in the server's
        /// origin.
        pub client_url: String = "/sockjs.min.js".to_owned(),
        /// Size of a streaming response, in bytes, at which it ends and the client requests another one. Browsers keep the whole
        /// response in memory.
        pub response_bytes_max: usize = ResponseLimit::STREAMING_BYTES,
        /// Interval of heartbeats on a waiting request.
        pub heartbeat: Duration = Duration::from_secs(25),
        /// Time for which a session lives without a waiting request. The server reports the reason for the end of a session for
        /// the same time.
        pub disconnect_delay: Duration = Duration::from_secs(5),
        /// Maximum number of messages in one body or WebSocket message. Clients put all pending messages into one.
        pub messages_max: usize = 100_000,
    }
}

impl SockJs {
    /// Options for `prefix` with the defaults.
    pub fn at(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..Self::default() }
    }

    /// Checks a list of prefixes.
    ///
    /// # Errors
    /// The first mistake, for people.
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
    /// Options of Server-Sent Events. Comments are sent every [`Heartbeat::interval`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Sse {
        /// Mean reconnect delay of clients. Each client receives a different delay, of at least half of it.
        pub retry: Duration = Duration::from_secs(3),
        /// Reconnect delay of clients whose feeds all don't exist. They retry for ever.
        pub retry_lost: Duration = Duration::from_secs(60),
    }
}

with_defaults! {
    /// Options of Primus.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Primus {
        /// Interval of pings, and maximum time until the answer. Clients close the connection after 45 s without a ping.
        pub ping_interval: Duration = Duration::from_secs(30),
    }
}

with_defaults! {
    /// Options of tokens.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Tokens {
        /// The cookie that may carry a token. It counts only if the request's `Origin` is the server's own or listed by name.
        pub cookie: Option<String> = None,
        /// The authenticating proxy that names users. `None` without one.
        pub proxy: Option<ProxyUsers> = None,
        /// Time before the expiry of a token at which the client is asked for a new one; at most half of the remaining time.
        pub renewal_lead: Duration = Duration::from_secs(30),
    }
}

/// A custom protocol: WebSocket messages on a path of its own, in the same rooms and feeds as all other protocols.
/// `crates/edge/examples/lines` is one.
#[derive(Clone, Debug)]
pub struct CustomProtocol {
    /// The path, beginning with `/`. The server's own routes precede it.
    pub path: String,
    /// Makes a core's application, which handles the messages of the protocol's clients.
    pub app: fn(CoreId) -> Box<dyn Application>,
    /// Writes a publication as a message, at most once per core for all clients. `None` if the clients don't receive the
    /// publication. Instead of a delta, they receive the snapshot.
    pub encode: fn(&Body) -> Option<Data>,
}

impl CustomProtocol {
    /// Checks a list of protocols.
    ///
    /// # Errors
    /// The first mistake, for people.
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

/// The applications whose clients are served by workers.
#[derive(Clone, Debug)]
pub struct LinkRoutes {
    /// The application link.
    pub sink: Arc<dyn LinkSink>,
    /// The paths and options of the applications. Paths take precedence over the server's own paths of Socket.IO and Engine.IO.
    pub apps: Arc<LinkApps>,
    /// The application whose workers' HTTP servers answer requests for other paths than the server's. `None` if no application's do.
    pub http: Option<(LinkApp, Arc<dyn Forward>)>,
}

with_defaults! {
    /// The options of sessions.
    #[derive(Clone, Debug)]
    pub struct Options {
        /// The built-in application.
        pub app: App = App::default(),
        /// The host names of the server.
        pub hosts: Hosts = Hosts::default(),
        /// The prefix of all paths, such as `/rt`. Empty without one.
        pub base_path: String = String::new(),
        /// The pages that may connect.
        pub origins: Origins = Origins::default(),
        /// `true` if each request causes an event of `tracing` with the target [`ACCESS_LOG`](crate::access::ACCESS_LOG).
        pub access_log: bool = false,
        /// Limits for clients.
        pub limits: Limits = Limits::default(),
        /// The proxies in front of the server.
        pub proxies: Proxies = Proxies::default(),
        /// Limits per client address.
        pub address_limits: AddressLimits = AddressLimits::default(),
        /// Limits per user.
        pub user_limits: UserLimits = UserLimits::default(),
        /// Limits per session.
        pub session_limits: SessionLimits = SessionLimits::default(),
        /// Heartbeats.
        pub heartbeat: Heartbeat = Heartbeat::default(),
        /// Compression.
        pub deflate: Deflate = Deflate::default(),
        /// Engine.IO and Socket.IO.
        pub engine: EngineIo = EngineIo::default(),
        /// `true` if the handshakes of Socket.IO clients are kept, for other servers that request them.
        pub keeps_handshakes: bool = false,
        /// The prefixes at which SockJS is served.
        pub sockjs: Vec<SockJs> = vec![SockJs::default()],
        /// Server-Sent Events.
        pub sse: Sse = Sse::default(),
        /// Primus.
        pub primus: Primus = Primus::default(),
        /// The keys of feeds that clients may name.
        pub keys: KeyRule = KeyRule::default(),
        /// Options of the application `rooms`.
        pub rooms: Rooms = Rooms::default(),
        /// Static pages and files.
        pub routes: Vec<StaticRoute> = Vec::new(),
        /// Files for pages of all origins. A page with the same path takes precedence.
        pub files: Vec<PublicFile> = Vec::new(),
        /// Custom protocols.
        pub protocols: Vec<CustomProtocol> = Vec::new(),
        /// Verifies clients; their identities decide about their actions. `None` if all clients are anonymous.
        pub authenticator: Option<Arc<dyn Authenticator>> = None,
        /// Options of tokens.
        pub tokens: Tokens = Tokens::default(),
        /// Decides about the actions of clients if there is no authenticator. `None` allows all actions.
        pub authorizer: Option<Arc<dyn Authorizer>> = None,
        /// Receives events of clients that the application `rooms` doesn't handle itself. `None` ignores them.
        pub events: Option<Arc<dyn EventSink>> = None,
        /// Receives notices of sessions that begin and end, and of subscriptions.
        pub notices: Option<Arc<dyn NoticeSink>> = None,
        /// Sends publications to other nodes. `None` without a cluster and bridges.
        pub broker: Option<Arc<dyn Broker>> = None,
        /// Names the node in the ids of its clients, for other nodes. `None` without a cluster.
        pub node_tag: Option<NodeTag> = None,
        /// The ledger of the process, if other parts than the node charge it. [`Limits::memory_bytes_max`] is its budget.
        pub ledger: Option<Arc<Ledger>> = None,
        /// The applications whose clients are served by workers. `None` without an application link.
        pub link: Option<LinkRoutes> = None,
        /// Relays requests to the nodes that have their sessions. `None` if this node answers all requests.
        pub relay: Option<Arc<dyn Relay>> = None,
    }
}

impl Options {
    /// Checks the lists of prefixes and of custom protocols.
    ///
    /// # Errors
    /// The first mistake, for people.
    pub fn check(&self) -> Result<(), String> {
        SockJs::check(&self.sockjs)?;
        CustomProtocol::check(&self.protocols)
    }

    /// The prefix with this index, and the built-in application that serves it instead of the node's.
    pub fn prefix(&self, place: usize) -> Option<(&str, Option<App>)> {
        self.sockjs.get(place).map(|sockjs| (&*sockjs.prefix, sockjs.app))
    }
}
