//! The subscriptions of a session: their slots, and the effect of changed policies, intervals and formats on
//! waiting publications.
//!
//! **Invariants.** A subscription's slot belongs to one topic until no publication waits in it, and is reused
//! only then, so that each pending delivery is handled by its own policy. At most `subscriptions_max` slots
//! are in use, including slots that wait to be emptied.

use crate::encoder::Encoder;
use crate::outbox::Entry;
use crate::publication::{FORMATS_MAX, FormatId};
use crate::publication_arena::PublicationRef;
use crate::session::Sessions;
use crate::session_id::SessionId;
use crate::shrinking::spilled;
use crate::subscription::{Flags, Member, NO_TOPIC, Policy, SubscribeOptions, Subscription};
use crate::version_lag::UNKNOWN;
use std::time::Duration;

/// A session with at most this many subscriptions is searched from the first one. Other sessions have an
/// entry in [`Sessions::first_free`].
const SEARCHED: usize = 16;

impl<E: Encoder> Sessions<E> {
    /// Finds the subscription of a session to a topic with these members. If `is_joining`, the session may
    /// not be among `members` yet.
    ///
    /// Searches the shorter list: a session may have thousands of subscriptions, and a topic any number of
    /// members.
    pub(crate) fn find(
        &self,
        id: SessionId,
        topic: u32,
        members: &[Member],
        is_joining: bool,
    ) -> Option<Member> {
        let session = self.alive(id)?;
        if members.len() < session.subscriptions.len() && !is_joining {
            return members.iter().find(|member| member.session == id.index).copied();
        }
        let slot = session.subscriptions.iter().position(|s| s.topic == topic)?;
        Some(Member { session: id.index, subscription: slot as u32 })
    }

    /// Iterates over all subscriptions of a session.
    pub(crate) fn members(&self, id: SessionId) -> impl Iterator<Item = Member> + use<E> {
        let subscriptions = self.alive(id).map_or(0, |s| s.subscriptions.len());
        (0..subscriptions as u32).map(move |subscription| Member { session: id.index, subscription })
    }

    pub(crate) fn subscription(&self, member: Member) -> &Subscription {
        &self.slots[member.session as usize].subscriptions[member.subscription as usize]
    }

    /// Returns `true` if a subscription waits for the home core's answer, so that the session isn't a member
    /// yet.
    pub(crate) fn is_pending(&self, member: Member) -> bool {
        self.subscription(member).flags.has(Flags::PENDING)
    }

    pub(crate) fn subscription_mut(&mut self, member: Member) -> &mut Subscription {
        &mut self.slots[member.session as usize].subscriptions[member.subscription as usize]
    }

    /// Returns `true` if a session has at least `count` subscriptions.
    pub(crate) fn has_subscriptions(&self, id: SessionId, count: usize) -> bool {
        self.alive(id).is_some_and(|s| s.subscriptions.len() >= count) && self.subscription_count(id) >= count
    }

    /// Returns the number of a session's slots in use.
    pub(crate) fn subscription_count(&self, id: SessionId) -> usize {
        let in_use = |s: &&Subscription| !s.is_free() && !s.flags.has(Flags::DIRECT);
        self.alive(id).map_or(0, |s| s.subscriptions.iter().filter(in_use).count())
    }

    /// Returns the slot for messages to this session alone, and creates the slot if needed. The slot has the
    /// policy `Queue`, and becomes free when no such message is pending.
    pub(crate) fn direct(&mut self, id: SessionId) -> Option<Member> {
        let found = self
            .alive(id)?
            .subscriptions
            .iter()
            .position(|s| s.flags.has(Flags::DIRECT) && s.topic == NO_TOPIC);
        if let Some(slot) = found {
            return Some(Member { session: id.index, subscription: slot as u32 });
        }
        let member = self.subscribe(id, NO_TOPIC, Policy::Queue.into())?;
        self.subscription_mut(member).flags.set(Flags::DIRECT, true);
        Some(member)
    }

