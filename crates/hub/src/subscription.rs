//! One topic of one session, and what is known of what the session has of it.

use crate::publication_arena::PublicationRef;
use crate::version_lag::UNKNOWN;
use std::time::Duration;

/// What becomes of publications to a subscription whose session can't keep up.
///
/// Of a feed, the first document of a subscription waits as under `Latest` whatever the policy, so that it always fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Only the newest waits; older ones that weren't sent are left out. For documents.
    Latest,
    /// Everything waits. Over `send_buffer_bytes_max`, and with nothing waiting that may be dropped, the session
    /// ends with [`Disconnect::SlowConsumer`](crate::Disconnect::SlowConsumer).
    #[default]
    Queue,
    /// Everything waits. Over `send_buffer_bytes_max` the oldest of such subscriptions are left out.
    DropOldest,
}

/// On what terms a session is subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// What becomes of publications when the session can't keep up.
    pub policy: Policy,
    /// Whether the newer versions of a feed may come as patches, where the session's format can say them. Under
    /// [`Policy::DropOldest`] they never do: what is left out would be missing.
    pub deltas: bool,
    /// The news of a feed under [`Policy::Latest`] leave no more often than this; zero for as often as there are
    /// any. [`Options::feed_interval_min`](crate::Options::feed_interval_min) is the least.
    pub interval: Duration,
}

impl From<Policy> for SubscribeOptions {
    /// With deltas, as often as there is anything.
    fn from(policy: Policy) -> Self {
        Self { policy, deltas: true, interval: Duration::ZERO }
    }
}

/// The topic of a slot that has none.
pub(crate) const NO_TOPIC: u32 = u32::MAX;

/// A place in a topic's member list: whose subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) session: u32,
    pub(crate) subscription: u32,
}

/// One topic of one session: a slot that the topic's member list names.
#[derive(Clone, Copy)]
pub(crate) struct Subscription {
    /// Which topic of this shard, or [`NO_TOPIC`].
    pub(crate) topic: u32,
    /// LogIndex in the topic's member list; while pending, which of the core's questions is this one's.
    pub(crate) member: u32,
    /// What waits of a `Latest` subscription: a document or message, and a change of state after it.
    pub(crate) newest: PublicationRef,
    pub(crate) state: PublicationRef,
    /// How many publications wait for it.
    pub(crate) waiting: u32,
    /// Of a feed: how many versions older than the newest that was fanned out is what the session has (that is,
    /// what it took; under other policies than `Latest`, what waits in its outbox last). [`UNKNOWN`] where it has
    /// nothing to build on.
    pub(crate) behind: u16,
    pub(crate) policy: Policy,
    pub(crate) flags: Flags,
}

/// What is so of a subscription, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// Waiting for the home core's answer.
    pub(crate) const PENDING: Self = Self(1);
    /// Whole documents, no patches.
    pub(crate) const NO_DELTAS: Self = Self(2);
    /// It has a rate.
    pub(crate) const RATED: Self = Self(4);
    /// What waits has no place in the outbox yet: it is too soon.
    pub(crate) const DELAYED: Self = Self(8);
    /// Belongs to no topic, but to what is sent to the session alone.
    pub(crate) const DIRECT: Self = Self(16);
    /// It said which version it has, and has had no answer yet.
    pub(crate) const RESUMES: Self = Self(32);
    /// Of a feed, under another policy than `Latest`: it has taken no document since it was told anew. Until then only
    /// the newest waits.
    pub(crate) const AWAITS_FIRST: Self = Self(64);

    #[inline]
    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(crate) fn set(&mut self, flag: Self, on: bool) {
        self.0 = if on { self.0 | flag.0 } else { self.0 & !flag.0 };
    }
}

impl Subscription {
    pub(crate) fn is_free(&self) -> bool {
        self.topic == NO_TOPIC && self.waiting == 0
    }

    /// How far behind what the session has is, if a patch may lead from there.
    pub(crate) fn delta_base(&self) -> u16 {
        if self.takes_no_deltas() { UNKNOWN } else { self.behind }
    }

    /// Whether it expects patches from what it said it has.
    pub(crate) fn resumes(&self) -> bool {
        self.flags.has(Flags::RESUMES) && !self.takes_no_deltas()
    }

    fn takes_no_deltas(&self) -> bool {
        self.flags.has(Flags::NO_DELTAS) || self.policy == Policy::DropOldest
    }

    /// What becomes of what is published now.
    #[inline]
    pub(crate) fn policy_now(&self) -> Policy {
        if self.flags.has(Flags::AWAITS_FIRST) { Policy::Latest } else { self.policy }
    }

    /// Whether nothing waits in its place in the outbox.
    pub(crate) fn is_drained(&self) -> bool {
        self.newest.is_none() && self.state.is_none()
    }

    /// How many of those that wait have a place in the outbox.
    pub(crate) fn queued(&self) -> u32 {
        if self.flags.has(Flags::DELAYED) { 0 } else { self.waiting }
    }
}
