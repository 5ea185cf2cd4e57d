//! The scheduler's input and output types.

use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Document, Key};
use stentor_ports::DocumentChange;

/// Headers of the last response, as received, that the next fetch needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// Value for `If-None-Match`.
    pub etag: Option<Arc<[u8]>>,
    /// Value for `If-Modified-Since`.
    pub last_modified: Option<Arc<[u8]>>,
    /// Lifetime from `Cache-Control`, used for a 304 without this header. `None` if no response had it.
    pub lifetime: Option<Lifetime>,
    /// Path and query of the URL that sent the headers. `None` if redirects aren't followed, so that the
    /// headers are those of the key's own URL.
    pub target: Option<Arc<str>>,
}

/// The lifetime of a response according to its `Cache-Control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The response doesn't specify a time, or must not be cached.
    Unsaid,
    /// `s-maxage` or `max-age`, in seconds.
    For(u32),
    /// `max-age<=0`.
    Zero,
}

/// A fetched document.
#[derive(Clone, Debug)]
pub struct Version {
    /// The content for subscribers.
    pub document: Arc<Document>,
    /// The validators for the next request.
    pub validators: Validators,
}

/// The time for which a response stays fresh, according to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The response doesn't specify a time. The configured interval applies.
    Unsaid,
    /// `max-age` minus the response's `Age`.
    For(Duration),
    /// `max-age<=0`, which ends the feed by configuration.
    Over,
}

/// The outcome of a fetch.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A new document.
    Fresh {
        /// The document, and the patch from the document that was kept when the fetch began.
        change: DocumentChange,
        /// The validators for the next request.
        validators: Validators,
        /// The freshness of the response.
        freshness: Freshness,
    },
    /// The unchanged document: status 304, or a body with the same value.
    Same {
        /// The new validators. `None` if they are unchanged.
        validators: Option<Validators>,
        /// The freshness of the response.
        freshness: Freshness,
    },
    /// Status 410: no newer version will come.
    Gone {
        /// The reason for subscribers.
        reason: Arc<str>,
    },
    /// Status 404: the upstream has no such key.
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
        /// The time from `Retry-After` before which the upstream wants no request.
        retry_after: Option<Duration>,
        /// `true` if `retry_after` applies to all keys of the upstream (429).
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
        /// A kind of failure. Failures of one kind have the same remedy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FailureClass {
            $($(#[$doc])+ $name,)+
        }

        impl FailureClass {
            /// All kinds of failures, in the order of their numbers.
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
    /// A status that has no document and is no error.
    Status = "failed_status";
    /// A redirect.
    Redirect = "failed_redirect";
    /// A body larger than the maximum of a document.
    TooLarge = "failed_too_large";
    /// A content coding that wasn't requested, or a corrupt body.
    Encoding = "failed_encoding";
    /// A document that isn't JSON according to its Content-Type.
    NotJson = "failed_not_json";
    /// Invalid JSON.
    InvalidJson = "failed_invalid_json";
    /// No space for the document (`feeds_limits.documents_bytes_max`).
    NoSpace = "failed_no_space";
    /// A bug.
    Internal = "failed_internal";
}

/// Number of kinds of failures.
pub const FAILURE_CLASSES: usize = FailureClass::ALL.len();

impl FailureClass {
    /// Returns the kind of failure of a status without a document.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Unauthorized,
            429 => Self::TooManyRequests,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Status,
        }
    }

    /// Returns the name of the kind: its outcome without `failed_`.
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

/// Statistics of the scheduler: current keys, fetches and memory, and totals of refusals and evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of known keys.
    pub keys: usize,
    /// Number of keys with subscribers.
    pub wanted: usize,
    /// Number of keys without any response yet.
    pub cold: usize,
    /// Number of keys whose last fetch has succeeded.
    pub live: usize,
    /// Number of keys whose last fetch has failed.
    pub stale: usize,
    /// Number of keys for which no newer version will come.
    pub complete: usize,
    /// Number of keys that the upstream doesn't have.
    pub not_found: usize,
    /// Fetches in flight.
    pub in_flight: usize,
    /// Number of keys that are due and wait for a worker.
    pub waiting: usize,
    /// Size of the kept documents in bytes.
    pub documents_bytes: usize,
    /// Totals since the start.
    pub counters: Counters,
}

/// Refusals and evictions since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of keys refused because of `keys_max`.
    pub refused_keys: u64,
    /// Number of keys refused because of `limits.cold_keys_max` or `address_limits.cold_keys_max`.
    pub refused_cold_keys: u64,
    /// Number of keys refused because no upstream serves them.
    pub unknown_keys: u64,
    /// Number of versions refused because of `documents_bytes_max`.
    pub refused_documents: u64,
    /// Number of keys evicted before their linger time had passed.
    pub evicted_keys: u64,
}

stentor_ports::named! {
    /// A reason why due keys wait.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Limit {
        /// The upstream's `requests_per_second_max`.
        RequestsPerSecond = "requests_per_second_max",
        /// The upstream's `concurrency_max`.
        Concurrency = "concurrency_max",
        /// `fetches_max`, which all upstreams share.
        Fetches = "feeds_limits.fetches_max",
        /// `fetches_bytes_max`, because fetches mainly wait for memory.
        FetchesBytes = "feeds_limits.fetches_bytes_max",
        /// No limit, but the duration of fetches, which is longer than `poll_interval`.
        FetchTime = "response time",
    }
}

/// The scheduler's current statistics of one upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Fetches in flight.
    pub in_flight: usize,
    /// Number of keys that are due and wait for a worker or for the upstream's rate.
    pub waiting: usize,
    /// Number of waiting keys without a document.
    pub first_waiting: usize,
    /// Number of fetches that had to wait although a worker was free: for the rate, or because the upstream
    /// had asked for a pause.
    pub rate_waits: u64,
    /// Keys with a document.
    pub documents: usize,
    /// Time between two fetches of a key: `poll_interval`, or the last measured interval if it is longer.
    pub interval: Duration,
    /// Time before which the upstream has asked for no fetches (`Retry-After`).
    pub held_until: Option<Instant>,
    /// The limit because of which the interval is longer, and the value of this limit that would suffice.
    pub limited_by: Option<(Limit, usize)>,
    /// Time for which the key of the last first fetch had waited. Zero if no limit delays first fetches.
    pub first_wait: Duration,
    /// The limit that delays first fetches, and the value with which all of them could begin within a second.
    pub first_limited_by: Option<(Limit, usize)>,
    /// Number of keys whose last fetch has failed, by [`FailureClass`].
    pub failing: [usize; FAILURE_CLASSES],
    /// `true` for each kind of failure that has occurred, by [`FailureClass`].
    pub has_failed: [bool; FAILURE_CLASSES],
}

impl LaneStats {
    /// The number of keys whose last fetch has failed. A key that the upstream doesn't have is no failure of the
    /// upstream.
    pub fn failed_keys(&self) -> usize {
        let failing = FailureClass::ALL.iter().zip(self.failing);
        failing.filter(|(class, _)| **class != FailureClass::NotFound).map(|(_, keys)| keys).sum()
    }
}
