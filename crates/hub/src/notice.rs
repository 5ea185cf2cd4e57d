//! What the hub reports to its caller about subscriptions.

use crate::dispatch::CoreId;
use crate::session_id::SessionId;
use crate::topic::{Key, Topic};

/// Why a subscription was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// The session has `subscriptions_max` already.
    TooManySubscriptions,
    /// The core has `topics_max` topics already, or memory is short.
    TooManyTopics,
    /// The session waits for the maximum number of never-fetched feeds. Only as [`Notice::Refused`].
    TooManyColdKeys,
}

/// What a session has to be told about one of its subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// There is no such feed. The subscription has ended.
    NotFound {
        /// Whose.
        session: SessionId,
        /// Which feed.
        key: Key,
    },
    /// What the session asked for is no longer covered by the topic's history, or is more than its outbox
    /// may hold: something was missed. The subscription goes on from here.
    Gap {
        /// Whose.
        session: SessionId,
        /// Of what.
        topic: Topic,
    },
    /// The subscription has ended: another core has too many topics to join this one, or the control plane refuses to
    /// fetch the feed for this session.
    Refused {
        /// Whose.
        session: SessionId,
        /// To what.
        topic: Topic,
        /// The reason.
        reason: SubscribeError,
    },
}

impl Notice {
    /// Whose it is.
    pub fn session(&self) -> SessionId {
        match self {
            Self::NotFound { session, .. } | Self::Gap { session, .. } | Self::Refused { session, .. } => {
                *session
            }
        }
    }
}

/// A session that requests a feed without a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its source ([`Hub::set_source`]).
    pub source: u64,
    /// Its core.
    pub core: CoreId,
    /// Its session on that core.
    pub session: SessionId,
}
