//! Reports of the hub to its caller about subscriptions.

use crate::dispatch::CoreId;
use crate::key::Key;
use crate::session_id::SessionId;
use crate::topic::Topic;

/// Reason for refusing a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// The session already has `subscriptions_max` subscriptions.
    TooManySubscriptions,
    /// The core already knows `topics_max` topics, or memory is short.
    TooManyTopics,
    /// The session already waits for the maximum number of never-fetched feeds. Reported only as
    /// [`Notice::Refused`].
    TooManyColdKeys,
}

/// A notice to a session about one of its subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The feed doesn't exist. The subscription has ended.
    NotFound {
        /// The session.
        session: SessionId,
        /// The feed.
        key: Key,
    },
    /// The topic's history no longer covers the session's position, or exceeds its send buffer: publications
    /// were missed. The subscription continues from here.
    Gap {
        /// The session.
        session: SessionId,
        /// The topic.
        topic: Topic,
    },
    /// The subscription has ended: another core has too many topics, or the control plane refuses to fetch
    /// the feed for this session.
    Refused {
        /// The session.
        session: SessionId,
        /// The topic.
        topic: Topic,
        /// The reason.
        reason: SubscribeError,
    },
}

impl Notice {
    /// The session.
    pub fn session(&self) -> SessionId {
        match self {
            Self::NotFound { session, .. } | Self::Gap { session, .. } | Self::Refused { session, .. } => {
                *session
            }
        }
    }
}

/// A change of the subscribers of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// A session has subscribed.
    Subscribed(SessionId, Topic),
    /// The topic has its first subscriber of this shard.
    Occupied(Topic),
    /// The topic has lost its last subscriber of this shard.
    Vacated(Topic),
}

/// A session that requests a feed without a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Source of the session ([`Hub::set_source`](crate::Hub::set_source)).
    pub source: u64,
    /// Core of the session.
    pub core: CoreId,
    /// Id of the session on that core.
    pub session: SessionId,
}
