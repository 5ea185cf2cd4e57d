//! Sessions of one shard. Their subscriptions are in [`crate::subscriptions`], their deliveries in [`crate::delivery`].

use crate::budget::Counters;
use crate::chunks::Chunks;
use crate::encoder::Encoder;
use crate::latencies::Latencies;
use crate::log::Log;
use crate::notices::Notices;
use crate::outbox::{Entry, Outbox};
use crate::patches::FeedStats;
use crate::publication::{FORMATS_MAX, FormatId};
use crate::publication_arena::{PublicationArena, PublicationRef};
use crate::rates::Rates;
use crate::send_buffers::SendBuffers;
use crate::session_events::SessionEvents;
use crate::session_id::SessionId;
use crate::shrinking::spilled;
use crate::sources::Sources;
use crate::subscription::{Flags, Member, Subscription};
use crate::version_lag::UNKNOWN;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::num::NonZeroU64;

/// The states of a session.
///
/// ```text
///              unwritable
///                   ▲
///                   ▼
///   reserved ───► open ◄──────► suspended ────┐
///      │           │                          ▼
///      │           ├────► terminating ─────► closed
///      └───────────┴────────────────────────► ▲
/// ```
///
/// An unwritable session can do what an open one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Open,
    /// The session is open, and has no connection that can take deliveries now, as between two polls. Volatile messages
    /// skip it.
    Unwritable,
    /// The id is set aside for a session that may open later.
    Reserved,
    /// The connection is lost. The session receives no deliveries.
    Suspended,
    /// The session must end: new publications aren't enqueued.
    Terminating,
    /// The session's slot is free.
    Closed,
}

impl SessionState {
    /// Returns `true` if publications are enqueued for the session.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Unwritable)
    }
}

/// A session. During a fan-out 2,000 of them must stay in the cache, so a test limits the size to 96 bytes.
pub(crate) struct Session {
    pub(crate) generation: u32,
    pub(crate) state: SessionState,
    /// `true` if the session is ready, or waits for an encoding.
    pub(crate) is_listed: bool,
    /// `true` if a delivery before `ordered_since` was in another order than the log's.
    pub(crate) reordered: bool,
    pub(crate) format: FormatId,
    pub(crate) tag: u64,
    /// Id of the last recoverable publication that was sent to the session since `ordered_since`.
    pub(crate) newest_id: Option<NonZeroU64>,
    pub(crate) outbox: Outbox,
    /// Number of publications in flight.
    pub(crate) in_flight: u32,
    /// Size of the publications in flight, in bytes.
    pub(crate) in_flight_bytes: u32,
    /// Bytes waiting or in flight under `Queue` and `DropOldest`.
    pub(crate) queue_bytes: u32,
    /// The part of `queue_bytes` that is in flight.
    pub(crate) queue_bytes_in_flight: u32,
    pub(crate) subscriptions: SmallVec<[Subscription; 1]>,
}

/// All sessions of a shard. Slots are reused, so its memory follows the maximum number of sessions.
pub(crate) struct Sessions<E: Encoder> {
    pub(crate) arena: PublicationArena<E>,
    pub(crate) send_buffers: SendBuffers,
    pub(crate) slots: Chunks<Session>,
    free: Vec<u32>,
    pub(crate) events: SessionEvents<E::Frame>,
    pub(crate) notices: Notices,
    pub(crate) counters: Counters,
    /// Recent deliveries, for sessions that resume.
    pub(crate) log: Log<E::Frame>,
    pub(crate) sources: Sources,
    /// For sessions with many subscriptions, by index: the slot from which to search for a free one.
    pub(crate) first_free: HashMap<u32, u32>,
    /// Number of sessions per format.
    formats: [u32; FORMATS_MAX],
    pub(crate) latencies: Latencies,
    pub(crate) rates: Rates,
    /// The forms in which documents were taken.
    pub(crate) taken: FeedStats,
    /// Capacity for subscriptions outside the session structs.
    pub(crate) spilled: usize,
}