    /// Assigns a session's slot to a topic.
    pub(crate) fn subscribe(
        &mut self,
        id: SessionId,
        topic: u32,
        options: SubscribeOptions,
    ) -> Option<Member> {
        let first_free = self.first_free.get(&id.index).copied().unwrap_or(0) as usize;
        let session = self.alive_mut(id)?;
        let fresh = Subscription {
            topic,
            member: 0,
            newest: PublicationRef::NONE,
            state: PublicationRef::NONE,
            waiting: 0,
            behind: UNKNOWN,
            policy: options.policy,
            flags: Flags::default(),
        };
        // A slot that is being emptied must be checked again later.
        let mut emptied = None;
        let mut candidates = (0..).zip(&session.subscriptions).skip(first_free);
        let free = candidates.find(|(slot, subscription)| {
            if emptied.is_none() && subscription.is_without_topic() {
                emptied = Some(*slot);
            }
            subscription.is_free()
        });
        let (slot, was_rated) = match free.map(|(slot, _)| slot) {
            Some(slot) => {
                let old = std::mem::replace(&mut session.subscriptions[slot], fresh);
                (slot, old.flags.has(Flags::RATED))
            }
            None => {
                let before = spilled(&session.subscriptions);
                session.subscriptions.push(fresh);
                let (slot, after) = (session.subscriptions.len() - 1, spilled(&session.subscriptions));
                self.spilled += after - before;
                (slot, false)
            }
        };
        let member = Member { session: id.index, subscription: slot as u32 };
        self.set_first_free(id.index, emptied.filter(|emptied| *emptied < slot).unwrap_or(slot + 1));
        if was_rated {
            self.rates.forget(member);
        }
        self.subscription_mut(member).flags.set(Flags::NO_DELTAS, !options.deltas);
        self.set_rate(member, options.interval);
        Some(member)
    }

    /// Records that all slots of a session before this one are in use, or for messages to the session alone.
    fn set_first_free(&mut self, session: u32, slot: usize) {
        if slot > SEARCHED {
            self.first_free.insert(session, slot as u32);
        } else if let Some(first_free) = self.first_free.get_mut(&session) {
            *first_free = slot as u32;
        }
    }

    /// Detaches a subscription from its topic. The slot is free once no publication waits in it.
    pub(crate) fn detach(&mut self, member: Member) {
        self.subscription_mut(member).topic = NO_TOPIC;
        if let Some(first_free) = self.first_free.get_mut(&member.session) {
            *first_free = member.subscription.min(*first_free);
        }
    }

    /// Changes the options of a feed's subscription. If its policy changes, waiting publications are
    /// conflated with the caller's next one. Returns `true` if the caller must enqueue the newest version.
    pub(crate) fn set_feed_options(&mut self, member: Member, options: SubscribeOptions) -> bool {
        let subscription = self.subscription_mut(member);
        subscription.flags.set(Flags::NO_DELTAS, !options.deltas);
        let old = std::mem::replace(&mut subscription.policy, options.policy);
        let mut loses = false;
        if old != options.policy && subscription.waiting > 0 {
            // The session's version is known only under `Latest`, and before its first document.
            if old != Policy::Latest && !subscription.flags.has(Flags::AWAITS_FIRST) {
                subscription.behind = UNKNOWN;
            }
            self.conflate(member);
            loses = true;
        }
        if options.policy == Policy::Latest {
            self.subscription_mut(member).flags.set(Flags::AWAITS_FIRST, false);
        }
        self.set_rate(member, options.interval);
        loses
    }

    /// Restarts a member of a feed, `behind` versions behind. Until it has taken a document, only the newest
    /// one waits.
    pub(crate) fn begin(&mut self, member: Member, behind: u16) {
        let subscription = self.subscription_mut(member);
        if subscription.policy == Policy::Latest {
            return;
        }
        let begins = behind > 0;
        if begins && !subscription.flags.has(Flags::AWAITS_FIRST) {
            self.conflate(member);
        }
        self.subscription_mut(member).flags.set(Flags::AWAITS_FIRST, begins);
    }

