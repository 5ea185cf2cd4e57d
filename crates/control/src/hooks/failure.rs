//! Reasons why a question or notice has no answer.

/// Reason why a question has no answer. The metrics and the log name the side at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Cause {
    /// The connection could not be opened.
    Connect,
    /// The deadline has passed.
    Timeout,
    /// The connection ended before the end of the response.
    Broken,
    /// The status was not 200.
    Status,
    /// The status shows that the backend, or a proxy in front of it, accepts no requests now.
    Unavailable,
    /// The response was a redirect, which isn't followed.
    Redirect,
    /// The response is larger than `response_bytes_max`.
    TooLarge,
    /// The response doesn't have the form that docs/hooks.md describes.
    Invalid,
    /// The response has no answer to this question.
    MissingAnswer,
    /// The queue has the maximum number or size of questions.
    QueueFull,
    /// Earlier requests have failed, so the hook is paused.
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

    /// Returns `true` if a single question of a request may have caused the failure. Returns `false` for
    /// causes after which the backend may still process the request, because its questions must not be asked
    /// again.
    pub(super) fn may_concern_one_question(self) -> bool {
        matches!(self, Self::Status | Self::TooLarge | Self::Invalid)
    }

    /// Returns `true` if the backend accepts no request at all. Other failures may be caused by a question.
    pub(super) fn concerns_all_requests(self) -> bool {
        matches!(self, Self::Connect | Self::Unavailable | Self::Redirect)
    }

    /// Returns the label in metrics.
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
