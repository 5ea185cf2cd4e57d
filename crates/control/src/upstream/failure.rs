//! Reasons why a fetch returned no document. Each has a text with all details for the operator, and a text
//! for subscribers, which reveals nothing about the internal network, because subscribers are untrusted.

use super::HEADERS_MAX;
use super::explain::Refused;
use crate::schedule::FailureClass;
use crate::secrets::Masks;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use stentor_delta::ParseError;

/// Reason why a fetch returned no document. Its `Display` text is for the operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No connection could be opened: it was refused, the host wasn't found, or TLS failed.
    #[error("can't connect: {0}")]
    Connect(String),
    /// The connection broke, or the response wasn't HTTP.
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("no data for {0:?} (read_timeout)")]
    Silence(Duration),
    #[error("the response was not complete after {0:?} (timeout)")]
    Timeout(Duration),
    /// A status without a document.
    #[error("the upstream answered {status}{}", refused.as_ref().map(ToString::to_string).unwrap_or_default())]
    Status {
        status: u16,
        retry_after: Option<Duration>,
        /// Details of the request and the response, if they explain the status.
        refused: Option<Refused>,
    },
    #[error("the upstream answered {status}, a redirect to {target}")]
    Redirect { status: u16, target: String },
    #[error(
        "the headers have more than {0} bytes (response_header_bytes_max), are more than {HEADERS_MAX}, or declare an impossible length"
    )]
    HeadersTooLarge(usize),
    #[error("the document has more than {0} bytes (document_bytes_max)")]
    TooLarge(usize),
    #[error("the body has the encoding {0:?}; only gzip and br are accepted")]
    Encoding(String),
    #[error("the compressed body is broken: {0}")]
    Compressed(std::io::Error),
    #[error("the document is {content_type:?}, not JSON: {error}")]
    NotJson { content_type: String, error: ParseError },
    #[error("the document is not valid JSON: {0}")]
    Corrupt(#[from] ParseError),
    #[error("a bug in Stentor: {0}")]
    Internal(&'static str),
}

impl Failure {
    /// Returns the kind of failure.
    pub(crate) fn class(&self) -> FailureClass {
        match self {
            Self::Connect(_) => FailureClass::Connect,
            Self::Broken(_) => FailureClass::Broken,
            Self::Silence(_) | Self::Timeout(_) => FailureClass::Timeout,
            Self::Status { status, .. } => FailureClass::of_status(*status),
            Self::Redirect { .. } => FailureClass::Redirect,
            Self::TooLarge(_) | Self::HeadersTooLarge(_) => FailureClass::TooLarge,
            Self::Encoding(_) | Self::Compressed(_) => FailureClass::Encoding,
            Self::NotJson { .. } => FailureClass::NotJson,
            Self::Corrupt(_) => FailureClass::InvalidJson,
            Self::Internal(_) => FailureClass::Internal,
        }
    }

    /// Masks secrets in texts from the upstream or from a library.
    pub(crate) fn masked(mut self, masks: &Masks) -> Self {
        match &mut self {
            Self::Connect(text) | Self::Broken(text) | Self::Redirect { target: text, .. } => {
                *text = masks.mask(text);
            }
            Self::NotJson { content_type, .. } => *content_type = masks.mask(content_type),
            Self::Encoding(text) => *text = masks.mask_cut(text),
            // Other failures contain no external text, or a text that was masked when it was read.
            _ => {}
        }
        self
    }

    /// Returns a text that identifies the cause within the kind of failure.
    pub(crate) fn cause(&self) -> Cow<'_, str> {
        match self {
            Self::Connect(text) | Self::Broken(text) | Self::Encoding(text) => text.into(),
            Self::Status { status, .. } => status.to_string().into(),
            Self::Redirect { target, .. } => target.into(),
            _ => "".into(),
        }
    }

    /// Returns the reason that subscribers receive.
    pub(crate) fn reason(&self) -> Arc<str> {
        match self {
            Self::Connect(_) => "the upstream can't be reached".into(),
            Self::Broken(_) => "the connection to the upstream broke".into(),
            Self::Silence(_) | Self::Timeout(_) => "the upstream took too long".into(),
            Self::Status { status, .. } | Self::Redirect { status, .. } => {
                format!("the upstream answered {status}").into()
            }
            Self::TooLarge(_) => "the upstream's document is too large".into(),
            Self::HeadersTooLarge(_) => "the upstream's response headers are too large".into(),
            Self::Encoding(_) | Self::Compressed(_) => "the upstream's response can't be decoded".into(),
            Self::NotJson { .. } => "the upstream's document is not JSON".into(),
            Self::Corrupt(_) => "the upstream's document is not valid JSON".into(),
            Self::Internal(_) => "internal error".into(),
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Formats an error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
