//! What can be configured, with defaults and units. The binary fills these options; nothing here reads files.
//!
//! The ranges of values are declared with the configuration's keys (`crates/stentor/src/config/schema.rs`), which the binary
//! checks. [`Options::check`](crate::Options::check) checks what only the control plane knows.

use crate::secrets::Secrets;
use rustls::ServerConfig;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::KeyCharset;

/// No duration in the options may be longer: a year.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// `Retry-After` with another status than 429 counts up to this time.
const RETRY_AFTER_OF_KEY_MAX: Duration = Duration::from_secs(60);
/// Minimum length of the admin token, in bytes.
pub const TOKEN_BYTES_MIN: usize = 16;

/// Reads the configuration again.
pub trait Reload: Send + Sync {
    /// Applies it, all or nothing, also if the future is dropped. The answer is a JSON text: what changed, or why nothing did.
    fn reload(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;
}

impl fmt::Debug for dyn Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

/// TLS of the admin port.
#[derive(Clone)]
pub struct AdminTls {
    /// The configuration of rustls. Its certificates may be replaced while the server runs.
    pub config: Arc<ServerConfig>,
    /// Returns the files of the certificates, and when they expire, in Unix time.
    pub expiries: Arc<dyn Fn() -> Vec<(PathBuf, Duration)> + Send + Sync>,
}

impl fmt::Debug for AdminTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminTls")
    }
}

/// A counter for `/metrics` that neither plane keeps.
#[derive(Clone)]
pub struct ProcessCounter {
    /// Its name, without the prefix `stentor_` and the suffix `_total`.
    pub name: &'static str,
    /// One sentence, without a full stop.
    pub help: &'static str,
    /// Reads it.
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
    /// Their prefix, if `key` is empty. Both empty: all keys.
    pub prefix: String,
    /// Their template. Empty: see `prefix`.
    pub key: String,
    /// Their characters.
    pub keys: KeyCharset,
}

/// What an upstream serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON, whatever the Content-Type. A body that isn't valid JSON is an error.
    Json,
    /// Anything. A document with a JSON Content-Type must be valid JSON; the rest is passed on as it is.
    Any,
}

/// The proxy on the way to an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub enum Proxy {
    /// Requests go to the host of the URL.
    #[default]
    None,
    /// The one at this URL, which begins with `http://`.
    Url(String),
    /// The values of `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`. Empty: not set.
    Environment {
        /// For upstreams with `http://`.
        http: String,
        /// For upstreams with `https://`.
        https: String,
        /// Hosts and networks to which no proxy leads.
        no: String,
    },
}

/// Redirects that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    /// Every redirect is a failure.
    Never,
    /// At most three in a row, each to a URL that begins with the upstream's URL up to its first placeholder.
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
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
}

/// Declares options: each field once, with its meaning, its type and its default.
macro_rules! options {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[$doc:meta])+ $field:ident: $ty:ty = $default:expr,)+
        }
    )+) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])+ pub $field: $ty,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    )+};
}

