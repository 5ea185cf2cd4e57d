//! What can be configured, with defaults and units. The binary fills these; nothing here reads files.

use crate::error::Error;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// No duration in the options may be longer: a year.
pub const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// All options of the control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Feeds and their upstreams.
    pub feeds: FeedsOptions,
    /// The admin port.
    pub admin: AdminOptions,
    /// Counters that the binary keeps.
    pub counters: Vec<ProcessCounter>,
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

impl Options {
    /// Says whether [`crate::Control::start`] would accept these options, without starting anything: no socket
    /// is opened, no name resolved. Files that they name (`ca_file`) are read.
    ///
    /// # Errors
    /// [`Error::Setting`], naming the setting.
    pub fn check(&self) -> Result<(), Error> {
        crate::upstream::Upstreams::new(&self.feeds)?;
        self.feeds.check()?;
        self.admin.check()
    }
}

/// Feeds: which keys are fetched from where, how often, and what that may cost.
#[derive(Clone, Debug)]
pub struct FeedsOptions {
    /// Where documents come from. Of several that fit a key the most specific wins; [`Route`](crate::Route) says which that is.
    pub upstreams: Vec<UpstreamOptions>,
    /// Keys whose documents are pushed, and that clients may wait for. One that an upstream serves, and more specifically, is
    /// the upstream's.
    pub pushed: Vec<PushedKeys>,
    /// Maximum number of keys, with and without subscribers. Further keys are refused. At least 1.
    pub keys_max: usize,
    /// Maximum number of never-fetched keys that a session may wait for. Further subscriptions are refused. At least
    /// 1.
    pub cold_keys_max: usize,
    /// Bytes of all kept documents. A version that doesn't fit is refused, its feed goes stale.
    pub documents_bytes_max: usize,
    /// Fetches in flight at once, of all upstreams. At least 1. Times `document_bytes_max` (as received) is what
    /// fetching may cost in memory.
    pub fetches_max: usize,
    /// How long a key without subscribers is kept and fetched.
    pub idle_ttl: Duration,
    /// After this time a wanted key whose upstream answered 404 is looked at again.
    pub not_found_retry_interval: Duration,
    /// The first retry after an error comes within this time; the bound doubles with each further error.
    pub backoff_initial: Duration,
    /// The longest wait for a retry. Also bounds an upstream's `Retry-After`.
    pub backoff_max: Duration,
    /// The longest wait that an upstream may ask for with `Cache-Control: max-age`.
    pub max_age_max: Duration,
    /// Keys that backends may push documents to. At least 1.
    pub pushed_keys_max: usize,
    /// Bytes of all documents that were pushed. A further one is refused.
    pub pushed_documents_bytes_max: usize,
    /// Bytes of a document that is pushed, as received. At least 1.
    pub pushed_document_bytes_max: usize,
    /// A file of PEM certificates to trust for https upstreams, instead of the system's.
    pub ca_file: Option<PathBuf>,
}

impl Default for FeedsOptions {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            pushed: Vec::new(),
            keys_max: 10_000,
            cold_keys_max: 250,
            documents_bytes_max: 256 << 20,
            fetches_max: 32,
            idle_ttl: Duration::from_secs(30),
            not_found_retry_interval: Duration::from_secs(60),
            backoff_initial: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            max_age_max: Duration::from_secs(24 * 3600),
            pushed_keys_max: 10_000,
            pushed_documents_bytes_max: 64 << 20,
            pushed_document_bytes_max: 4 << 20,
            ca_file: None,
        }
    }
}

impl FeedsOptions {
    fn check(&self) -> Result<(), Error> {
        at_least_one("feeds.keys_max", self.keys_max)?;
        at_least_one("limits.cold_keys_max", self.cold_keys_max)?;
        at_least_one("feeds.fetches_max", self.fetches_max)?;
        at_least_one("feeds.pushed_keys_max", self.pushed_keys_max)?;
        at_least_one("feeds.pushed_document_bytes_max", self.pushed_document_bytes_max)?;
        duration("feeds.idle_ttl", self.idle_ttl, Duration::ZERO)?;
        duration("feeds.not_found_retry_interval", self.not_found_retry_interval, Duration::from_millis(1))?;
        duration("feeds.backoff_initial", self.backoff_initial, Duration::from_millis(1))?;
        duration("feeds.backoff_max", self.backoff_max, Duration::from_millis(1))?;
        duration("feeds.max_age_max", self.max_age_max, Duration::from_secs(1))
    }
}

/// Keys whose documents are pushed.
#[derive(Clone, Debug, Default)]
pub struct PushedKeys {
    /// Those that start with this, where `key` is empty. Both empty: all keys.
    pub prefix: String,
    /// Those that fit this template. Empty: see `prefix`.
    pub key: String,
}

/// What an upstream serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON, whatever its Content-Type says. A body that isn't valid JSON is an error.
    Json,
    /// Anything. What calls itself JSON must be valid JSON; the rest is passed on as it is.
    Any,
}

