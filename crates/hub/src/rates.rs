//! Subscriptions that want a feed's news no more often than so: which, and whose time comes when.
//!
//! A version or state that comes too soon is *held*: it waits with its subscription, replaced by newer ones, and has
//! no place in the outbox until the time has come. Time counts from when the last one was taken.
//!
//! Kept apart from subscriptions, for few have a rate. **Invariants.** A held subscription has exactly one time in
//! `due`, others none. No table is larger than the number of subscriptions with a rate.

use crate::subscription::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
struct Rate {
    interval: Duration,
    /// When the next may leave; `None` at once.
    next: Option<Instant>,
}

/// The rates of one shard's sessions.
#[derive(Default)]
pub(crate) struct Rates {
    /// What the caller said last: a turn has one time.
    now: Option<Instant>,
    rates: BTreeMap<(u32, u32), Rate>,
    due: BTreeSet<(Instant, u32, u32)>,
}

impl Rates {
    /// It is later now.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Sets or changes a subscription's rate. It must not be held.
    pub(crate) fn set(&mut self, member: Member, interval: Duration) {
        let key = (member.session, member.subscription);
        if interval.is_zero() {
            self.rates.remove(&key);
            return;
        }
        let rate = self.rates.entry(key).or_insert(Rate { interval, next: None });
        // Counts from the last as well when it is changed.
        let last = rate.next.and_then(|next| next.checked_sub(rate.interval));
        *rate = Rate { interval, next: last.and_then(|last| last.checked_add(interval)) };
    }

    /// Forgets all that is known of a subscription.
    pub(crate) fn forget(&mut self, member: Member) {
        self.cancel_delay(member);
        self.rates.remove(&(member.session, member.subscription));
    }

    /// Whether it is too soon for a subscription. Then its time is noted.
    pub(crate) fn delay(&mut self, member: Member) -> bool {
        let Some(now) = self.now else { return false };
        let key = (member.session, member.subscription);
        let Some(next) = self.rates.get(&key).and_then(|rate| rate.next).filter(|next| *next > now) else {
            return false;
        };
        self.due.insert((next, key.0, key.1));
        true
    }

    /// A subscription is held no longer, whatever the time.
    pub(crate) fn cancel_delay(&mut self, member: Member) {
        if let Some(next) = self.rates.get(&(member.session, member.subscription)).and_then(|rate| rate.next)
        {
            self.due.remove(&(next, member.session, member.subscription));
        }
    }

    /// Something was taken.
    pub(crate) fn taken(&mut self, member: Member) {
        let Some(now) = self.now else { return };
        if let Some(rate) = self.rates.get_mut(&(member.session, member.subscription)) {
            rate.next = now.checked_add(rate.interval);
        }
    }

    /// When the first that is held may leave.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// The next one whose time has come: it is held no longer.
    #[inline]
    pub(crate) fn poll_due(&mut self) -> Option<Member> {
        if self.due.is_empty() { None } else { self.poll_first() }
    }

    fn poll_first(&mut self) -> Option<Member> {
        let now = self.now?;
        let (at, session, subscription) = self.due.first().copied().filter(|(at, ..)| *at <= now)?;
        self.due.remove(&(at, session, subscription));
        Some(Member { session, subscription })
    }
}
