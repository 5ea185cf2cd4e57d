//! Options of the control plane, with defaults and units. The binary sets them. This module reads no files.
//!
//! The ranges of values are declared with the configuration's keys (`crates/stentor/src/config/schema`),
//! and the binary checks them. [`Options::check`](crate::Options::check) makes the checks that need the
//! control plane.

use crate::secrets::Secrets;
use rustls::ServerConfig;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::KeyCharset;

/// Maximum of every duration in the options (a year).
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum value taken from `Retry-After` with a status other than 429.
const RETRY_AFTER_OF_KEY_MAX: Duration = Duration::from_secs(60);
/// Minimum length of the admin token, in bytes.
pub const TOKEN_BYTES_MIN: usize = 16;

/// Reloads the configuration.
pub trait Reload: Send + Sync {
    /// Reads the configuration and applies all changes or none, even if the future is dropped. Returns a JSON
    /// text: the changes, or the reason why nothing changed.
    fn reload(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;
}

stentor_ports::opaque_debug!(dyn Reload, "Reload");

/// Returns the files of certificates, each with its expiry in Unix time.
pub(crate) type Expiries = Arc<dyn Fn() -> Vec<(PathBuf, Duration)> + Send + Sync>;

/// The TLS settings of the admin port.
#[derive(Clone)]
pub struct AdminTls {
    /// The configuration of rustls. Its certificates may be replaced while the server runs.
    pub config: Arc<ServerConfig>,
    /// Returns the certificates' files, each with its expiry in Unix time.
    pub expiries: Expiries,
}

stentor_ports::opaque_debug!(AdminTls, "AdminTls");

/// A counter for `/metrics` that belongs to neither plane.
#[derive(Clone)]
pub struct ProcessCounter {
    /// Name of the counter, without the prefix `stentor_` and the suffix `_total`.
    pub name: &'static str,
    /// Help text: one sentence without a full stop.
    pub help: &'static str,
    /// Returns the counter's value.
    pub value: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl fmt::Debug for ProcessCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessCounter({})", self.name)
    }
}

/// Keys whose documents are pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushedKeys {
    /// Prefix of the keys, used if `key` is empty. If both are empty, all keys are pushed.
    pub prefix: String,
    /// Template of the keys. If it is empty, `prefix` applies.
    pub key: String,
    /// Allowed characters in the keys.
    pub keys: KeyCharset,
}

/// The content of an upstream's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON, whatever the Content-Type. An invalid body is an error.
    Json,
    /// Any content. A document with a JSON Content-Type must be valid JSON. Other documents are passed on
    /// unchanged.
    Any,
}

/// The proxy for requests to an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub enum Proxy {
    /// Requests go to the host of the URL.
    #[default]
    None,
    /// The proxy at this URL, which begins with `http://`.
    Url(String),
    /// The values of `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`. Empty means unset.
    Environment {
        /// URL of the proxy for upstreams with `http://`.
        http: String,
        /// URL of the proxy for upstreams with `https://`.
        https: String,
        /// Hosts and networks that are requested without a proxy.
        no: String,
    },
}

/// Redirects that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    /// Every redirect is a failure.
    Never,
    /// At most three redirects in a row are followed. Each target must begin with the upstream's URL up to
    /// its first placeholder.
    SamePath,
}

/// The method of requests to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestMethod {
    /// GET, with conditional headers.
    Get,
    /// POST, with a body and without conditional headers.
    Post,
}

/// A compression of bodies that an upstream may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
}

