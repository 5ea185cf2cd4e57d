//! Sessions of one shard and their subscriptions. Their deliveries are in [`crate::delivery`].
//!
//! **Invariants.** A subscription's slot belongs to one topic until nothing waits in it, and is reused only then,
//! so that each pending delivery is handled by its own policy. Slots in use, including those that wait to be
//! emptied, are at most `subscriptions_max`.

use crate::budget::Counters;
use crate::chunks::Chunks;
use crate::disconnect::Disconnect;
use crate::encoder::Encoder;
use crate::encoding_waiters::EncodingWaiters;
use crate::join_positions::JoinPositions;
use crate::log::Log;
use crate::outbox::{Entry, Outbox};
use crate::patches::FeedStats;
use crate::publication::{FORMATS_MAX, FormatId};
use crate::publication_arena::{PublicationArena, PublicationRef};
use crate::rates::Rates;
use crate::session_id::SessionId;
use crate::subscription::{Flags, Member, NO_TOPIC, Policy, SubscribeOptions, Subscription};
use crate::version_lag::UNKNOWN;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

/// Size of an entry in a topic's list of members, at the usual load between two doublings.
const MEMBER_BYTES: usize = size_of::<Member>() * 3 / 2;

/// Capacity for subscriptions outside of the session struct.
fn spilled(subscriptions: &SmallVec<[Subscription; 1]>) -> usize {
    if subscriptions.spilled() { subscriptions.capacity() } else { 0 }
}

/// The states of a session.
///
/// ```text
///   open ◄──────► suspended ────┐
///    │                          ▼
///    ├────► terminating ─────► closed
///    └────────────────────────► ▲
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Open,
    /// Its connection is lost. It receives nothing.
    Suspended,
    /// It has to end: nothing new is enqueued.
    Terminating,
    /// Its slot is free.
    Closed,
}

/// A session. 2,000 of them have to stay in the cache during a fan-out: a test limits the size to 96 bytes.
pub(crate) struct Session {
    pub(crate) generation: u32,
    pub(crate) state: SessionState,
    /// Whether it is in `ready`, or in `encoding_waiters`.
    pub(crate) is_listed: bool,
    /// Whether anything was delivered in another order than the log's, before `ordered_since`.
    pub(crate) reordered: bool,
    pub(crate) format: FormatId,
    pub(crate) tag: u64,
    /// The last recoverable publication that it was sent since `ordered_since`.
    pub(crate) newest_id: Option<NonZeroU64>,
    pub(crate) outbox: Outbox,
    /// Publications in flight, and their bytes.
    pub(crate) in_flight: u32,
    pub(crate) in_flight_bytes: u32,
    /// Bytes waiting or in flight under `Queue` and `DropOldest`, and the part of them in flight.
    pub(crate) queue_bytes: u32,
    pub(crate) queue_bytes_in_flight: u32,
    pub(crate) subscriptions: SmallVec<[Subscription; 1]>,
}

/// All sessions of a shard. Slots are reused, so its memory follows the maximum number of sessions.
pub(crate) struct Sessions<E: Encoder> {
    pub(crate) arena: PublicationArena<E>,
    pub(crate) send_buffer_bytes_max: u32,
    pub(crate) slots: Chunks<Session>,
    free: Vec<u32>,
    pub(crate) ready: VecDeque<SessionId>,
    pub(crate) encoding_waiters: EncodingWaiters<E::Frame>,
    pub(crate) terminating: VecDeque<(SessionId, Disconnect)>,
    pub(crate) counters: Counters,
    /// What was delivered recently, for sessions that resume.
    pub(crate) log: Log<E::Frame>,
    pub(crate) join_positions: JoinPositions,
    /// The sources of sessions, by index. Separate from the data that a fan-out touches.
    sources: Chunks<u64>,
    pub(crate) rates: Rates,
    /// In which form documents were taken.
    pub(crate) taken: FeedStats,
    /// Sum of all `queue_bytes`.
    pub(crate) queue_bytes: usize,
    /// Capacity for subscriptions outside of the session structs.
    spilled: usize,
}

