//! The scheduler's input and output types.

use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Document, Key, Patch};

/// Headers of the last response that are needed for the next request and its response, as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// Value for `If-None-Match`.
    pub etag: Option<Arc<[u8]>>,
    /// Value for `If-Modified-Since`.
    pub last_modified: Option<Arc<[u8]>>,
    /// `Cache-Control`, for a 304 without one. `None` if no response had one.
    pub lifetime: Option<Lifetime>,
    /// Path and query of the URL that sent them. `None`: the key's own URL, because redirects aren't
    /// followed.
    pub target: Option<Arc<str>>,
}

/// The lifetime of a response according to its `Cache-Control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Not specified, or the response must not be cached.
    Unsaid,
    /// `s-maxage` or `max-age`.
    For(Duration),
    /// `max-age<=0`.
    Zero,
}

/// A fetched document.
#[derive(Clone, Debug)]
pub struct Version {
    /// The content for subscribers.
    pub document: Document,
    /// The validators for the next request.
    pub validators: Validators,
}

/// How long a response stays fresh, according to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Not specified. The configured interval applies.
    Unsaid,
    /// `max-age` minus the response's `Age`.
    For(Duration),
    /// `max-age<=0`, if the configuration lets it end the feed.
    Over,
}

/// The outcome of a fetch.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A new document.
    Fresh {
        /// The document.
        version: Version,
        /// The patch from the document that was kept when the fetch began.
        patch: Option<Patch>,
        /// The freshness of the response.
        freshness: Freshness,
    },
    /// The same document: 304, or the same value again.
    Same {
        /// Newer validators, if there were any.
        validators: Option<Validators>,
        /// The freshness of the response.
        freshness: Freshness,
    },
    /// 410: no newer version will come.
    Gone {
        /// The reason for subscribers.
        reason: Arc<str>,
    },
    /// 404: there is no such key.
    NotFound {
        /// The reason for subscribers.
        reason: Arc<str>,
    },
    /// A failure.
    Failed {
        /// The kind of failure, for the log and the metrics.
        class: FailureClass,
        /// The reason for subscribers, without details of the internal network.
        reason: Arc<str>,
        /// The earliest time of the next request, if the upstream sent one.
        retry_after: Option<Duration>,
        /// `true` if this time applies to all keys of the upstream (429).
        pause: bool,
    },
}

impl Outcome {
    /// Returns the freshness of a successful response.
    pub(crate) fn freshness(&self) -> Option<Freshness> {
        match self {
            Self::Fresh { freshness, .. } | Self::Same { freshness, .. } => Some(*freshness),
            _ => None,
        }
    }

    /// Makes a failure without a retry time.
    pub(super) fn failed(class: FailureClass, reason: &str) -> Self {
        Self::Failed { class, reason: reason.into(), retry_after: None, pause: false }
    }
}

/// Declares the kinds of failures, each with its outcome in metrics.
macro_rules! failure_classes {
    ($($(#[$doc:meta])+ $name:ident = $outcome:literal;)+) => {
        /// Kinds of failures. Failures of one kind have the same remedy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FailureClass {
            $($(#[$doc])+ $name,)+
        }

        impl FailureClass {
            /// All kinds, in the order of their numbers.
            pub const ALL: [Self; [$($outcome),+].len()] = [$(Self::$name),+];

            /// Returns the label in metrics: the outcome of a fetch.
            pub fn outcome(self) -> &'static str {
                match self { $(Self::$name => $outcome,)+ }
            }
        }
    };
}

failure_classes! {
    /// No connection: refused, no such host, TLS.
    Connect = "failed_connect";
    /// The connection ended too early, or the response isn't HTTP.
    Broken = "failed_broken";
    /// No response in time.
    Timeout = "failed_timeout";
    /// 401 or 403.
    Unauthorized = "failed_unauthorized";
    /// 404 for a key that has a document.
    NotFound = "not_found";
    /// 429.
    TooManyRequests = "failed_too_many_requests";
    /// Another status from 400 to 499.
    ClientError = "failed_client_error";
    /// A status from 500 to 599.
    ServerError = "failed_server_error";
    /// A status without a document that is no error.
    Status = "failed_status";
    /// A redirect.
    Redirect = "failed_redirect";
    /// More bytes than a document may have.
    TooLarge = "failed_too_large";
    /// A content coding that wasn't requested, or a corrupt body.
    Encoding = "failed_encoding";
    /// Not JSON, according to its Content-Type.
    NotJson = "failed_not_json";
    /// Invalid JSON.
    InvalidJson = "failed_invalid_json";
    /// No space for the document (`feeds_limits.documents_bytes_max`).
    NoSpace = "failed_no_space";
    /// A bug.
    Internal = "failed_internal";
}

/// Number of kinds.
pub const FAILURE_CLASSES: usize = FailureClass::ALL.len();

impl FailureClass {
    /// Returns the kind of a status without a document.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Unauthorized,
            429 => Self::TooManyRequests,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Status,
        }
    }

    /// Returns the outcome without `failed_`.
    pub fn name(self) -> &'static str {
        self.outcome().trim_start_matches("failed_")
    }
}

