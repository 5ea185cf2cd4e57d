//! Why a hook gave no answer.

/// Why a question has no answer. Each names the side at fault in the metrics and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Cause {
    /// No connection.
    Connect,
    /// The deadline has passed.
    Timeout,
    /// The connection ended within the response.
    Broken,
    /// Another status than 200.
    Status,
    /// A status that concerns all requests: the backend, or a proxy before it, doesn't take any now.
    Unavailable,
    /// A redirect, which isn't followed.
    Redirect,
    /// The response is larger than allowed.
    TooLarge,
    /// The response isn't what docs/hooks.md describes.
    Invalid,
    /// The response has no answer to this question.
    MissingAnswer,
    /// Too many questions wait, or too many bytes.
    QueueFull,
    /// Requests have failed: it isn't asked for a while.
    BreakerOpen,
}

impl Cause {
    pub(super) const ALL: [Self; 11] = [
        Self::Connect,
        Self::Timeout,
        Self::Broken,
        Self::Status,
        Self::Unavailable,
        Self::Redirect,
        Self::TooLarge,
        Self::Invalid,
        Self::MissingAnswer,
        Self::QueueFull,
        Self::BreakerOpen,
    ];

    /// Whether one of the questions of a request may be to blame. Causes after which the backend may still handle the request aren't here.
    pub(super) fn may_concern_one_question(self) -> bool {
        matches!(self, Self::Status | Self::TooLarge | Self::Invalid)
    }

    /// Whether the backend takes no request, whatever is asked. Other failures may be because of a question.
    pub(super) fn concerns_all_requests(self) -> bool {
        matches!(self, Self::Connect | Self::Unavailable | Self::Redirect)
    }

    /// The label in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Status => "status",
            Self::Unavailable => "unavailable",
            Self::Redirect => "redirect",
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
            Self::MissingAnswer => "missing_answer",
            Self::QueueFull => "queue_full",
            Self::BreakerOpen => "breaker_open",
        }
    }
}