options! {
    /// Feeds: which keys are fetched from where, how often, and what that may cost.
    pub struct FeedsOptions {
        /// Where documents come from. If several match a key, the most specific one applies ([`Route`](crate::Route)).
        upstreams: Vec<UpstreamOptions> = Vec::new(),
        /// Keys whose documents are pushed, and that clients may wait for. An upstream that matches more specifically wins.
        pushed: Vec<PushedKeys> = Vec::new(),
        /// Maximum number of keys, with and without subscribers. Further keys are refused. At least 1.
        keys_max: usize = 10_000,
        /// Maximum number of never-fetched keys that a session may wait for. Further subscriptions are refused. Zero: any number, because
        /// keys take turns by address and session.
        cold_keys_max: usize = 0,
        /// The same for all sessions of an address. Zero: any number.
        cold_keys_per_address_max: usize = 0,
        /// Bytes of all kept documents. A version that doesn't fit is refused, and its feed becomes stale.
        documents_bytes_max: usize = 256 << 20,
        /// Concurrent fetches of all upstreams. At least 1. Each upstream may always use as many as it gets if they are divided
        /// evenly, and at least one.
        fetches_max: usize = 256,
        /// Bytes of the bodies that are being received, of all upstreams. At this bound, fetches wait, but for the oldest one.
        fetches_bytes_max: usize = 128 << 20,
        /// Time that a key without subscribers is kept and fetched.
        idle_ttl: Duration = Duration::from_secs(30),
        /// Time after which a key with a document doesn't exist, if its upstream answers nothing but 404. Zero: at once.
        not_found_after: Duration = Duration::from_secs(30),
        /// Time until a key that doesn't exist is fetched again, if somebody asks for it.
        not_found_retry_interval: Duration = Duration::from_secs(5),
        /// Maximum delay before the first retry of a failed fetch. It doubles with each further failure.
        backoff_initial: Duration = Duration::from_secs(1),
        /// Maximum delay before a retry, unless an upstream asks for more with `Retry-After`.
        backoff_max: Duration = Duration::from_secs(60),
        /// Maximum value taken from an upstream's `Retry-After` with status 429; with another one, at most a minute as well.
        retry_after_max: Duration = Duration::from_secs(3600),
        /// Maximum value taken from `Cache-Control: max-age`.
        max_age_max: Duration = Duration::from_secs(24 * 3600),
        /// Maximum number of keys with pushed documents. At least 1.
        pushed_keys_max: usize = 10_000,
        /// Bytes of all pushed documents.
        pushed_documents_bytes_max: usize = 64 << 20,
        /// Bytes of one pushed document, as received and after decompression. At least 1.
        pushed_document_bytes_max: usize = 4 << 20,
        /// File with PEM certificates to trust for https upstreams, instead of the system's.
        ca_file: Option<PathBuf> = None,
        /// Values of the secrets that URLs and headers of upstreams name.
        secrets: Secrets = Secrets::default(),
    }

    /// One HTTP API that feeds come from.
    pub struct UpstreamOptions {
        /// Its name in logs and metrics, unique.
        name: String = String::new(),
        /// Prefix of its keys, if `key` is empty. Both empty: all keys.
        prefix: String = String::new(),
        /// Template of its keys, such as `matchesfeed/{id}/matchcentre`. Empty: see `prefix`.
        key: String = String::new(),
        /// Characters of its keys.
        keys: KeyCharset = KeyCharset::Ascii,
        /// `http://` or `https://`, a host, and perhaps a path and a query. With a `key`, its placeholders may stand in
        /// both; otherwise the whole key is appended to the path. It may name [`Secrets`].
        url: String = String::new(),
        /// Time from the start of a fetch to the next one, if the upstream doesn't say otherwise. At least 1 ms.
        poll_interval: Duration = Duration::from_secs(1),
        /// Time for a fetch, from its start to the last byte.
        timeout: Duration = Duration::from_secs(10),
        /// Time to open a connection: looking up the host, connecting, the TLS handshake.
        connect_timeout: Duration = Duration::from_secs(3),
        /// Time without progress before the response headers and within the body. Zero: `timeout`.
        read_timeout: Duration = Duration::ZERO,
        /// Bytes of a document, as received and after decompression.
        document_bytes_max: usize = 4 << 20,
        /// Concurrent fetches. At least 1.
        concurrency_max: usize = 32,
        /// Fetches that start per second, evenly distributed: at most a tenth of them, and at least one, start at once.
        requests_per_second_max: usize = 1000,
        /// Bytes of the headers of a response.
        response_header_bytes_max: usize = 128 << 10,
        /// Time after which no further request goes over a connection.
        connection_age_max: Duration = Duration::from_secs(5 * 60),
        /// The method of every request.
        method: RequestMethod = RequestMethod::Get,
        /// The body of every request, a JSON text. A placeholder of `key` may stand in it as a whole string.
        body: String = String::new(),
        /// Compressions that the upstream is offered. Empty: none.
        accept_encoding: Vec<ContentCoding> = vec![ContentCoding::Gzip, ContentCoding::Brotli],
        /// Headers of every request, for example `("Authorization", "Bearer ${file:/run/secrets/api}")`. They may name [`Secrets`].
        headers: Vec<(String, String)> = Vec::new(),
        /// `USER:PASSWORD` for the header `Authorization` (RFC 7617), which may name secrets. Empty: no such header.
        basic_auth: String = String::new(),
        /// What it serves.
        content: Content = Content::Json,
        /// Whether the upstream's `Cache-Control` is ignored. Then only `poll_interval` applies.
        ignore_cache_control: bool = false,
        /// Minimum value taken from `Cache-Control: max-age`.
        max_age_min: Duration = Duration::from_secs(1),
        /// Maximum value taken from `Cache-Control: max-age`. Zero: [`FeedsOptions::max_age_max`].
        max_age_max: Duration = Duration::ZERO,
        /// Whether `Cache-Control: max-age=0` ends the feed. Off by default, because many frameworks send this header by
        /// default.
        complete_on_max_age_zero: bool = false,
        /// Host, with an optional port, for the header `Host`, for SNI and as the name that the certificate must have. `None`: that of
        /// `url`. Connections are opened to the host of `url` in any case.
        host: Option<String> = None,
        /// Unix domain socket that requests go to, instead of the host of `url`, which is then only sent as the header `Host`.
        socket: Option<PathBuf> = None,
        /// The proxy that requests go through.
        proxy: Proxy = Proxy::None,
        /// File with PEM certificates to trust for this upstream. `None`: [`FeedsOptions::ca_file`].
        ca_file: Option<PathBuf> = None,
        /// File with the PEM certificate that identifies this client to the upstream, and its intermediate certificates. It needs
        /// `client_key_file`.
        client_certificate_file: Option<PathBuf> = None,
        /// File with the PEM private key of that certificate.
        client_key_file: Option<PathBuf> = None,
        /// Redirects that are followed. Each counts as a request, and all happen within `timeout`.
        redirects: Redirects = Redirects::Never,
        /// Whether cookies that the upstream sets are sent back to it: at most 16 of 4 kB, in memory.
        cookies: bool = false,
        /// Names of members that identify the objects of an array, tried in this order before `id` and similar names.
        identity: Vec<String> = Vec::new(),
        /// JSON pointers to members whose change alone makes no version ([`Ignored`](stentor_delta::Ignored)).
        ignore: Vec<String> = Vec::new(),
    }

    /// The admin port: publish API, metrics, health.
    pub struct AdminOptions {
        /// Where it listens. Port 0 picks one. An address beyond loopback needs `token`.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8001)),
        /// Required as `Authorization: Bearer …`. At least [`TOKEN_BYTES_MIN`] visible ASCII characters.
        token: Option<String> = None,
        /// Accepted values of `Host`, besides loopback and the address itself.
        hosts: Vec<String> = Vec::new(),
        /// Bytes of one message to publish, with its envelope: a JSON body, or a line of NDJSON.
        message_bytes_max: usize = 1_000_000,
        /// Open connections. At this limit the oldest one without a complete, authorized request makes room for another;
        /// without such a one, the other is answered with 503 and closed.
        connections_max: usize = 256,
        /// Time for the headers of a request.
        header_timeout: Duration = Duration::from_secs(10),
        /// Time for a message or document to arrive, and time without progress while a client reads the response.
        body_timeout: Duration = Duration::from_secs(30),
        /// Time that a publication waits for a full mailbox. It is then refused with 503.
        busy_timeout: Duration = Duration::from_secs(10),
        /// Time for requests in progress when shutting down.
        shutdown_timeout: Duration = Duration::from_secs(5),
    }
}

