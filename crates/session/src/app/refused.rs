//! Reasons why a client's request isn't carried out.

use super::Refused;
use crate::ports::Denial;
use stentor_hub::SubscribeError;

/// The refusal of a message while the process is above its memory budget. A retry may succeed.
pub(super) fn overloaded() -> Denial {
    let message = "the server has reached its memory limit (limits.memory_bytes_max)";
    Denial { retry: true, ..Denial::new("overloaded", message) }
}

/// The refusal of notices of joins and leaves of a room without presence.
pub(super) fn no_presence() -> Denial {
    Denial::new("no_presence", "this room has no presence; the setting is rooms.presence")
}

/// The reason why a subscription isn't made now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSubscribed {
    /// A limit is reached.
    Limit(SubscribeError),
    /// The client may not subscribe to this topic.
    Denied(Denial),
    /// The decision is pending.
    Pending,
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
    pub(crate) fn into_denial(self) -> Denial {
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
