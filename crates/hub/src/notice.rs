//! What the hub reports to its caller about subscriptions.

use crate::dispatch::CoreId;
use crate::key::Key;
use crate::session_id::SessionId;
use crate::topic::Topic;

/// Why a subscription was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// The session has `subscriptions_max` subscriptions.
    TooManySubscriptions,
    /// The core knows `topics_max` topics, or memory is short.
    TooManyTopics,
    /// The session waits for the maximum number of never-fetched feeds. Only as [`Notice::Refused`].
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
    /// The topic's history no longer covers what the session asked for, or exceeds its send buffer: publications
    /// were missed. The subscription continues from here.
    Gap {
        /// The session.
        session: SessionId,
        /// The topic.
        topic: Topic,
    },
    /// The subscription has ended: another core has too many topics to join this one, or the control plane refuses to
    /// fetch the feed for this session.
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

/// What has changed about the subscribers of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// A session has subscribed.
    Subscribed(SessionId, Topic),
    /// The topic has its first subscriber of this shard.
    Occupied(Topic),
    /// The topic has lost the last one.
    Vacated(Topic),
}

/// A session that requests a feed without a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its source ([`Hub::set_source`](crate::Hub::set_source)).
    pub source: u64,
    /// Its core.
    pub core: CoreId,
    /// Its session on that core.
    pub session: SessionId,
}