/// A fetch to start now. Exactly one [`Scheduler::handle_result`](super::Scheduler::handle_result) must
/// follow.
#[derive(Clone, Debug)]
pub struct FetchJob {
    /// The key.
    pub key: Key,
    /// The upstream: an index into [`FeedsOptions::upstreams`](crate::FeedsOptions::upstreams).
    pub upstream: usize,
    /// The kept document, for comparison.
    pub kept: Option<Arc<Version>>,
}

/// The scheduler's current numbers, and the number of refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of known keys.
    pub keys: usize,
    /// Keys with subscribers.
    pub wanted: usize,
    /// Keys without any response yet.
    pub cold: usize,
    /// Keys whose document is as new as the upstream allows.
    pub live: usize,
    /// Keys whose upstream fails.
    pub stale: usize,
    /// Keys for which no newer version will come.
    pub complete: usize,
    /// Keys that don't exist upstream.
    pub not_found: usize,
    /// Fetches in flight.
    pub in_flight: usize,
    /// Keys that are due and wait for a worker.
    pub waiting: usize,
    /// Bytes of the kept documents.
    pub documents_bytes: usize,
    /// Totals since the start.
    pub counters: Counters,
}

/// Refusals and evictions since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys refused because of `keys_max`.
    pub refused_keys: u64,
    /// Keys refused because of `limits.cold_keys_max` or `address_limits.cold_keys_max`.
    pub refused_cold_keys: u64,
    /// Keys refused because no upstream serves them.
    pub unknown_keys: u64,
    /// Versions refused because of `documents_bytes_max`.
    pub refused_documents: u64,
    /// Keys evicted before their linger time had passed.
    pub evicted_keys: u64,
}

/// A reason why due keys wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The upstream's `requests_per_second_max`.
    RequestsPerSecond,
    /// The upstream's `concurrency_max`.
    Concurrency,
    /// `fetches_max`, which all upstreams share.
    Fetches,
    /// `fetches_bytes_max`: fetches mainly wait for memory.
    FetchesBytes,
    /// No limit: a fetch takes longer than `poll_interval`.
    FetchTime,
}

impl Limit {
    /// Returns the name of the setting, or of the other cause.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests_per_second_max",
            Self::Concurrency => "concurrency_max",
            Self::Fetches => "feeds_limits.fetches_max",
            Self::FetchesBytes => "feeds_limits.fetches_bytes_max",
            Self::FetchTime => "response time",
        }
    }
}

/// The scheduler's current numbers for one upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Fetches in flight.
    pub in_flight: usize,
    /// Keys that are due and wait for a worker, or for the upstream's rate.
    pub waiting: usize,
    /// Waiting keys without a document.
    pub first_waiting: usize,
    /// Fetches that had to wait although a worker was free: for the rate, or because the upstream requested a pause.
    pub rate_waits: u64,
    /// Keys with a document.
    pub documents: usize,
    /// Time between two fetches of a key: `poll_interval`, or longer as last measured.
    pub interval: Duration,
    /// The upstream requests no fetches before this time (`Retry-After`).
    pub held_until: Option<Instant>,
    /// The reason why the interval is longer, and the value of this limit that would suffice.
    pub limited_by: Option<(Limit, usize)>,
    /// Time for which the key of the last first fetch waited, while others still wait for theirs.
    pub first_wait: Duration,
    /// The limit that delays first fetches, and its value that would let all of them begin within a second.
    pub first_limited_by: Option<(Limit, usize)>,
    /// Keys whose last fetch failed, by [`FailureClass`].
    pub failing: [usize; FAILURE_CLASSES],
    /// The kinds of failures that have occurred, by [`FailureClass`].
    pub has_failed: [bool; FAILURE_CLASSES],
}