stentor_ports::with_defaults! {
    /// Options of feeds: their sources, intervals and limits.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FeedsOptions {
        /// Sources of documents. If several match a key, the most specific one applies
        /// ([`Route`](crate::Route)).
        pub upstreams: Vec<UpstreamOptions> = Vec::new(),
        /// Keys whose documents are pushed. Clients may wait for their first documents. A more specific
        /// upstream takes precedence.
        pub pushed: Vec<PushedKeys> = Vec::new(),
        /// Maximum number of keys, with and without subscribers. Further keys are refused. At least 1.
        pub keys_max: usize = 10_000,
        /// Maximum number of never-fetched keys for which a session may wait. Further subscriptions are
        /// refused. Zero means unlimited, because keys take turns by address and session.
        pub cold_keys_max: usize = 0,
        /// Maximum number of never-fetched keys for which all sessions of an address may wait. Zero means
        /// unlimited.
        pub cold_keys_per_address_max: usize = 0,
        /// Maximum size of all kept documents in bytes. A version that doesn't fit is refused, and its feed
        /// becomes stale.
        pub documents_bytes_max: usize = 256 << 20,
        /// Maximum number of concurrent fetches of all upstreams. At least 1. Each upstream may always use an
        /// equal share, which is at least one fetch.
        pub fetches_max: usize = 256,
        /// Maximum size in bytes of all response bodies that are being received. At this limit, all fetches
        /// but the oldest one wait.
        pub fetches_bytes_max: usize = 128 << 20,
        /// Time for which a key without subscribers is kept and fetched.
        pub idle_ttl: Duration = Duration::from_secs(30),
        /// Time after which a key with a document counts as not found if its upstream answers only 404. Zero
        /// means at once.
        pub not_found_after: Duration = Duration::from_secs(30),
        /// Time after which a key that doesn't exist may be fetched again, if a client requests it.
        pub not_found_retry_interval: Duration = Duration::from_secs(5),
        /// Maximum delay before the first retry of a failed fetch. The maximum doubles with each further
        /// failure.
        pub backoff_initial: Duration = Duration::from_secs(1),
        /// Maximum delay before a retry, unless an upstream asks for more with `Retry-After`.
        pub backoff_max: Duration = Duration::from_secs(60),
        /// Maximum value taken from `Retry-After` with status 429. With any other status, the maximum is this
        /// value or 60 s, whichever is smaller.
        pub retry_after_max: Duration = Duration::from_secs(3600),
        /// Maximum value taken from `Cache-Control: max-age`.
        pub max_age_max: Duration = Duration::from_secs(24 * 3600),
        /// Maximum number of keys with pushed documents. At least 1.
        pub pushed_keys_max: usize = 10_000,
        /// Maximum size of all pushed documents in bytes.
        pub pushed_documents_bytes_max: usize = 64 << 20,
        /// Maximum size of one pushed document in bytes, as received and after decompression. At least 1.
        pub pushed_document_bytes_max: usize = 4 << 20,
        /// File with PEM certificates to trust for https upstreams, instead of the system's.
        pub ca_file: Option<PathBuf> = None,
        /// Values of the secrets in URLs and headers of upstreams.
        pub secrets: Secrets = Secrets::default(),
    }

    /// One HTTP API that serves documents of feeds.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct UpstreamOptions {
        /// Name of the upstream in logs and metrics, unique.
        pub name: String = String::new(),
        /// Prefix of the upstream's keys, used if `key` is empty. If both are empty, all keys.
        pub prefix: String = String::new(),
        /// Template of the upstream's keys, such as `matchesfeed/{id}/matchcentre`. If it is empty, `prefix`
        /// applies.
        pub key: String = String::new(),
        /// Allowed characters in the upstream's keys.
        pub keys: KeyCharset = KeyCharset::Ascii,
        /// `http://` or `https://`, a host, and optionally a path and a query. With a `key`, the path and the
        /// query may contain its placeholders. Otherwise the complete key is appended to the path. The URL
        /// may contain [`Secrets`].
        pub url: String = String::new(),
        /// Time between the starts of two fetches of a key, unless the upstream sets another. At least 1 ms.
        pub poll_interval: Duration = Duration::from_secs(1),
        /// Maximum time of a fetch, from its start to the last byte.
        pub timeout: Duration = Duration::from_secs(10),
        /// Maximum time to open a connection: DNS lookup, connecting, and the TLS handshake.
        pub connect_timeout: Duration = Duration::from_secs(3),
        /// Maximum time without received data, before the response headers and within the body. Zero means
        /// `timeout`.
        pub read_timeout: Duration = Duration::ZERO,
        /// Maximum size of a document in bytes, as received and after decompression.
        pub document_bytes_max: usize = 4 << 20,
        /// Maximum number of concurrent fetches. At least 1.
        pub concurrency_max: usize = 32,
        /// Maximum number of fetches that start per second, evenly distributed. A tenth of them, and at least
        /// one, may start at once.
        pub requests_per_second_max: usize = 1000,
        /// Maximum size of a response's headers in bytes.
        pub response_header_bytes_max: usize = 128 << 10,
        /// Time after which a connection isn't used for further requests.
        pub connection_age_max: Duration = Duration::from_secs(5 * 60),
        /// The method of every request.
        pub method: RequestMethod = RequestMethod::Get,
        /// The body of every request, a JSON text. A complete string in it may be a placeholder of `key`.
        pub body: String = String::new(),
        /// Compressions that are offered to the upstream. Empty means none.
        pub accept_encoding: Vec<ContentCoding> = vec![ContentCoding::Gzip, ContentCoding::Brotli],
        /// Headers of every request, for example `("Authorization", "Bearer ${file:/run/secrets/api}")`. They
        /// may contain [`Secrets`].
        pub headers: Vec<(String, String)> = Vec::new(),
        /// `USER:PASSWORD` for the header `Authorization` (RFC 7617). It may contain secrets. Empty means no
        /// such header.
        pub basic_auth: String = String::new(),
        /// The content of the upstream's documents.
        pub content: Content = Content::Json,
        /// `true` ignores the upstream's `Cache-Control`, so that only `poll_interval` applies.
        pub ignore_cache_control: bool = false,
        /// Minimum value taken from `Cache-Control: max-age`.
        pub max_age_min: Duration = Duration::from_secs(1),
        /// Maximum value taken from `Cache-Control: max-age`. Zero means [`FeedsOptions::max_age_max`].
        pub max_age_max: Duration = Duration::ZERO,
        /// `true` if `Cache-Control: max-age=0` ends the feed. Off by default, because many frameworks send
        /// this header by default.
        pub complete_on_max_age_zero: bool = false,
        /// Host, with an optional port, for the header `Host`, for SNI and as the name in the certificate.
        /// `None` means the host of `url`. Connections are always opened to the host of `url`.
        pub host: Option<String> = None,
        /// Unix domain socket for requests. The host of `url` is then sent only in the header `Host`.
        pub socket: Option<PathBuf> = None,
        /// The proxy for requests.
        pub proxy: Proxy = Proxy::None,
        /// File with PEM certificates to trust for this upstream. `None` means [`FeedsOptions::ca_file`].
        pub ca_file: Option<PathBuf> = None,
        /// File with the PEM certificate that identifies this client to the upstream, and its intermediate
        /// certificates. Requires `client_key_file`.
        pub client_certificate_file: Option<PathBuf> = None,
        /// File with the PEM private key of `client_certificate_file`.
        pub client_key_file: Option<PathBuf> = None,
        /// The redirects that are followed. Each redirect counts as a request, and all must complete within
        /// `timeout`.
        pub redirects: Redirects = Redirects::Never,
        /// `true` sends the upstream's cookies back to it: at most 16 of 4 kB, in memory.
        pub cookies: bool = false,
        /// Names of members that identify the objects of an array, tried in this order before `id` and similar names.
        pub identity: Vec<String> = Vec::new(),
        /// JSON pointers to members whose changes alone don't make a new version
        /// ([`Ignored`](stentor_delta::Ignored)).
        pub ignore: Vec<String> = Vec::new(),
    }

    /// Options of the admin port: publish API, metrics, health.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AdminOptions {
        /// Address of the admin port. Port 0 picks a free port. An address beyond loopback requires `token`.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8001)),
        /// The token for `Authorization: Bearer …`. At least [`TOKEN_BYTES_MIN`] visible ASCII characters.
        pub token: Option<String> = None,
        /// Accepted values of `Host`, in addition to loopback and the address itself.
        pub hosts: Vec<String> = Vec::new(),
        /// Maximum size of one message to publish in bytes, with its envelope: a JSON body, or a line of
        /// NDJSON.
        pub message_bytes_max: usize = 1_000_000,
        /// Maximum number of open connections. At this limit, a new connection replaces the oldest one
        /// without a complete, authorized request. If there is none, the new connection is answered with 503
        /// and closed.
        pub connections_max: usize = 256,
        /// Maximum time for the headers of a request.
        pub header_timeout: Duration = Duration::from_secs(10),
        /// Maximum time for a message or document to arrive. Also the maximum time without progress while a
        /// client reads the response.
        pub body_timeout: Duration = Duration::from_secs(30),
        /// Maximum time that a publication waits for space in a full mailbox. It is then refused with 503.
        pub busy_timeout: Duration = Duration::from_secs(10),
        /// Maximum number of acknowledgements that one request gathers. Others count as missing.
        pub acknowledgements_max: usize = 10_000,
        /// Maximum size of the acknowledgements that one request gathers, in bytes. Others count as missing.
        pub acknowledgements_bytes_max: usize = 1 << 20,
        /// Maximum time for requests in progress at shutdown.
        pub shutdown_timeout: Duration = Duration::from_secs(5),
    }
}