/// One HTTP API that feeds come from.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// Its name in logs and metrics, unique.
    pub name: String,
    /// It serves the keys that start with this, where `key` is empty. Both empty: all keys.
    pub prefix: String,
    /// It serves the keys that fit this template, such as `matchesfeed/{id}/matchcentre`. Empty: see `prefix`.
    pub key: String,
    /// `http://` or `https://`, a host, and perhaps a path and a query. With a `key`, its placeholders may stand in
    /// both; otherwise the whole key is appended to the path.
    pub url: String,
    /// A key is due again so long after its last fetch began, where the upstream doesn't say otherwise. At least 1 ms.
    pub poll_interval: Duration,
    /// A fetch, from its begin to the last byte, takes no longer.
    pub timeout: Duration,
    /// The longest silence while connecting, before the answer's head and in the middle of its body.
    pub read_timeout: Duration,
    /// Bytes of a document, as received and after decompression.
    pub document_bytes_max: usize,
    /// Fetches in flight from this upstream at once. At least 1.
    pub concurrency_max: usize,
    /// Fetches that begin in any second. At least 1. They are spread evenly: at once begin no more than those of a tenth
    /// of a second, at least one.
    pub requests_per_second_max: usize,
    /// Header fields to send with every request, for example `("Authorization", "Bearer …")`.
    pub headers: Vec<(String, String)>,
    /// What it serves.
    pub content: Content,
    /// Whether the upstream's `Cache-Control` is ignored. Then only `poll_interval` applies.
    pub ignore_cache_control: bool,
    /// Whether `Cache-Control: max-age=0` ends the feed. Off by default, because many frameworks send this header by
    /// default.
    pub complete_on_max_age_zero: bool,
    /// Names of members that tell the objects of a list apart, tried in this order before `id` and its like: so that
    /// what changed in one of them is sent as that.
    pub identity: Vec<String>,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            prefix: String::new(),
            key: String::new(),
            url: String::new(),
            poll_interval: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(5),
            document_bytes_max: 4 << 20,
            concurrency_max: 8,
            requests_per_second_max: 1000,
            headers: Vec::new(),
            content: Content::Json,
            ignore_cache_control: false,
            complete_on_max_age_zero: false,
            identity: Vec::new(),
        }
    }
}

/// The admin port: publish API, metrics, health.
#[derive(Clone, Debug)]
pub struct AdminOptions {
    /// Where it listens. Port 0 picks one. An address beyond loopback needs `token`.
    pub listen: SocketAddr,
    /// Who gives it as `Authorization: Bearer …` may use the port; nobody else. At least 16 bytes.
    pub token: Option<String>,
    /// Names that requests may call this host by (in `Host`), besides loopback's and the address listened on.
    pub hosts: Vec<String>,
    /// Bytes of one message to publish, with its envelope: a JSON body, or a line of NDJSON.
    pub message_bytes_max: usize,
    /// Connections at once; further ones are answered 503 and closed.
    pub connections_max: usize,
    /// Time for a request's head, on a fresh connection or after the last answer.
    pub header_timeout: Duration,
    /// The longest silence within a request's body, and of a client that doesn't take its answer.
    pub body_timeout: Duration,
    /// How long a publication waits for room in the data plane's mailbox before it is refused (503).
    pub busy_timeout: Duration,
    /// Time for requests under way when shutting down.
    pub shutdown_timeout: Duration,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8001)),
            token: None,
            hosts: Vec::new(),
            message_bytes_max: 1_000_000,
            connections_max: 256,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            busy_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// The shortest admin token that isn't laughed at, in bytes.
pub const TOKEN_BYTES_MIN: usize = 16;

impl AdminOptions {
    fn check(&self) -> Result<(), Error> {
        match &self.token {
            None if !self.listen.ip().is_loopback() => {
                return Err(Error::TokenMissing { listen: self.listen });
            }
            Some(token) if token.len() < TOKEN_BYTES_MIN => {
                return Err(Error::setting(
                    "admin.token",
                    format!("needs at least {TOKEN_BYTES_MIN} bytes; `openssl rand -hex 32` generates one"),
                ));
            }
            Some(token) if !token.bytes().all(|b| b.is_ascii_graphic()) => {
                return Err(Error::setting("admin.token", "may have visible ASCII characters only"));
            }
            _ => {}
        }
        at_least_one("admin.message_bytes_max", self.message_bytes_max)?;
        at_least_one("admin.connections_max", self.connections_max)?;
        duration("admin.header_timeout", self.header_timeout, Duration::from_millis(1))?;
        duration("admin.body_timeout", self.body_timeout, Duration::from_millis(1))?;
        duration("admin.busy_timeout", self.busy_timeout, Duration::ZERO)?;
        duration("admin.shutdown_timeout", self.shutdown_timeout, Duration::ZERO)
    }
}

/// Refuses 0.
pub(crate) fn at_least_one(name: &str, value: usize) -> Result<(), Error> {
    if value == 0 { Err(Error::setting(name, "must be at least 1")) } else { Ok(()) }
}

/// Refuses a duration below `min` or above [`DURATION_MAX`].
pub(crate) fn duration(name: &str, value: Duration, min: Duration) -> Result<(), Error> {
    if value < min {
        Err(Error::setting(name, format!("must be at least {min:?}")))
    } else if value > DURATION_MAX {
        Err(Error::setting(name, "must be at most one year"))
    } else {
        Ok(())
    }
}
