//! One topic of one session, and the version that the session has.

use crate::publication_arena::PublicationRef;
use crate::version_lag::UNKNOWN;
use std::time::Duration;

/// The backpressure policy: what happens to publications when the session can't keep up.
///
/// The first document of a feed's subscription waits as under `Latest` whatever the policy, so that it always fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Only the newest waits; older ones that weren't sent are replaced. For documents.
    Latest,
    /// Everything waits. Over `send_buffer_bytes_max`, and with nothing waiting that may be dropped, the session
    /// ends with [`Disconnect::SlowConsumer`](crate::Disconnect::SlowConsumer).
    #[default]
    Queue,
    /// Everything waits. Over `send_buffer_bytes_max` the oldest of such subscriptions are dropped.
    DropOldest,
}

/// The options of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// The backpressure policy.
    pub policy: Policy,
    /// Whether newer versions of a feed may be sent as patches, if the session's format supports them. Never under
    /// [`Policy::DropOldest`]: a dropped version would be missing.
    pub deltas: bool,
    /// Minimum interval between versions of a feed under [`Policy::Latest`]; zero for none.
    /// [`Options::feed_interval_min`](crate::Options::feed_interval_min) is the minimum.
    pub interval: Duration,
}

impl From<Policy> for SubscribeOptions {
    /// With deltas, without a minimum interval.
    fn from(policy: Policy) -> Self {
        Self { policy, deltas: true, interval: Duration::ZERO }
    }
}

/// The topic of a slot that has none.
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

/// One topic of one session: a slot that the topic's member list names.
#[derive(Clone, Copy)]
pub(crate) struct Subscription {
    /// The topic's number in this shard, or [`NO_TOPIC`].
    pub(crate) topic: u32,
    /// LogIndex in the topic's member list; while pending, which of the core's questions is this one's.
    pub(crate) member: u32,
    /// What waits under `Latest`: a document or message, and a change of state after it.
    pub(crate) newest: PublicationRef,
    pub(crate) state: PublicationRef,
    /// Number of waiting publications.
    pub(crate) waiting: u32,
    /// For a feed: how many versions the session is behind the newest one that was fanned out. Under `Latest`, the
    /// session has the version that it took last; under other policies, the last one in its outbox. [`UNKNOWN`] if
    /// it has no version that a patch could apply to.
    pub(crate) behind: u16,
    pub(crate) policy: Policy,
    pub(crate) flags: Flags,
}

/// The flags of a subscription, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// Waiting for the home core's answer.
    pub(crate) const PENDING: Self = Self(1);
    /// Snapshots only, no patches.
    pub(crate) const NO_DELTAS: Self = Self(2);
    /// It has a minimum interval.
    pub(crate) const RATED: Self = Self(4);
    /// What waits isn't in the outbox yet: it is too soon.
    pub(crate) const DELAYED: Self = Self(8);
    /// It belongs to no topic, but to messages sent to the session alone.
    pub(crate) const DIRECT: Self = Self(16);
    /// The client has named its version, and hasn't been answered yet.
    pub(crate) const RESUMES: Self = Self(32);
    /// For a feed under another policy than `Latest`: it hasn't taken a document since it was subscribed. Until
    /// then only the newest waits.
    pub(crate) const AWAITS_FIRST: Self = Self(64);
    /// The client may have the version that it waits for, from another node, or may not: it is sent a whole document.
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

    /// Whether it has had a topic, but hasn't any more.
    pub(crate) fn is_without_topic(&self) -> bool {
        self.topic == NO_TOPIC && !self.flags.has(Flags::DIRECT)
    }

    /// How many versions the session is behind, if a patch may be sent.
    pub(crate) fn delta_base(&self) -> u16 {
        if self.takes_no_deltas() { UNKNOWN } else { self.behind }
    }

    /// Whether the client expects a patch from the version that it has named.
    pub(crate) fn resumes(&self) -> bool {
        self.flags.has(Flags::RESUMES) && !self.takes_no_deltas()
    }

    fn takes_no_deltas(&self) -> bool {
        self.flags.has(Flags::NO_DELTAS) || self.policy == Policy::DropOldest
    }

    /// The policy for what is published now.
    #[inline]
    pub(crate) fn policy_now(&self) -> Policy {
        if self.flags.has(Flags::AWAITS_FIRST) { Policy::Latest } else { self.policy }
    }

    /// Whether nothing waits behind its marker in the outbox.
    pub(crate) fn is_drained(&self) -> bool {
        self.newest.is_none() && self.state.is_none()
    }

    /// How many of the waiting publications are in the outbox.
    pub(crate) fn queued(&self) -> u32 {
        if self.flags.has(Flags::DELAYED) { 0 } else { self.waiting }
    }
}