    /// Replaces a subscription's waiting publications because a newer one follows.
    fn conflate(&mut self, member: Member) {
        for publication_ref in self.take_out(member) {
            self.arena.release(publication_ref);
            self.counters.conflated += 1;
        }
    }

    /// Sets the minimum interval of a subscription. The new interval also applies to a version that is
    /// already delayed.
    fn set_rate(&mut self, member: Member, interval: Duration) {
        let subscription = self.subscription_mut(member);
        if !subscription.flags.has(Flags::RATED) && interval.is_zero() {
            return;
        }
        let delayed = subscription.flags.has(Flags::DELAYED);
        subscription.flags.set(Flags::RATED, !interval.is_zero());
        self.rates.cancel_delay(member);
        self.rates.set(member, interval);
        if delayed && !self.rates.delay(member) {
            self.queue_marker(member);
        }
    }

    /// Queues a delayed version in the outbox.
    pub(crate) fn queue_marker(&mut self, member: Member) {
        let session = &mut self.slots[member.session as usize];
        let subscription = &mut session.subscriptions[member.subscription as usize];
        subscription.flags.set(Flags::DELAYED, false);
        session.outbox.push(Entry::marker(member.subscription));
        session.outbox.waiting += subscription.waiting;
        self.list(member.session);
    }

    /// Changes the policy of a room's subscription, also for waiting messages. A change to or from `Latest`
    /// keeps only the newest one, at the end of the outbox.
    pub(crate) fn set_policy(&mut self, member: Member, policy: Policy) {
        let subscription = self.subscription_mut(member);
        let old = std::mem::replace(&mut subscription.policy, policy);
        let waiting = subscription.waiting;
        if old == policy || waiting == 0 {
            return;
        }
        if old != Policy::Latest && policy != Policy::Latest {
            self.slots[member.session as usize].outbox.policy_changed();
            return;
        }
        let (mut newest, mut state) = (None, None);
        let taken_out = self.take_out(member);
        if taken_out.iter().any(|publication_ref| self.arena.is_recoverable(*publication_ref)) {
            self.reorder(member.session);
        }
        for publication_ref in taken_out {
            let older = if self.arena.is_state(publication_ref) {
                [state.replace(publication_ref), None]
            } else {
                [newest.replace(publication_ref), state.take()]
            };
            for older in older.into_iter().flatten() {
                self.arena.release(older);
                self.counters.conflated += 1;
            }
        }
        for publication_ref in [newest, state].into_iter().flatten() {
            self.enqueue_again(member, publication_ref);
        }
    }

    /// Frees a subscription's slot and drops its waiting publications.
    pub(crate) fn unsubscribe(&mut self, member: Member) {
        self.detach(member);
        for publication_ref in self.take_out(member) {
            self.arena.release(publication_ref);
            self.counters.dropped_on_disconnect += 1;
        }
        self.set_rate(member, Duration::ZERO);
    }

