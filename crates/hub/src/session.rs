//! Sessions of one shard, what each is owed, and the policies by which it stays inside its budget.
//!
//! **Invariants.** A session's outbox and what is in flight hold references, never copies. With policy
//! `Latest` there is at most one reference per subscription waiting, so that no byte limit is needed; the
//! bytes of all other references, in flight included, stay within `outbox_bytes_max`, but for one that is
//! larger by itself and alone. The [`Counters`] add up after every call.

use crate::budget::Counters;
use crate::disconnect::Disconnect;
use crate::dispatch::Emit;
use crate::outbox::{Outbox, Ticket};
use crate::publication::{Body, FormatId, Publication};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Names a session of one shard. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    index: u32,
    generation: u32,
}

/// What becomes of publications to a subscription whose session can't keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Only the newest waits; older ones that weren't sent are left out. For documents.
    Latest,
    /// Everything waits; over `outbox_bytes_max` the session ends with [`Disconnect::SlowConsumer`].
    #[default]
    Queue,
    /// Everything waits; over `outbox_bytes_max` the oldest of such subscriptions are left out.
    DropOldest,
}

/// How publications become frames. The hub knows no format.
pub trait Encoder {
    /// An encoded publication: a reference, cheap to clone.
    type Frame: Clone;

    /// Encodes, or says that the format has no way to say it.
    fn encode(&self, format: FormatId, body: &Body) -> Option<Self::Frame>;

    /// Bytes of a frame.
    fn len(frame: &Self::Frame) -> usize;
}

pub(crate) const NO_TOPIC: u32 = u32::MAX;

/// One topic of one session. The slot `(session, index)` is known to the topic's member list.
#[derive(Clone, Copy)]
pub(crate) struct Subscription {
    /// Which topic of this shard; [`NO_TOPIC`] for a free slot.
    pub(crate) topic: u32,
    /// Place in the topic's member list; meaningless while pending.
    pub(crate) member: u32,
    pub(crate) policy: Policy,
    /// Waiting for the home core's answer.
    pub(crate) pending: bool,
    /// What waits of a `Latest` subscription: a document, and a change of state after it.
    document: Option<Ticket>,
    state: Option<Ticket>,
}

pub(crate) struct Item<F> {
    publication: Arc<Publication<F>>,
    bytes: u32,
    subscription: u32,
    /// Whether its bytes count in `queue_bytes` (the policy may change while it waits).
    counted: bool,
}

pub(crate) struct Session<F> {
    generation: u32,
    alive: bool,
    listed: bool,
    doomed: bool,
    format: FormatId,
    tag: u64,
    outbox: Outbox<Item<F>>,
    /// Bytes waiting or in flight under `Queue` and `DropOldest`, and the part of them in flight.
    queue_bytes: usize,
    queue_bytes_in_flight: usize,
    in_flight: u32,
    pub(crate) subscriptions: SmallVec<[Subscription; 1]>,
}

/// All sessions of a shard.
pub(crate) struct Sessions<E: Encoder> {
    encoder: E,
    outbox_bytes_max: usize,
    slots: Vec<Session<E::Frame>>,
    free: Vec<u32>,
    ready: VecDeque<SessionId>,
    doomed: VecDeque<(SessionId, Disconnect)>,
    pub(crate) counters: Counters,
    /// Sum of all `queue_bytes`.
    pub(crate) queue_bytes: usize,
}

