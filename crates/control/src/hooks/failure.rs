//! Reasons why a question or notice has no answer.

stentor_ports::named! {
    /// Reason why a question has no answer. The metrics and the log name the side at fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(super) enum Cause {
        /// The connection could not be opened.
        Connect = "connect",
        /// The deadline has passed.
        Timeout = "timeout",
        /// The connection ended before the end of the response.
        Broken = "broken",
        /// The status was not 200.
        Status = "status",
        /// The status shows that the backend, or a proxy in front of it, accepts no requests now.
        Unavailable = "unavailable",
        /// The response was a redirect, which isn't followed.
        Redirect = "redirect",
        /// The response is larger than `response_bytes_max`.
        TooLarge = "too_large",
        /// The response doesn't have the form that docs/hooks.md describes.
        Invalid = "invalid",
        /// The response has no answer to this question.
        MissingAnswer = "missing_answer",
        /// The queue has the maximum number or size of questions.
        QueueFull = "queue_full",
        /// Earlier requests have failed, so the hook is paused.
        BreakerOpen = "breaker_open",
    }
}

impl Cause {
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
}
