//! The subscription of one session to one topic, and the version that the session has.

use crate::publication_arena::PublicationRef;
use crate::version_lag::UNKNOWN;
use std::time::Duration;

/// The backpressure policy: it decides which publications are kept for a session that can't keep up.
///
/// The first document of a feed's subscription is treated as under `Latest`, whatever the policy, so that it
/// always fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Keeps only the newest publication; it replaces an older one that wasn't sent. For documents.
    Latest,
    /// Keeps all publications. Above `send_buffer_bytes_max`, if no waiting publication may be dropped, the
    /// session ends with [`Disconnect::SlowConsumer`](crate::Disconnect::SlowConsumer).
    #[default]
    Queue,
    /// Keeps all publications up to `send_buffer_bytes_max`, then drops the oldest of subscriptions with this
    /// policy.
    DropOldest,
}

/// The options of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// The backpressure policy.
    pub policy: Policy,
    /// `true` if newer versions of a feed may be sent as patches, if the session's format supports them.
    /// Never under [`Policy::DropOldest`], where a dropped version would be missing.
    pub deltas: bool,
    /// Minimum interval between versions of a feed under [`Policy::Latest`]; zero for none. Raised to
    /// [`Options::feed_interval_min`](crate::Options::feed_interval_min).
    pub interval: Duration,
}

impl From<Policy> for SubscribeOptions {
    /// Makes options with deltas and without a minimum interval.
    fn from(policy: Policy) -> Self {
        Self { policy, deltas: true, interval: Duration::ZERO }
    }
}

/// The topic of a slot without a topic.
pub(crate) const NO_TOPIC: u32 = u32::MAX;

/// An entry in a topic's member list: a session's subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) session: u32,
    pub(crate) subscription: u32,
}

impl Member {
    pub(crate) const FIRST: Self = Self { session: 0, subscription: 0 };
    pub(crate) const LAST: Self = Self { session: u32::MAX, subscription: u32::MAX };
}

/// A session's slot for one topic. The topic's member list refers to it.
#[derive(Clone, Copy)]
pub(crate) struct Subscription {
    /// The topic's number in this shard, or [`NO_TOPIC`].
    pub(crate) topic: u32,
    /// Index in the topic's member list. While pending: the number of its request among the core's requests.
    pub(crate) member: u32,
    /// The newest publications waiting under `Latest`: a document or message, and a later change of state.
    pub(crate) newest: PublicationRef,
    pub(crate) state: PublicationRef,
    /// Number of waiting publications.
    pub(crate) waiting: u32,
    /// For a feed: number of versions that the session is behind the newest fanned-out one. Under `Latest` it
    /// has the version that it took last; under other policies, the last one in its outbox. [`UNKNOWN`] if it
    /// has no version to which a patch could apply.
    pub(crate) behind: u16,
    pub(crate) policy: Policy,
    pub(crate) flags: Flags,
}

/// The flags of a subscription, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The subscription waits for the home core's answer.
    pub(crate) const PENDING: Self = Self(1);
    /// The subscription receives snapshots only, no patches.
    pub(crate) const NO_DELTAS: Self = Self(2);
    /// The subscription has a minimum interval.
    pub(crate) const RATED: Self = Self(4);
    /// The waiting version isn't in the outbox yet, because it came too early.
    pub(crate) const DELAYED: Self = Self(8);
    /// The slot belongs to no topic, but to messages sent to the session alone.
    pub(crate) const DIRECT: Self = Self(16);
    /// The client has named its version and hasn't received a document or delta since.
    pub(crate) const RESUMES: Self = Self(32);
    /// For a feed under a policy other than `Latest`: no document was taken since the session subscribed.
    /// Until then only the newest document waits.
    pub(crate) const AWAITS_FIRST: Self = Self(64);
    /// The client may or may not have the version for which it waits, from another node: it is sent a
    /// complete document.
    pub(crate) const MAY_HAVE: Self = Self(128);

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

    /// Returns `true` if the slot's topic has ended.
    pub(crate) fn is_without_topic(&self) -> bool {
        self.topic == NO_TOPIC && !self.flags.has(Flags::DIRECT)
    }

    /// Returns the number of versions that the session is behind; [`UNKNOWN`] if no patch may be sent.
    pub(crate) fn delta_base(&self) -> u16 {
        if self.takes_no_deltas() { UNKNOWN } else { self.behind }
    }

    /// Returns `true` if the client expects a patch from the version that it has named.
    pub(crate) fn resumes(&self) -> bool {
        self.flags.has(Flags::RESUMES) && !self.takes_no_deltas()
    }

    fn takes_no_deltas(&self) -> bool {
        self.flags.has(Flags::NO_DELTAS) || self.policy == Policy::DropOldest
    }

    /// Returns the policy for the next publication.
    #[inline]
    pub(crate) fn policy_now(&self) -> Policy {
        if self.flags.has(Flags::AWAITS_FIRST) { Policy::Latest } else { self.policy }
    }

    /// Returns `true` if no publication waits behind its marker in the outbox.
    pub(crate) fn is_drained(&self) -> bool {
        self.newest.is_none() && self.state.is_none()
    }

    /// Returns the number of waiting publications in the outbox.
    pub(crate) fn queued(&self) -> u32 {
        if self.flags.has(Flags::DELAYED) { 0 } else { self.waiting }
    }
}
