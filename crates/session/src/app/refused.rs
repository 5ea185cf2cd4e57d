//! Reasons why a client's request isn't carried out.

use super::Refused;
use crate::ports::Denial;
use stentor_hub::SubscribeError;

/// The reason why a message isn't published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotPublished {
    /// The process is above its memory budget (`limits.memory_bytes_max`). A retry may succeed.
    Overloaded,
    /// The client may not publish to this room.
    Denied(Denial),
    /// The decision is pending: the message waits, and is handled again ([`crate::app::Context::awaits_decision`]).
    Pending,
}

impl NotPublished {
    /// The error for clients.
    pub fn into_denial(self) -> Denial {
        match self {
            Self::Overloaded => {
                let message = "the server has reached its memory limit (limits.memory_bytes_max)";
                Denial { retry: true, ..Denial::new("overloaded", message) }
            }
            Self::Denied(denial) => denial,
            Self::Pending => Denial::UNAVAILABLE,
        }
    }
}

/// The reason why a session isn't subscribed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSubscribed {
    /// A limit is reached.
    Limit(SubscribeError),
    /// The client may not subscribe to this topic.
    Denied(Denial),
    /// The decision is pending: the message waits, and is handled again ([`crate::app::Context::awaits_decision`]).
    Pending,
}

impl From<Refused> for NotPublished {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Denied(denial) => Self::Denied(denial),
            Refused::Pending => Self::Pending,
        }
    }
}

impl From<Refused> for NotSubscribed {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Denied(denial) => Self::Denied(denial),
            Refused::Pending => Self::Pending,
        }
    }
}

impl NotSubscribed {
    /// The error for clients.
    pub fn into_denial(self) -> Denial {
        match self {
            Self::Limit(error) => limit_reached(error),
            Self::Denied(denial) => denial,
            Self::Pending => Denial::UNAVAILABLE,
        }
    }
}

/// The error for clients when a subscription has reached a limit.
pub(crate) fn limit_reached(error: SubscribeError) -> Denial {
    match error {
        SubscribeError::TooManySubscriptions => Denial::new(
            "too_many_subscriptions",
            "this session has as many subscriptions as it may (limits.subscriptions_max)",
        ),
        SubscribeError::TooManyTopics => Denial {
            retry: true,
            ..Denial::new("too_many_topics", "the server knows as many topics as it may (limits.topics_max)")
        },
        SubscribeError::TooManyColdKeys => Denial {
            retry: true,
            ..Denial::new("too_many_cold_keys", crate::subscribe_options::TOO_MANY_COLD_KEYS)
        },
    }
}