impl<E: Encoder> Sessions<E> {
    pub(crate) fn new(encoder: E, send_buffer_bytes_max: usize, log: Log<E::Frame>) -> Self {
        Self {
            arena: PublicationArena::new(encoder),
            send_buffer_bytes_max: u32::try_from(send_buffer_bytes_max).unwrap_or(u32::MAX),
            slots: Chunks::default(),
            free: Vec::new(),
            ready: VecDeque::new(),
            encoding_waiters: EncodingWaiters::default(),
            terminating: VecDeque::new(),
            counters: Counters::default(),
            log,
            join_positions: JoinPositions::default(),
            sources: Chunks::default(),
            rates: Rates::default(),
            taken: FeedStats::default(),
            queue_bytes: 0,
            spilled: 0,
        }
    }

    /// The size of the sessions, and of their subscriptions including the entries in topics' member lists, in bytes.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let sessions = self.slots.len() * (size_of::<Session>() + size_of::<u64>());
        (sessions, self.spilled * size_of::<Subscription>() + (self.count() + self.spilled) * MEMBER_BYTES)
    }

    /// The size of the outboxes without the publications and frames themselves, in bytes.
    pub(crate) fn outbox_bytes(&self) -> usize {
        self.counters.pending as usize * size_of::<Entry>() + self.arena.bytes_held()
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn open(&mut self, format: FormatId, tag: u64) -> SessionId {
        assert!(usize::from(format.0) < FORMATS_MAX, "formats are numbered below {FORMATS_MAX}");
        let fresh = |generation| Session {
            generation,
            state: SessionState::Open,
            is_listed: false,
            reordered: false,
            format,
            tag,
            newest_id: None,
            outbox: Outbox::default(),
            in_flight: 0,
            in_flight_bytes: 0,
            queue_bytes: 0,
            queue_bytes_in_flight: 0,
            subscriptions: SmallVec::new(),
        };
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if self.log.is_on() {
            self.join_positions.open(index, self.log.next());
        }
        if let Some(slot) = self.slots.get_mut(index as usize) {
            let generation = slot.generation.wrapping_add(1);
            *slot = fresh(generation);
            self.sources[index as usize] = 0;
            SessionId { index, generation }
        } else {
            self.slots.push(fresh(0));
            self.sources.push(0);
            SessionId { index, generation: 0 }
        }
    }

    /// Sets the source of a session.
    pub(crate) fn set_source(&mut self, id: SessionId, source: u64) {
        if self.alive(id).is_some() {
            self.sources[id.index as usize] = source;
        }
    }

    /// The source of a member's session.
    pub(crate) fn source_of(&self, member: Member) -> u64 {
        self.sources.get(member.session as usize).copied().unwrap_or(0)
    }

    /// Ends a session and drops its pending deliveries. Its topics no longer list it.
    pub(crate) fn close(&mut self, id: SessionId) {
        if self.alive(id).is_none() {
            return;
        }
        self.drop_pending(id.index);
        let session = &mut self.slots[id.index as usize];
        for (slot, subscription) in (0..).zip(&session.subscriptions) {
            if subscription.flags.has(Flags::RATED) {
                self.rates.forget(Member { session: id.index, subscription: slot });
            }
        }
        session.state = SessionState::Closed;
        self.spilled -= spilled(&session.subscriptions);
        session.subscriptions = SmallVec::new();
        self.free.push(id.index);
    }

    /// Drops a session's pending deliveries until it is resumed. Returns whether it may be suspended.
    pub(crate) fn suspend(&mut self, id: SessionId) -> bool {
        let Some(session) = self.alive_mut(id).filter(|session| session.state == SessionState::Open) else {
            return false;
        };
        session.state = SessionState::Suspended;
        self.drop_pending(id.index);
        true
    }

    /// A suspended session receives again.
    pub(crate) fn resume(&mut self, id: SessionId) {
        if let Some(session) = self.alive_mut(id) {
            session.state = SessionState::Open;
        }
    }

    /// Drops a session's deliveries, waiting or in flight.
    fn drop_pending(&mut self, index: u32) {
        let session = &mut self.slots[index as usize];
        let mut owed = u64::from(session.outbox.waiting) + u64::from(session.in_flight);
        for entry in std::mem::take(&mut session.outbox).iter().filter(|entry| !entry.is_marker()) {
            self.arena.release(entry.publication_ref);
        }
        for (slot, subscription) in (0..).zip(&mut session.subscriptions) {
            owed += u64::from(subscription.waiting - subscription.queued());
            if subscription.flags.has(Flags::RATED) {
                subscription.flags.set(Flags::DELAYED, false);
                self.rates.cancel_delay(Member { session: index, subscription: slot });
            }
            // Whether what was in flight has arrived is unknown.
            subscription.behind = UNKNOWN;
            subscription.waiting = 0;
            for newest in [&mut subscription.newest, &mut subscription.state] {
                let newest = std::mem::replace(newest, PublicationRef::NONE);
                if !newest.is_none() {
                    self.arena.release(newest);
                }
            }
        }
        self.counters.pending -= owed;
        self.counters.dropped_on_disconnect += owed;
        self.queue_bytes -= session.queue_bytes as usize;
        (session.in_flight, session.in_flight_bytes) = (0, 0);
        (session.queue_bytes, session.queue_bytes_in_flight) = (0, 0);
    }

    /// Changes the format of a session. What waits is enqueued again, oldest first; what the new format doesn't
    /// support is dropped.
    pub(crate) fn set_format(&mut self, id: SessionId, format: FormatId) {
        assert!(usize::from(format.0) < FORMATS_MAX, "formats are numbered below {FORMATS_MAX}");
        let Some(session) = self.alive_mut(id).filter(|session| session.format != format) else { return };
        session.format = format;
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
        let in_flight = session.queue_bytes_in_flight;
        self.queue_bytes -= (std::mem::replace(&mut session.queue_bytes, in_flight) - in_flight) as usize;
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

    /// A session is sent something that isn't at its position in the log.
    pub(crate) fn reorder(&mut self, index: u32) {
        self.slots[index as usize].reorder();
        self.join_positions.reorder(index, self.log.next());
    }

    /// Puts back into an outbox what was taken out of it, in the session's format.
    fn enqueue_again(&mut self, member: Member, publication_ref: PublicationRef) {
        let session = &self.slots[member.session as usize];
        let policy = session.subscriptions[member.subscription as usize].policy_now();
        let bytes = if session.state != SessionState::Open {
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

    pub(crate) fn alive(&self, id: SessionId) -> Option<&Session> {
        self.slots.get(id.index as usize).filter(|s| s.is(id))
    }

    pub(crate) fn alive_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.slots.get_mut(id.index as usize).filter(|s| s.is(id))
    }

    pub(crate) fn id_of(&self, member: Member) -> SessionId {
        SessionId { index: member.session, generation: self.slots[member.session as usize].generation }
    }

    /// The subscription of a session to a topic.
    pub(crate) fn find(&self, id: SessionId, topic: u32) -> Option<Member> {
        let slot = self.alive(id)?.subscriptions.iter().position(|s| s.topic == topic)?;
        Some(Member { session: id.index, subscription: slot as u32 })
    }

    /// All subscriptions of a session.
    pub(crate) fn members(&self, id: SessionId) -> Vec<Member> {
        let subscriptions = self.alive(id).map_or(0, |s| s.subscriptions.len());
        (0..subscriptions as u32).map(|subscription| Member { session: id.index, subscription }).collect()
    }

    pub(crate) fn subscription(&self, member: Member) -> &Subscription {
        &self.slots[member.session as usize].subscriptions[member.subscription as usize]
    }

    /// Whether a subscription waits for the home core's answer, so that the session is no member yet.
    pub(crate) fn is_pending(&self, member: Member) -> bool {
        self.subscription(member).flags.has(Flags::PENDING)
    }

    pub(crate) fn subscription_mut(&mut self, member: Member) -> &mut Subscription {
        &mut self.slots[member.session as usize].subscriptions[member.subscription as usize]
    }

    /// How many slots of a session are in use.
    pub(crate) fn subscription_count(&self, id: SessionId) -> usize {
        let in_use = |s: &&Subscription| !s.is_free() && !s.flags.has(Flags::DIRECT);
        self.alive(id).map_or(0, |s| s.subscriptions.iter().filter(in_use).count())
    }

    /// The slot in which waits what is sent to a session alone: under `Queue`, and free again when nothing waits.
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

    /// Gives a session a slot for a topic.
    pub(crate) fn subscribe(&mut self, id: SessionId, topic: u32, terms: SubscribeOptions) -> Option<Member> {
        let session = self.alive_mut(id)?;
        let fresh = Subscription {
            topic,
            member: 0,
            newest: PublicationRef::NONE,
            state: PublicationRef::NONE,
            waiting: 0,
            behind: UNKNOWN,
            policy: terms.policy,
            flags: Flags::default(),
        };
        let (slot, was_rated) = match session.subscriptions.iter().position(Subscription::is_free) {
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
        if was_rated {
            self.rates.forget(member);
        }
        self.subscription_mut(member).flags.set(Flags::NO_DELTAS, !terms.deltas);
        self.set_rate(member, terms.interval);
        Some(member)
    }

    /// Changes a feed's subscription. If its policy changes, what waits is conflated with what the caller enqueues
    /// next. Returns whether the caller has to enqueue something.
    pub(crate) fn set_terms_of_feed(&mut self, member: Member, terms: SubscribeOptions) -> bool {
        let subscription = self.subscription_mut(member);
        subscription.flags.set(Flags::NO_DELTAS, !terms.deltas);
        let old = std::mem::replace(&mut subscription.policy, terms.policy);
        let mut loses = false;
        if old != terms.policy && subscription.waiting > 0 {
            // The version that the session has is known only under `Latest`, and before its first document.
            if old != Policy::Latest && !subscription.flags.has(Flags::AWAITS_FIRST) {
                subscription.behind = UNKNOWN;
            }
            self.conflate(member);
            loses = true;
        }
        if terms.policy == Policy::Latest {
            self.subscription_mut(member).flags.set(Flags::AWAITS_FIRST, false);
        }
        self.set_rate(member, terms.interval);
        loses
    }

    /// A member of a feed starts over, `behind` versions behind. Until it has taken a document, only the newest
    /// waits.
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

    /// Conflates what waits for a subscription with something newer.
    fn conflate(&mut self, member: Member) {
        for publication_ref in self.take_out(member) {
            self.arena.release(publication_ref);
            self.counters.conflated += 1;
        }
    }

    /// Sets the minimum interval of a subscription. The new interval applies to what an earlier one delays.
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

    /// Queues what was delayed in the outbox.
    pub(crate) fn queue_marker(&mut self, member: Member) {
        let session = &mut self.slots[member.session as usize];
        let subscription = &mut session.subscriptions[member.subscription as usize];
        subscription.flags.set(Flags::DELAYED, false);
        session.outbox.push(Entry::marker(member.subscription));
        session.outbox.waiting += subscription.waiting;
        self.list(member.session);
    }

    /// Marks a session as ready.
    pub(crate) fn list(&mut self, index: u32) {
        let session = &mut self.slots[index as usize];
        if !session.is_listed {
            session.is_listed = true;
            self.ready.push_back(SessionId { index, generation: session.generation });
        }
    }

    /// Changes the policy of a room's subscription, also for what waits. A change to or from `Latest` keeps only
    /// the newest of it, at the end of the outbox.
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

    /// Frees a subscription's slot and drops what waits in it.
    pub(crate) fn unsubscribe(&mut self, member: Member) {
        self.subscription_mut(member).topic = NO_TOPIC;
        for publication_ref in self.take_out(member) {
            self.arena.release(publication_ref);
            self.counters.dropped_on_disconnect += 1;
        }
        self.set_rate(member, Duration::ZERO);
    }

    /// Removes all that waits from a subscription, oldest first. The caller releases each, and counts it as
    /// something else than pending.
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
        session.queue_bytes -= bytes;
        self.queue_bytes -= bytes as usize;
        out
    }
}

impl Session {
    pub(crate) fn is(&self, id: SessionId) -> bool {
        self.generation == id.generation && self.state != SessionState::Closed
    }

    /// The part of [`Sessions::reorder`] that is in a session.
    pub(crate) fn reorder(&mut self) {
        (self.reordered, self.newest_id) = (true, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_small() {
        assert!(size_of::<Subscription>() <= 24, "{}", size_of::<Subscription>());
        assert!(size_of::<Session>() <= 96, "{}", size_of::<Session>());
    }
}