impl<E: Encoder> Sessions<E> {
    pub(crate) fn new(encoder: E, outbox_bytes_max: usize) -> Self {
        Self {
            encoder,
            outbox_bytes_max,
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            doomed: VecDeque::new(),
            counters: Counters::default(),
            queue_bytes: 0,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn open(&mut self, format: FormatId, tag: u64) -> SessionId {
        let fresh = |generation| Session {
            generation,
            alive: true,
            listed: false,
            doomed: false,
            format,
            tag,
            outbox: Outbox::default(),
            queue_bytes: 0,
            queue_bytes_in_flight: 0,
            in_flight: 0,
            subscriptions: SmallVec::new(),
        };
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            let generation = slot.generation.wrapping_add(1);
            *slot = fresh(generation);
            SessionId { index, generation }
        } else {
            let index = self.slots.len() as u32;
            self.slots.push(fresh(0));
            SessionId { index, generation: 0 }
        }
    }

    pub(crate) fn alive(&self, id: SessionId) -> Option<&Session<E::Frame>> {
        self.slots.get(id.index as usize).filter(|s| s.alive && s.generation == id.generation)
    }

    pub(crate) fn alive_mut(&mut self, id: SessionId) -> Option<&mut Session<E::Frame>> {
        self.slots.get_mut(id.index as usize).filter(|s| s.alive && s.generation == id.generation)
    }

    pub(crate) fn tag(&self, id: SessionId) -> Option<u64> {
        self.alive(id).map(|s| s.tag)
    }

    pub(crate) fn set_tag(&mut self, id: SessionId, tag: u64) {
        if let Some(session) = self.alive_mut(id) {
            session.tag = tag;
        }
    }

    /// The subscription of a session to a topic: its slot.
    pub(crate) fn find(&self, id: SessionId, topic: u32) -> Option<u32> {
        let session = self.alive(id)?;
        session.subscriptions.iter().position(|s| s.topic == topic).map(|n| n as u32)
    }

    pub(crate) fn subscription_mut(&mut self, member: Member) -> &mut Subscription {
        &mut self.slots[member.session as usize].subscriptions[member.subscription as usize]
    }

    pub(crate) fn subscription_count(&self, id: SessionId) -> usize {
        self.alive(id).map_or(0, |s| s.subscriptions.iter().filter(|s| s.topic != NO_TOPIC).count())
    }

    /// Adds a subscription and says which slot it got.
    pub(crate) fn subscribe(
        &mut self,
        id: SessionId,
        topic: u32,
        policy: Policy,
        pending: bool,
    ) -> Option<Member> {
        let session = self.alive_mut(id)?;
        let fresh = Subscription { topic, member: 0, policy, pending, document: None, state: None };
        let slot = match session.subscriptions.iter().position(|s| s.topic == NO_TOPIC) {
            Some(slot) => {
                session.subscriptions[slot] = fresh;
                slot
            }
            None => {
                session.subscriptions.push(fresh);
                session.subscriptions.len() - 1
            }
        };
        Some(Member { session: id.index, subscription: slot as u32 })
    }

    /// Frees a subscription's slot and takes back what waits for it: after the answer to `unsubscribe`
    /// nothing of the topic arrives any more.
    pub(crate) fn unsubscribe(&mut self, id: SessionId, slot: u32) {
        let Some(session) = self.slots.get_mut(id.index as usize) else { return };
        session.subscriptions[slot as usize].topic = NO_TOPIC;
        let tickets: Vec<Ticket> =
            session.outbox.iter().filter(|(_, item)| item.subscription == slot).map(|(t, _)| t).collect();
        for ticket in tickets {
            if let Some(item) = session.outbox.slot(ticket).and_then(Option::take) {
                if item.counted {
                    session.queue_bytes -= item.bytes as usize;
                    self.queue_bytes -= item.bytes as usize;
                }
                self.counters.owed -= 1;
                self.counters.abandoned += 1;
            }
        }
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        let Some(session) = self.alive_mut(id) else { return };
        session.alive = false;
        session.subscriptions = SmallVec::new();
        let outbox = std::mem::take(&mut session.outbox);
        let owed = outbox.iter().count() as u64 + u64::from(session.in_flight);
        let queue_bytes = session.queue_bytes;
        self.queue_bytes -= queue_bytes;
        self.counters.owed -= owed;
        self.counters.abandoned += owed;
        self.free.push(id.index);
    }

    pub(crate) fn member(&self, id: SessionId, subscription: u32) -> Member {
        Member { session: id.index, subscription }
    }

    pub(crate) fn id_of(&self, member: Member) -> SessionId {
        SessionId { index: member.session, generation: self.slots[member.session as usize].generation }
    }

    /// Owes a publication to one member, by its policy.
    pub(crate) fn deliver(&mut self, member: Member, publication: &Arc<Publication<E::Frame>>, how: &Emit) {
        let session = &mut self.slots[member.session as usize];
        let format = session.format;
        let Some(frame) = publication.encoded(format, |body| self.encoder.encode(format, body)) else {
            return;
        };
        let bytes = E::len(frame);
        if session.doomed {
            return;
        }
        self.counters.due += 1;
        if how.volatile && !(session.outbox.is_empty() && session.in_flight == 0) {
            self.counters.dropped += 1;
            return;
        }
        let subscription = &mut session.subscriptions[member.subscription as usize];
        let item = Item {
            publication: publication.clone(),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            subscription: member.subscription,
            counted: subscription.policy != Policy::Latest,
        };
        let id = SessionId { index: member.session, generation: session.generation };
        match subscription.policy {
            Policy::Latest => {
                // A newer document takes the place of the one that waits, and makes a waiting change of
                // state meaningless: the document's own state is newer.
                let is_document = matches!(publication.body(), Body::Snapshot { .. });
                let waiting = if is_document { &mut subscription.document } else { &mut subscription.state };
                let replaced = waiting.and_then(|t| session.outbox.slot(t)).filter(|slot| slot.is_some());
                match replaced {
                    Some(slot) => {
                        *slot = Some(item);
                        self.counters.conflated += 1;
                    }
                    None => {
                        *waiting = Some(session.outbox.push(item));
                        self.counters.owed += 1;
                    }
                }
                if is_document
                    && let Some(slot) = subscription.state.take().and_then(|t| session.outbox.slot(t))
                    && slot.take().is_some()
                {
                    self.counters.owed -= 1;
                    self.counters.conflated += 1;
                }
            }
            policy => {
                while session.queue_bytes > 0 && session.queue_bytes + bytes > self.outbox_bytes_max {
                    let oldest = session.outbox.iter().find(|(_, item)| {
                        item.counted
                            && session.subscriptions[item.subscription as usize].policy == Policy::DropOldest
                    });
                    let oldest = oldest.map(|(ticket, _)| ticket).filter(|_| policy == Policy::DropOldest);
                    match oldest.and_then(|ticket| session.outbox.slot(ticket)).and_then(Option::take) {
                        Some(item) => {
                            session.queue_bytes -= item.bytes as usize;
                            self.queue_bytes -= item.bytes as usize;
                            self.counters.owed -= 1;
                            self.counters.dropped += 1;
                        }
                        // Nothing that may be left out: the newest one itself, or the session.
                        None if policy == Policy::DropOldest => {
                            self.counters.dropped += 1;
                            return;
                        }
                        None => {
                            self.counters.abandoned += 1;
                            session.doomed = true;
                            self.doomed.push_back((id, Disconnect::SlowConsumer));
                            return;
                        }
                    }
                }
                session.queue_bytes += bytes;
                self.queue_bytes += bytes;
                session.outbox.push(item);
                self.counters.owed += 1;
            }
        }
        if !session.listed {
            session.listed = true;
            self.ready.push_back(id);
        }
    }

    /// The next session that is owed something new, with its tag.
    pub(crate) fn poll_ready(&mut self) -> Option<(SessionId, u64)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(session) = self.alive_mut(id) {
                session.listed = false;
                return Some((id, session.tag));
            }
        }
        None
    }

    pub(crate) fn poll_doomed(&mut self) -> Option<(SessionId, u64, Disconnect)> {
        while let Some((id, why)) = self.doomed.pop_front() {
            if let Some(session) = self.alive(id) {
                return Some((id, session.tag, why));
            }
        }
        None
    }

    /// Moves waiting publications into flight: at least one if there is any, more while they fit into
    /// `bytes_max` and `frames_max`.
    pub(crate) fn take(
        &mut self,
        id: SessionId,
        bytes_max: usize,
        frames_max: usize,
        mut each: impl FnMut(&Arc<Publication<E::Frame>>, &E::Frame),
    ) {
        let Some(session) = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation)
        else {
            return;
        };
        if !session.alive {
            return;
        }
        let mut bytes = 0;
        let mut frames = 0;
        while let Some(item) = session.outbox.peek() {
            if frames > 0 && (frames >= frames_max || bytes + item.bytes as usize > bytes_max) {
                break;
            }
            let Some(item) = session.outbox.pop() else { break };
            let format = session.format;
            if let Some(frame) = item.publication.encoded(format, |body| self.encoder.encode(format, body)) {
                each(&item.publication, frame);
            }
            if item.counted {
                session.queue_bytes_in_flight += item.bytes as usize;
            }
            session.in_flight += 1;
            frames += 1;
            bytes += item.bytes as usize;
        }
    }

    pub(crate) fn sent(&mut self, id: SessionId) {
        let Some(session) = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation)
        else {
            return;
        };
        if !session.alive {
            return;
        }
        self.counters.owed -= u64::from(session.in_flight);
        self.counters.sent += u64::from(session.in_flight);
        session.in_flight = 0;
        session.queue_bytes -= session.queue_bytes_in_flight;
        self.queue_bytes -= session.queue_bytes_in_flight;
        session.queue_bytes_in_flight = 0;
    }

    pub(crate) fn is_owed(&self, id: SessionId) -> bool {
        self.alive(id).is_some_and(|s| !s.outbox.is_empty() && !s.doomed)
    }

    /// Dooms the session that is owed the most bytes and says how many; 0 if none is owed anything.
    pub(crate) fn doom_the_slowest(&mut self) -> usize {
        let slowest = self
            .slots
            .iter_mut()
            .enumerate()
            .filter(|(_, s)| s.alive && !s.doomed && s.queue_bytes > 0)
            .max_by_key(|(_, s)| s.queue_bytes);
        let Some((index, session)) = slowest else { return 0 };
        session.doomed = true;
        let id = SessionId { index: index as u32, generation: session.generation };
        self.doomed.push_back((id, Disconnect::Overloaded));
        session.queue_bytes
    }
}

/// A place in a topic's member list: whose subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) session: u32,
    pub(crate) subscription: u32,
}