impl<E: Encoder> Sessions<E> {
    pub(crate) fn new(encoder: E, send_buffer_bytes_max: usize, log: Log<E::Frame>) -> Self {
        Self {
            arena: PublicationArena::new(encoder),
            send_buffers: SendBuffers::new(send_buffer_bytes_max),
            slots: Chunks::default(),
            free: Vec::new(),
            events: SessionEvents::default(),
            notices: Notices::default(),
            counters: Counters::default(),
            log,
            sources: Sources::default(),
            first_free: HashMap::new(),
            formats: [0; FORMATS_MAX],
            latencies: Latencies::default(),
            rates: Rates::default(),
            taken: FeedStats::default(),
            spilled: 0,
        }
    }

    /// Returns the size of the sessions, and the size of their subscriptions, in bytes.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let sessions = self.slots.len() * (size_of::<Session>() + Sources::BYTES)
            + self.first_free.len() * 2 * size_of::<(u32, u32)>();
        (sessions, self.spilled * size_of::<Subscription>())
    }

    /// Returns the size of the outboxes without the publications and frames themselves, in bytes.
    pub(crate) fn outbox_bytes(&self) -> usize {
        self.counters.pending as usize * size_of::<Entry>() + self.arena.bytes_held()
    }

    pub(crate) fn count(&self) -> usize {
        self.formats.iter().sum::<u32>() as usize
    }

    pub(crate) fn open(&mut self, format: FormatId, tag: u64) -> SessionId {
        let id = self.reserve();
        self.open_reserved(id, format, tag);
        id
    }

    /// Sets an id aside for a session.
    pub(crate) fn reserve(&mut self) -> SessionId {
        let fresh = |generation| Session {
            generation,
            state: SessionState::Reserved,
            is_listed: false,
            reordered: false,
            format: FormatId(0),
            tag: 0,
            newest_id: None,
            outbox: Outbox::default(),
            in_flight: 0,
            in_flight_bytes: 0,
            queue_bytes: 0,
            queue_bytes_in_flight: 0,
            subscriptions: SmallVec::new(),
        };
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if let Some(slot) = self.slots.get_mut(index as usize) {
            let generation = slot.generation.wrapping_add(1);
            *slot = fresh(generation);
            SessionId { index, generation }
        } else {
            self.slots.push(fresh(0));
            self.sources.push();
            SessionId { index, generation: 0 }
        }
    }

    fn reserved_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.slots.get_mut(id.index as usize)?;
        (session.generation == id.generation && session.state == SessionState::Reserved).then_some(session)
    }

    /// Opens the session with a reserved id. Returns `false` if the id isn't reserved.
    pub(crate) fn open_reserved(&mut self, id: SessionId, format: FormatId, tag: u64) -> bool {
        assert!(usize::from(format.0) < FORMATS_MAX, "formats are numbered below {FORMATS_MAX}");
        let Some(session) = self.reserved_mut(id) else { return false };
        (session.state, session.format, session.tag) = (SessionState::Open, format, tag);
        self.log.open(id.index);
        self.formats[usize::from(format.0)] += 1;
        true
    }

    /// Gives up a reserved id.
    pub(crate) fn release(&mut self, id: SessionId) {
        if let Some(session) = self.reserved_mut(id) {
            session.state = SessionState::Closed;
            self.free.push(id.index);
        }
    }

    /// Reserves the id of the session that was closed last, if this is it. Returns `false` if it isn't.
    pub(crate) fn reserve_again(&mut self, id: SessionId) -> bool {
        if self.free.last() != Some(&id.index) || self.slots[id.index as usize].generation != id.generation {
            return false;
        }
        self.free.pop();
        self.slots[id.index as usize].state = SessionState::Reserved;
        true
    }

    /// Sets the source of a session, and the time at which it opened.
    pub(crate) fn set_source(&mut self, id: SessionId, source: u64, opened_at: u32) {
        if self.alive(id).is_some() {
            self.sources.set(id.index, source, opened_at);
        }
    }

    /// Returns the source of a session, and the time at which it opened.
    pub(crate) fn source(&self, id: SessionId) -> Option<(u64, u32)> {
        self.alive(id).map(|_| self.sources.of(id.index))
    }

    /// Returns the number of sessions per format.
    pub(crate) fn formats(&self) -> &[u32; FORMATS_MAX] {
        &self.formats
    }

    /// Counts a session's change of format.
    pub(crate) fn count_format(&mut self, before: FormatId, now: FormatId) {
        self.formats[usize::from(before.0)] -= 1;
        self.formats[usize::from(now.0)] += 1;
    }

    /// Returns the source of a member's session.
    pub(crate) fn source_of(&self, member: Member) -> u64 {
        self.sources.of(member.session).0
    }

    /// Ends a session and drops its pending deliveries. The caller has removed it from its topics.
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
        self.sources.set(id.index, 0, 0);
        self.formats[usize::from(session.format.0)] -= 1;
        self.spilled -= spilled(&session.subscriptions);
        session.subscriptions = SmallVec::new();
        if !self.first_free.is_empty() {
            self.first_free.remove(&id.index);
        }
        self.free.push(id.index);
    }

    /// Drops a session's pending deliveries until it is resumed. Returns `true` if it may be suspended.
    pub(crate) fn suspend(&mut self, id: SessionId) -> bool {
        let Some(session) = self.alive_mut(id).filter(|session| session.state.is_open()) else {
            return false;
        };
        session.state = SessionState::Suspended;
        self.drop_pending(id.index);
        true
    }

    /// Sets whether a connection can take an open session's deliveries now.
    pub(crate) fn set_writable(&mut self, id: SessionId, is_writable: bool) {
        if let Some(session) = self.alive_mut(id).filter(|session| session.state.is_open()) {
            session.state = if is_writable { SessionState::Open } else { SessionState::Unwritable };
        }
    }

    /// Resumes a suspended session.
    pub(crate) fn resume(&mut self, id: SessionId) {
        if let Some(session) = self.alive_mut(id) {
            session.state = SessionState::Open;
        }
    }

    /// Drops a session's deliveries, waiting or in flight.
    fn drop_pending(&mut self, index: u32) {
        let session = &mut self.slots[index as usize];
        let mut pending = u64::from(session.outbox.waiting) + u64::from(session.in_flight);
        for entry in std::mem::take(&mut session.outbox).iter().filter(|entry| !entry.is_marker()) {
            self.arena.release(entry.publication_ref);
        }
        for (slot, subscription) in (0..).zip(&mut session.subscriptions) {
            pending += u64::from(subscription.waiting - subscription.queued());
            if subscription.flags.has(Flags::RATED) {
                subscription.flags.set(Flags::DELAYED, false);
                self.rates.cancel_delay(Member { session: index, subscription: slot });
            }
            // The client may not have received the deliveries in flight.
            subscription.behind = UNKNOWN;
            subscription.waiting = 0;
            for newest in [&mut subscription.newest, &mut subscription.state] {
                let newest = std::mem::replace(newest, PublicationRef::NONE);
                if !newest.is_none() {
                    self.arena.release(newest);
                }
            }
        }
        self.counters.pending -= pending;
        self.counters.dropped_on_disconnect += pending;
        let bytes = session.queue_bytes;
        self.send_buffers.release(&mut session.queue_bytes, bytes);
        (session.in_flight, session.in_flight_bytes, session.queue_bytes_in_flight) = (0, 0, 0);
    }

    /// Records that a session is sent a publication out of the log's order.
    pub(crate) fn reorder(&mut self, index: u32) {
        self.slots[index as usize].reorder();
        self.log.reorder(index);
    }

    pub(crate) fn alive(&self, id: SessionId) -> Option<&Session> {
        self.slots.get(id.index as usize).filter(|s| s.is(id))
    }

    pub(crate) fn alive_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.slots.get_mut(id.index as usize).filter(|s| s.is(id))
    }

    pub(crate) fn id_of(&self, member: Member) -> SessionId {
        self.slots[member.session as usize].id(member.session)
    }

    /// Marks a session as ready.
    pub(crate) fn list(&mut self, index: u32) {
        let session = &mut self.slots[index as usize];
        self.events.list(session.id(index), &mut session.is_listed);
    }
}

impl Session {
    /// Returns the id of the session with this index.
    pub(crate) fn id(&self, index: u32) -> SessionId {
        SessionId { index, generation: self.generation }
    }

    pub(crate) fn is(&self, id: SessionId) -> bool {
        self.generation == id.generation
            && !matches!(self.state, SessionState::Closed | SessionState::Reserved)
    }

    /// Updates the session's own part of [`Sessions::reorder`].
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
