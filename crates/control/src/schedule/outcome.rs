//! What goes into the scheduler and comes out of it.

use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Document, Key, Patch};

/// What a conditional request sends back, as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// For `If-None-Match`.
    pub etag: Option<Arc<[u8]>>,
    /// For `If-Modified-Since`.
    pub last_modified: Option<Arc<[u8]>>,
}

/// A document as it was fetched.
#[derive(Clone, Debug)]
pub struct Version {
    /// What subscribers get.
    pub document: Document,
    /// How to ask whether it changed.
    pub validators: Validators,
}

/// For how long the upstream says that its answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It doesn't say: the configured interval counts.
    Unsaid,
    /// `max-age`, less the answer's age.
    For(Duration),
    /// `max-age<=0`, where that says that no newer version will come.
    Over,
}

/// What became of a fetch.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A new document.
    Fresh {
        /// It.
        version: Version,
        /// What leads to it from the one that was kept when the fetch began.
        patch: Option<Patch>,
        /// Until when.
        freshness: Freshness,
    },
    /// The same document: 304, or the same value again.
    Same {
        /// Newer validators, if there were any.
        validators: Option<Validators>,
        /// Until when.
        freshness: Freshness,
    },
    /// 410: no newer version will come.
    Gone {
        /// For subscribers.
        reason: Arc<str>,
    },
    /// 404: there is no such key.
    Lost {
        /// For subscribers.
        reason: Arc<str>,
    },
    /// Anything else.
    Failed {
        /// What kind of failure, for the log and the metrics.
        class: FailureClass,
        /// For subscribers: says nothing about the inside of the network.
        reason: Arc<str>,
        /// The upstream asks not to be asked again sooner.
        retry_after: Option<Duration>,
        /// Whether it wants to be left alone until then (429), not with this key alone.
        pause: bool,
    },
}

/// Kinds of failures. What an operator does about two failures of one kind is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// No connection: refused, no such host, TLS.
    Connect,
    /// The connection ended too early, or the answer isn't HTTP.
    Broken,
    /// No answer in time.
    Timeout,
    /// 401 or 403.
    Unauthorized,
    /// 429.
    TooManyRequests,
    /// Another status from 400 to 499.
    ClientError,
    /// A status from 500 to 599.
    ServerError,
    /// A status that brings no document, and is no error.
    Status,
    /// A redirect.
    Redirect,
    /// More bytes than a document may have.
    TooLarge,
    /// A content coding that wasn't asked for, or a broken one.
    Encoding,
    /// Something else than JSON, and says so.
    NotJson,
    /// JSON that is none.
    Corrupt,
    /// The document doesn't fit beside the others.
    NoRoom,
    /// A bug.
    Internal,
}

/// How many kinds there are.
pub const FAILURE_CLASSES: usize = FailureClass::ALL.len();

impl FailureClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Connect,
        Self::Broken,
        Self::Timeout,
        Self::Unauthorized,
        Self::TooManyRequests,
        Self::ClientError,
        Self::ServerError,
        Self::Status,
        Self::Redirect,
        Self::TooLarge,
        Self::Encoding,
        Self::NotJson,
        Self::Corrupt,
        Self::NoRoom,
        Self::Internal,
    ];

    /// The kind of a status that brings no document.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Unauthorized,
            429 => Self::TooManyRequests,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Status,
        }
    }

    /// One word for metrics: the outcome of a fetch.
    pub fn outcome(self) -> &'static str {
        match self {
            Self::Connect => "failed_connect",
            Self::Broken => "failed_broken",
            Self::Timeout => "failed_timeout",
            Self::Unauthorized => "failed_unauthorized",
            Self::TooManyRequests => "failed_too_many_requests",
            Self::ClientError => "failed_client_error",
            Self::ServerError => "failed_server_error",
            Self::Status => "failed_status",
            Self::Redirect => "failed_redirect",
            Self::TooLarge => "failed_too_large",
            Self::Encoding => "failed_encoding",
            Self::NotJson => "failed_not_json",
            Self::Corrupt => "failed_corrupt",
            Self::NoRoom => "failed_no_room",
            Self::Internal => "failed_internal",
        }
    }

    /// The same without `failed_`.
    pub fn name(self) -> &'static str {
        self.outcome().trim_start_matches("failed_")
    }
}

/// A fetch to do now. Exactly one [`Scheduler::handle_result`] must follow.
#[derive(Clone, Debug)]
pub struct FetchJob {
    /// Of which key.
    pub key: Key,
    /// From which upstream: an index into [`FeedsOptions::upstreams`].
    pub upstream: usize,
    /// What is kept already, to compare with.
    pub kept: Option<Arc<Version>>,
}

/// What the scheduler has in hand, and what it refused so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys known.
    pub keys: usize,
    /// Those of them that somebody wants.
    pub wanted: usize,
    /// Keys that never had an answer.
    pub cold: usize,
    /// Keys whose document is as new as the upstream allows.
    pub live: usize,
    /// Keys whose upstream fails.
    pub stale: usize,
    /// Keys for which no newer version will come.
    pub ended: usize,
    /// Keys that don't exist upstream.
    pub lost: usize,
    /// Fetches in flight.
    pub in_flight: usize,
    /// Keys that are due and wait for a worker.
    pub waiting: usize,
    /// Bytes of the kept documents.
    pub documents_bytes: usize,
    /// Keys refused because of `keys_max`.
    pub refused_keys: u64,
    /// Keys refused to sessions that wait for as many as they may.
    pub refused_cold_keys: u64,
    /// Keys refused because no upstream serves them.
    pub unknown_keys: u64,
    /// Versions refused because of `documents_bytes_max`.
    pub refused_documents: u64,
    /// Keys forgotten before their linger time had passed, to make room.
    pub evicted_keys: u64,
}

/// What the scheduler has in hand of one upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Fetches in flight.
    pub in_flight: usize,
    /// Keys that are due and wait for a worker, or for the upstream's rate.
    pub waiting: usize,
    /// Those of them that wait for their first document.
    pub first_waiting: usize,
    /// How often a fetch had to wait though a worker was free: for the rate, or because the upstream asked for a pause.
    pub rate_waits: u64,
    /// Keys whose last fetch failed, by [`FailureClass`].
    pub failing: [usize; FAILURE_CLASSES],
    /// Which kinds of failures there have been, by the same.
    pub has_failed: [bool; FAILURE_CLASSES],
}