impl UpstreamOptions {
    /// Returns the time without received data after which a fetch fails.
    pub(crate) fn read_timeout(&self) -> Duration {
        if self.read_timeout.is_zero() { self.timeout } else { self.read_timeout }
    }
}

impl UpstreamOptions {
    /// Iterates over the settings that may contain secrets.
    pub(crate) fn texts_with_secrets(&self) -> impl Iterator<Item = &String> {
        self.headers.iter().map(|(_, text)| text).chain([&self.url, &self.basic_auth])
    }
}

impl FeedsOptions {
    /// Returns the time until the next fetch of a key of this upstream, after a response with the `max-age`
    /// `age`.
    pub(crate) fn bounded_max_age(&self, upstream: usize, age: Duration) -> Duration {
        let UpstreamOptions { max_age_min, max_age_max, .. } = &self.upstreams[upstream];
        let max_age_max = if max_age_max.is_zero() { &self.max_age_max } else { max_age_max };
        age.min(*max_age_max).max(*max_age_min)
    }

    /// Returns the time for which a response with `Retry-After` holds its key or, with status 429, its
    /// complete upstream.
    pub(crate) fn bounded_retry_after(&self, wait: Duration, is_429: bool) -> Duration {
        let bound = self.retry_after_max;
        wait.min(if is_429 { bound } else { bound.min(RETRY_AFTER_OF_KEY_MAX) })
    }
}
