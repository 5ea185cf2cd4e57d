//! Why a fetch brought no document: once for the operator with all details, once for subscribers, who are
//! strangers and learn nothing about the inside of the network.

use std::sync::Arc;
use std::time::Duration;
use stentor_hub::delta::ParseError;

/// Why a fetch brought no document. The message is for the operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No connection: refused, no such host, TLS.
    #[error("can't connect: {0}")]
    Connect(String),
    /// The connection broke, or the answer wasn't HTTP.
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("nothing came for {0:?} (read_timeout)")]
    Silence(Duration),
    #[error("the answer wasn't complete after {0:?} (timeout)")]
    Timeout(Duration),
    /// A status that brings no document.
    #[error("the upstream answered {status}")]
    Status { status: u16, retry_after: Option<Duration> },
    #[error("the upstream answered {status}, a redirect to {host}; redirects aren't followed")]
    Redirect { status: u16, host: String },
    #[error("the document has more than {0} bytes (document_bytes_max)")]
    TooLarge(usize),
    #[error("the body is encoded as {0:?}, only gzip or br was asked for")]
    Encoding(String),
    #[error("the compressed body is broken: {0}")]
    Compressed(std::io::Error),
    #[error("the document isn't the JSON that the upstream promised: {0}")]
    Corrupt(#[from] ParseError),
    #[error("a bug in Stentor: {0}")]
    Internal(&'static str),
}

impl Failure {
    /// One word for metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Connect(_) => "failed_connect",
            Self::Broken(_) => "failed_broken",
            Self::Silence(_) | Self::Timeout(_) => "failed_timeout",
            Self::Status { .. } => "failed_status",
            Self::Redirect { .. } => "failed_redirect",
            Self::TooLarge(_) => "failed_too_large",
            Self::Encoding(_) | Self::Compressed(_) => "failed_encoding",
            Self::Corrupt(_) => "failed_corrupt",
            Self::Internal(_) => "failed_internal",
        }
    }

    /// What subscribers are told.
    pub(crate) fn reason(&self) -> Arc<str> {
        match self {
            Self::Connect(_) => "the upstream can't be reached".into(),
            Self::Broken(_) => "the connection to the upstream broke".into(),
            Self::Silence(_) | Self::Timeout(_) => "the upstream took too long".into(),
            Self::Status { status, .. } | Self::Redirect { status, .. } => {
                format!("the upstream answered {status}").into()
            }
            Self::TooLarge(_) => "the upstream's document is too large".into(),
            Self::Encoding(_) | Self::Compressed(_) => "the upstream's answer can't be decoded".into(),
            Self::Corrupt(_) => "the upstream's document is corrupt".into(),
            Self::Internal(_) => "something went wrong".into(),
        }
    }

    /// Whether the upstream is asked too much altogether (RFC 6585, 4).
    pub(crate) fn is_too_many_requests(&self) -> bool {
        matches!(self, Self::Status { status: 429, .. })
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