impl UpstreamOptions {
    /// The time without progress after which a fetch fails.
    pub(crate) fn read_timeout(&self) -> Duration {
        if self.read_timeout.is_zero() { self.timeout } else { self.read_timeout }
    }
}

impl UpstreamOptions {
    /// The settings that may name secrets.
    pub(crate) fn texts_with_secrets(&self) -> impl Iterator<Item = &String> {
        self.headers.iter().map(|(_, text)| text).chain([&self.url, &self.basic_auth])
    }
}

impl FeedsOptions {
    /// The time until the next fetch of a key of this upstream, if `max-age` says `age`.
    pub(crate) fn bounded_max_age(&self, upstream: usize, age: Duration) -> Duration {
        let UpstreamOptions { max_age_min, max_age_max, .. } = &self.upstreams[upstream];
        let max_age_max = if max_age_max.is_zero() { &self.max_age_max } else { max_age_max };
        age.min(*max_age_max).max(*max_age_min)
    }

    /// The time that `Retry-After` of a response holds its key, or its whole upstream (429).
    pub(crate) fn bounded_retry_after(&self, wait: Duration, is_429: bool) -> Duration {
        let bound = self.retry_after_max;
        wait.min(if is_429 { bound } else { bound.min(RETRY_AFTER_OF_KEY_MAX) })
    }
}