    /// Removes all waiting publications from a subscription, oldest first. The publications no longer count
    /// as pending: the caller releases each and counts it in another category.
    fn take_out(&mut self, member: Member) -> Vec<PublicationRef> {
        let session = &mut self.slots[member.session as usize];
        let subscription = &mut session.subscriptions[member.subscription as usize];
        if subscription.waiting == 0 {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(subscription.waiting as usize);
        let mut bytes = 0;
        session.outbox.take_out(member.subscription, |entry: Entry| {
            if !entry.is_marker() {
                bytes += entry.bytes;
                out.push(entry.publication_ref);
            }
        });
        for newest in [&mut subscription.newest, &mut subscription.state] {
            let newest = std::mem::replace(newest, PublicationRef::NONE);
            if !newest.is_none() {
                out.push(newest);
            }
        }
        debug_assert_eq!(out.len(), subscription.waiting as usize);
        session.outbox.waiting -= subscription.queued();
        self.counters.pending -= u64::from(subscription.waiting);
        subscription.waiting = 0;
        if subscription.flags.has(Flags::DELAYED) {
            subscription.flags.set(Flags::DELAYED, false);
            self.rates.cancel_delay(member);
        }
        self.send_buffers.release(&mut session.queue_bytes, bytes);
        out
    }

    /// Changes the format of a session. Waiting publications are enqueued again, oldest first. Publications
    /// that the new format doesn't support are dropped.
    pub(crate) fn set_format(&mut self, id: SessionId, format: FormatId) {
        assert!(usize::from(format.0) < FORMATS_MAX, "formats are numbered below {FORMATS_MAX}");
        let Some(session) = self.alive_mut(id).filter(|session| session.format != format) else { return };
        let before = std::mem::replace(&mut session.format, format);
        self.count_format(before, format);
        self.drop_unsupported_delayed(id.index, format);
        let session = &mut self.slots[id.index as usize];
        if session.outbox.waiting == 0 {
            return;
        }
        let outbox = std::mem::take(&mut session.outbox);
        let mut waiting = Vec::with_capacity(outbox.waiting as usize);
        for entry in outbox.iter() {
            let subscription = &mut session.subscriptions[entry.subscription as usize];
            subscription.waiting = 0;
            let newest = std::mem::replace(&mut subscription.newest, PublicationRef::NONE);
            let state = std::mem::replace(&mut subscription.state, PublicationRef::NONE);
            let publication_ref = [entry.publication_ref, newest, state]
                .into_iter()
                .filter(|publication_ref| !publication_ref.is_none());
            waiting.extend(publication_ref.map(|publication_ref| (entry.subscription, publication_ref)));
        }
        debug_assert_eq!(waiting.len(), outbox.waiting as usize);
        let bytes = session.queue_bytes - session.queue_bytes_in_flight;
        self.send_buffers.release(&mut session.queue_bytes, bytes);
        self.counters.pending -= waiting.len() as u64;
        for (subscription, publication_ref) in waiting {
            self.enqueue_again(Member { session: id.index, subscription }, publication_ref);
        }
    }

    /// Drops delayed states that a format doesn't support. Documents are encoded when they are taken.
    fn drop_unsupported_delayed(&mut self, index: u32, format: FormatId) {
        for (slot, subscription) in (0..).zip(&mut self.slots[index as usize].subscriptions) {
            let state = subscription.state;
            let is_delayed = subscription.flags.has(Flags::DELAYED) && !state.is_none();
            if !is_delayed || self.arena.bytes(state, format).is_some() {
                continue;
            }
            self.arena.release(state);
            subscription.state = PublicationRef::NONE;
            subscription.waiting -= 1;
            self.counters.pending -= 1;
            self.counters.dropped_on_disconnect += 1;
            if subscription.waiting == 0 {
                subscription.flags.set(Flags::DELAYED, false);
                self.rates.cancel_delay(Member { session: index, subscription: slot });
            }
        }
    }

    /// Puts a removed publication back into an outbox, in the session's format.
    fn enqueue_again(&mut self, member: Member, publication_ref: PublicationRef) {
        let session = &self.slots[member.session as usize];
        let policy = session.subscriptions[member.subscription as usize].policy_now();
        let bytes = if !session.state.is_open() {
            None
        } else if policy == Policy::Latest && self.arena.is_document(publication_ref) {
            Some(0)
        } else {
            self.arena.bytes(publication_ref, session.format)
        };
        match bytes {
            Some(bytes) => self.enqueue(member, publication_ref, bytes),
            None => self.counters.dropped_on_disconnect += 1,
        }
        self.arena.release(publication_ref);
    }
}
