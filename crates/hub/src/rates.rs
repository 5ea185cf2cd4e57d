//! Subscriptions with a maximum rate, and the times of their next versions.
//!
//! A version or state that comes too early is *delayed*: it waits with its subscription, may be replaced by
//! newer ones, and is queued in the outbox when it is due. The interval starts when the last one was taken.
//!
//! Rates are stored apart from subscriptions, because few have one. **Invariants.** A delayed subscription
//! has exactly one time in `due`, every other one has none. No table is larger than the number of
//! subscriptions with a rate.

use crate::subscription::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
struct Rate {
    interval: Duration,
    /// Time from which on the next version may leave; `None` means at once.
    next: Option<Instant>,
}

/// The rates of one shard's sessions.
#[derive(Default)]
pub(crate) struct Rates {
    /// The time of the last [`Self::handle_time`]. It is constant during a turn.
    now: Option<Instant>,
    rates: BTreeMap<(u32, u32), Rate>,
    due: BTreeSet<(Instant, u32, u32)>,
}

impl Rates {
    /// Sets the current time.
    #[inline]
    pub(crate) fn handle_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Returns `true` if a subscription is delayed.
    #[inline]
    pub(crate) fn has_delayed(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the current time, if it was set.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.now
    }

    /// Sets or changes a subscription's rate. The subscription must not be delayed.
    pub(crate) fn set(&mut self, member: Member, interval: Duration) {
        let key = (member.session, member.subscription);
        if interval.is_zero() {
            self.rates.remove(&key);
            return;
        }
        let rate = self.rates.entry(key).or_insert(Rate { interval, next: None });
        // The new interval also starts when the last version was taken.
        let last = rate.next.and_then(|next| next.checked_sub(rate.interval));
        *rate = Rate { interval, next: last.and_then(|last| last.checked_add(interval)) };
    }

    /// Returns the minimum interval of a subscription; zero if it has none.
    pub(crate) fn interval(&self, member: Member) -> Duration {
        let rate = self.rates.get(&(member.session, member.subscription));
        rate.map_or(Duration::ZERO, |rate| rate.interval)
    }

    /// Removes a subscription's rate.
    pub(crate) fn forget(&mut self, member: Member) {
        self.cancel_delay(member);
        self.rates.remove(&(member.session, member.subscription));
    }

    /// Delays a subscription if its next version comes too early. Returns `true` if it is delayed.
    pub(crate) fn delay(&mut self, member: Member) -> bool {
        let Some(now) = self.now else { return false };
        let key = (member.session, member.subscription);
        let Some(next) = self.rates.get(&key).and_then(|rate| rate.next).filter(|next| *next > now) else {
            return false;
        };
        self.due.insert((next, key.0, key.1));
        true
    }

    /// Cancels a subscription's delay.
    pub(crate) fn cancel_delay(&mut self, member: Member) {
        if let Some(next) = self.rates.get(&(member.session, member.subscription)).and_then(|rate| rate.next)
        {
            self.due.remove(&(next, member.session, member.subscription));
        }
    }

    /// Records that a version or state was taken.
    pub(crate) fn taken(&mut self, member: Member) {
        let Some(now) = self.now else { return };
        if let Some(rate) = self.rates.get_mut(&(member.session, member.subscription)) {
            rate.next = now.checked_add(rate.interval);
        }
    }

    /// Returns the due time of the first delayed subscription.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Takes the next subscription that is due. It is no longer delayed.
    #[inline]
    pub(crate) fn poll_due(&mut self) -> Option<Member> {
        let now = self.now?;
        let (at, session, subscription) = self.due.first().copied().filter(|(at, ..)| *at <= now)?;
        self.due.remove(&(at, session, subscription));
        Some(Member { session, subscription })
    }
}
