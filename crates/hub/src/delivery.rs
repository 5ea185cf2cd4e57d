//! Deliveries: how publications enter outboxes according to policies, and how they leave. This is the hot
//! path.
//!
//! ```text
//!            fan_out ──► enqueue ──► waiting ──► take ──► in flight ──► sent
//!               │           │           │                     │
//!               ▼           ▼           ▼                     ▼
//!            dropped     dropped    conflated         dropped on disconnect
//!          (volatile)  (the budget) dropped
//! ```
//!
//! A document may be delivered as a delta. Under `Latest` this is decided when the document is taken, based
//! on the version that the session took before. Under `Queue` it is decided when the document is enqueued,
//! based on the last version in the queue, because queued bytes are counted and all of them will be sent. The
//! first document of a subscription is treated as under `Latest`, whatever the policy: the client has
//! requested it, so a large one must not end the session.
//!
//! **Invariants.** An outbox holds references to publications, never copies. A `Latest` subscription, and one whose
//! first document is pending, has at most one document and one change of state waiting, so it needs no byte limit.
//! The bytes of all other frames, in flight included, stay within `send_buffer_bytes_max`; a single larger frame is
//! allowed if it is alone. A delta follows the version that it applies to. The counters add up after every call.

use crate::disconnect::Disconnect;
use crate::encoder::Encoder;
use crate::notice::Notice;
use crate::outbox::Entry;
use crate::publication::{Body, Publication};
use crate::publication_arena::{EncodingInProgress, PublicationRef};
use crate::session::{Session, SessionState, Sessions};
use crate::session_id::SessionId;
use crate::subscription::{Flags, Member, Policy};
use crate::suspension::Suspensions;
use crate::version_lag::{UNKNOWN, further_behind};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

impl<E: Encoder> Sessions<E> {
    /// Enqueues a message or a state for members of a topic, except for the session with index `except`.
    pub(crate) fn fan_out(
        &mut self,
        members: &[Member],
        publication: &Arc<Publication<E::Frame>>,
        volatile: bool,
        except: Option<u32>,
    ) {
        let is_sampled = self.latencies.next_is_sampled();
        self.enqueue_for(members, publication, volatile, except, is_sampled);
    }

    /// Enqueues an earlier message or state for one member.
    pub(crate) fn replay(&mut self, member: Member, publication: &Arc<Publication<E::Frame>>) {
        self.enqueue_for(&[member], publication, false, None, false);
    }

    fn enqueue_for(
        &mut self,
        members: &[Member],
        publication: &Arc<Publication<E::Frame>>,
        volatile: bool,
        except: Option<u32>,
        is_sampled: bool,
    ) {
        if members.is_empty() {
            return;
        }
        debug_assert!(!matches!(publication.body(), Body::Snapshot { .. }), "for `fan_out_document`");
        let publication_ref = self.arena.insert(publication);
        if is_sampled {
            self.arena.sample(publication_ref);
        }
        let id = NonZeroU64::new(publication.id()).filter(|_| publication.is_recoverable());
        // Most members of a topic have the same format, so the last lookup is kept.
        let mut last = None;
        for member in members {
            if except == Some(member.session) {
                continue;
            }
            let session = &mut self.slots[member.session as usize];
            if !session.state.is_open() {
                continue;
            }
            let bytes = match last {
                Some((format, bytes)) if format == session.format => bytes,
                _ => {
                    let bytes = self.arena.bytes(publication_ref, session.format);
                    last = Some((session.format, bytes));
                    bytes
                }
            };
            let Some(bytes) = bytes else { continue };
            self.counters.due += 1;
            let is_idle = |session: &Session| session.outbox.waiting == 0 && session.in_flight == 0;
            if volatile && (session.state != SessionState::Open || !is_idle(session)) {
                self.counters.dropped += 1;
                self.events.dropped.add(session.id(member.session));
                continue;
            }
            if id.is_some() {
                session.newest_id = id;
            }
            self.enqueue(*member, publication_ref, bytes);
        }
        self.arena.release(publication_ref);
    }

    /// Enqueues a document for members of its feed. The document is `step` versions newer than the previous
    /// document of the feed.
    pub(crate) fn fan_out_document(
        &mut self,
        members: &[Member],
        publication: &Arc<Publication<E::Frame>>,
        step: u16,
    ) {
        if members.is_empty() {
            return;
        }
        let publication_ref = self.arena.insert(publication);
        if self.latencies.next_is_sampled() {
            self.arena.sample(publication_ref);
        }
        for member in members {
            let session = &mut self.slots[member.session as usize];
            let subscription = &mut session.subscriptions[member.subscription as usize];
            if session.state.is_open() {
                subscription.behind = further_behind(subscription.behind, step);
                self.enqueue_document(*member, publication_ref);
            } else {
                subscription.behind = UNKNOWN;
            }
        }
        self.arena.release(publication_ref);
    }

    /// Enqueues the newest version for a member that is `behind` versions behind.
    pub(crate) fn enqueue_newest(
        &mut self,
        member: Member,
        publication: &Arc<Publication<E::Frame>>,
        behind: u16,
    ) {
        let session = &mut self.slots[member.session as usize];
        session.subscriptions[member.subscription as usize].behind = behind;
        if session.state.is_open() {
            let publication_ref = self.arena.insert(publication);
            self.enqueue_document(member, publication_ref);
            self.arena.release(publication_ref);
        }
    }

    #[inline]
    fn enqueue_document(&mut self, member: Member, publication_ref: PublicationRef) {
        let session = &mut self.slots[member.session as usize];
        let subscription = &mut session.subscriptions[member.subscription as usize];
        match subscription.policy_now() {
            // Under `Latest` a document counts no bytes, and is encoded when it is taken.
            Policy::Latest => {
                self.counters.due += 1;
                self.enqueue(member, publication_ref, 0);
            }
            policy => {
                // A delta would lack its base if `DropOldest` drops that version.
                let (behind, resumes, then) = match policy {
                    Policy::Queue => (subscription.delta_base(), subscription.resumes(), 0),
                    _ => (UNKNOWN, false, UNKNOWN),
                };
                let mut form = self.arena.form(publication_ref, behind, resumes, session.format);
                // The format's support for deltas must be known now. (Deltas are usually small.)
                if form != publication_ref && self.arena.bytes_now(form, session.format).is_none() {
                    form = publication_ref;
                }
                let Some(bytes) = self.arena.bytes(form, session.format) else { return };
                subscription.behind = then;
                subscription.flags.set(Flags::RESUMES, false);
                self.counters.due += 1;
                self.enqueue(member, form, bytes);
            }
        }
    }

    /// Puts one publication into a session's outbox according to the subscription's policy. The publication
    /// is counted as due, and becomes pending, dropped, or dropped on disconnect. `bytes` is the size of its
    /// frame.
    pub(crate) fn enqueue(&mut self, member: Member, publication_ref: PublicationRef, bytes: u32) {
        let session = &mut self.slots[member.session as usize];
        let subscription = &mut session.subscriptions[member.subscription as usize];
        match subscription.policy_now() {
            Policy::Latest => {
                if subscription.waiting == 0 {
                    if subscription.flags.has(Flags::RATED) && self.rates.delay(member) {
                        subscription.flags.set(Flags::DELAYED, true);
                    } else {
                        session.outbox.push(Entry::marker(member.subscription));
                    }
                }
                let placed = u32::from(!subscription.flags.has(Flags::DELAYED));
                // A newer document replaces the waiting one. It also makes a waiting change of state
                // obsolete, because the document's own state is newer.
                let is_state = self.arena.is_state(publication_ref);
                let newest = if is_state { &mut subscription.state } else { &mut subscription.newest };
                let mut older = [std::mem::replace(newest, publication_ref), PublicationRef::NONE];
                if !is_state {
                    older[1] = std::mem::replace(&mut subscription.state, PublicationRef::NONE);
                }
                subscription.waiting += 1;
                session.outbox.waiting += placed;
                self.counters.pending += 1;
                let mut conflated = false;
                for older in older.into_iter().filter(|older| !older.is_none()) {
                    conflated = true;
                    self.arena.release(older);
                    subscription.waiting -= 1;
                    session.outbox.waiting -= placed;
                    self.counters.pending -= 1;
                    self.counters.conflated += 1;
                }
                // The newer message takes the older one's position in the outbox, before messages that came
                // between them.
                if conflated && self.arena.is_recoverable(publication_ref) {
                    session.reorder();
                    self.log.reorder(member.session);
                }
                if placed == 0 {
                    self.arena.retain(publication_ref);
                    return;
                }
            }
            policy => {
                while !self.send_buffers.can_take(session.queue_bytes, bytes) {
                    let subscriptions = &mut session.subscriptions;
                    let droppable = |slot: u32| subscriptions[slot as usize].policy == Policy::DropOldest;
                    if let Some(oldest) = session.outbox.drop_oldest(droppable) {
                        subscriptions[oldest.subscription as usize].waiting -= 1;
                        session.outbox.waiting -= 1;
                        self.send_buffers.release(&mut session.queue_bytes, oldest.bytes);
                        self.arena.release(oldest.publication_ref);
                        self.counters.pending -= 1;
                        self.counters.dropped += 1;
                        self.events.dropped.add(session.id(member.session));
                    } else if policy == Policy::DropOldest {
                        self.counters.dropped += 1;
                        self.events.dropped.add(session.id(member.session));
                        return;
                    } else {
                        self.counters.dropped_on_disconnect += 1;
                        session.state = SessionState::Terminating;
                        let id = session.id(member.session);
                        self.events.terminating.push_back((id, Disconnect::SlowConsumer));
                        return;
                    }
                }
                session.outbox.push(Entry { subscription: member.subscription, publication_ref, bytes });
                session.subscriptions[member.subscription as usize].waiting += 1;
                session.outbox.waiting += 1;
                self.send_buffers.charge(&mut session.queue_bytes, bytes);
                self.counters.pending += 1;
            }
        }
        self.arena.retain(publication_ref);
        self.events.list(session.id(member.session), &mut session.is_listed);
    }

    /// Returns `true` if the session can receive all `publications` at once without exceeding its send
    /// buffer.
    pub(crate) fn fits(&mut self, member: Member, publications: &[Arc<Publication<E::Frame>>]) -> bool {
        let session = &self.slots[member.session as usize];
        let policy = session.subscriptions[member.subscription as usize].policy;
        if policy != Policy::Queue || publications.is_empty() {
            return true;
        }
        let (format, queue_bytes) = (session.format, u64::from(session.queue_bytes));
        let mut bytes = 0;
        for publication in publications {
            let publication_ref = self.arena.insert(publication);
            bytes += u64::from(self.arena.bytes(publication_ref, format).unwrap_or(0));
            self.arena.release(publication_ref);
        }
        self.send_buffers.can_hold(queue_bytes + bytes) || (queue_bytes == 0 && publications.len() <= 1)
    }

    /// Returns the next session with new pending deliveries, with its tag.
    pub(crate) fn poll_ready(&mut self) -> Option<(SessionId, u64)> {
        while let Some(id) = self.events.ready.pop_front() {
            if let Some(session) = self.alive_mut(id) {
                session.is_listed = false;
                if session.state == SessionState::Suspended {
                    continue;
                }
                return Some((id, session.tag));
            }
        }
        None
    }

    /// Returns the next session that must end, with its tag.
    pub(crate) fn poll_terminating(&mut self) -> Option<(SessionId, u64, Disconnect)> {
        while let Some((id, reason)) = self.events.terminating.pop_front() {
            if let Some(session) = self.alive(id) {
                return Some((id, session.tag, reason));
            }
        }
        None
    }

    /// Returns `true` if a session's deliveries are held until its client is notified of a gap.
    #[cold]
    fn is_held(&mut self, id: SessionId) -> bool {
        let Some(session) = self.slots.get(id.index as usize).filter(|session| session.is(id)) else {
            return false;
        };
        let (outbox, subscriptions) = (&session.outbox, &session.subscriptions);
        self.notices.held.holds(id, |rooms| {
            outbox.front().is_some()
                && subscriptions.iter().any(|s| s.waiting > 0 && rooms.contains(&s.topic))
        })
    }

    /// Moves waiting publications into flight: at least one if there is any, more while they fit into
    /// `bytes_max` and `frames_max`. If another core is making a frame, the session waits for it if `waits`
    /// is `true`; otherwise this core makes its own.
    pub(crate) fn take(
        &mut self,
        id: SessionId,
        (bytes_max, frames_max, waits): (usize, usize, bool),
        mut each: impl FnMut(&Arc<Publication<E::Frame>>, &E::Frame),
    ) {
        if !self.notices.held.is_empty() && self.is_held(id) {
            return;
        }
        let Some(session) = self.slots.get_mut(id.index as usize) else { return };
        if !session.is(id) {
            return;
        }
        let (mut bytes, mut frames) = (0_usize, 0);
        while let Some(entry) = session.outbox.front() {
            let member = Member { session: id.index, subscription: entry.subscription };
            let subscription = &mut session.subscriptions[entry.subscription as usize];
            let (behind, resumes) = (subscription.delta_base(), subscription.resumes());
            let slot = match (entry.is_marker(), subscription.newest.is_none()) {
                (false, _) => None,
                (true, false) => Some(&mut subscription.newest),
                (true, true) => Some(&mut subscription.state),
            };
            let publication_ref = slot.as_deref().map_or(entry.publication_ref, |slot| *slot);
            let is_document = self.arena.is_document(publication_ref);
            let form = if slot.is_some() && is_document {
                self.arena.form(publication_ref, behind, resumes, session.format)
            } else {
                publication_ref
            };
            let Some((publication, frame, frame_bytes, is_sampled)) = self.arena.frame(form, session.format)
            else {
                match self.arena.encode(form, session.format) {
                    Ok(Some(_)) => continue,
                    Ok(None) => {}
                    Err(EncodingInProgress) if !waits => {
                        self.arena.bytes_now(form, session.format);
                        continue;
                    }
                    Err(EncodingInProgress) => {
                        let publication = self.arena.publication(form);
                        let is_listed = &mut session.is_listed;
                        self.events.encoding_waiters.add(publication, session.format, id, is_listed);
                        break;
                    }
                }
                // The format doesn't support the publication, which was unknown when it was enqueued.
                match slot {
                    Some(slot) => *slot = PublicationRef::NONE,
                    None => {
                        self.send_buffers.release(&mut session.queue_bytes, entry.bytes);
                    }
                }
                if is_document {
                    subscription.behind = UNKNOWN;
                }
                self.arena.release(publication_ref);
                subscription.waiting -= 1;
                if !entry.is_marker() || subscription.is_drained() {
                    session.outbox.pop();
                }
                session.outbox.waiting -= 1;
                self.counters.pending -= 1;
                self.counters.dropped += 1;
                continue;
            };
            if frames > 0 && (frames >= frames_max || bytes + frame_bytes as usize > bytes_max) {
                break;
            }
            match publication.body() {
                Body::Snapshot { .. } => self.taken.snapshots += 1,
                Body::Delta { base, position, .. } if base + 1 == position.offset => self.taken.deltas += 1,
                Body::Delta { .. } => self.taken.joined += 1,
                _ => {}
            }
            if is_sampled {
                self.latencies.note(publication.taken_at());
            }
            each(publication, frame);
            if let Some(slot) = slot {
                *slot = PublicationRef::NONE;
                if is_document {
                    // A delta would lack its base if `DropOldest` drops that version later.
                    subscription.behind = if subscription.policy == Policy::DropOldest { UNKNOWN } else { 0 };
                    subscription.flags.set(Flags::RESUMES, false);
                    subscription.flags.set(Flags::AWAITS_FIRST, false);
                }
                if subscription.flags.has(Flags::RATED) {
                    self.rates.taken(member);
                }
            } else {
                session.queue_bytes_in_flight += entry.bytes;
            }
            self.arena.release(publication_ref);
            subscription.waiting -= 1;
            if !entry.is_marker() || subscription.is_drained() {
                session.outbox.pop();
            }
            session.outbox.waiting -= 1;
            session.in_flight += 1;
            session.in_flight_bytes = session.in_flight_bytes.saturating_add(frame_bytes);
            frames += 1;
            bytes += frame_bytes as usize;
        }
    }

    /// Queues delayed publications that are due. Returns `false` if no publication was delayed.
    #[inline]
    pub(crate) fn handle_time(&mut self, now: Instant) -> bool {
        self.rates.handle_time(now);
        let may_be_due = !self.events.encoding_waiters.is_empty() || self.rates.has_delayed();
        if may_be_due {
            self.queue_due();
        }
        may_be_due
    }

    fn queue_due(&mut self) {
        self.events.list_encoded();
        while let Some(member) = self.rates.poll_due() {
            self.queue_marker(member);
        }
    }

    /// Records that the kernel has accepted everything in flight of a session. Returns `true` if more
    /// publications wait.
    pub(crate) fn sent(&mut self, id: SessionId) -> bool {
        let Some(session) = self.slots.get_mut(id.index as usize) else { return false };
        if !session.is(id) {
            return false;
        }
        self.counters.pending -= u64::from(session.in_flight);
        self.counters.sent += u64::from(session.in_flight);
        session.in_flight = 0;
        session.in_flight_bytes = 0;
        let bytes = std::mem::take(&mut session.queue_bytes_in_flight);
        self.send_buffers.release(&mut session.queue_bytes, bytes);
        session.outbox.waiting > 0
    }

    pub(crate) fn has_pending(&self, id: SessionId) -> bool {
        self.alive(id).is_some_and(|s| s.outbox.waiting > 0 && s.state.is_open())
    }

    /// Returns the next notice to a session that isn't suspended. Ends the previous notice.
    pub(crate) fn poll_notice(&mut self, suspensions: &mut Suspensions) -> Option<Notice> {
        if let Some(notice) = self.notices.last.take() {
            self.end_notice(&notice);
        }
        while let Some(notice) = self.notices.waiting.pop_front() {
            if self.alive(notice.session()).is_none() {
                self.end_notice(&notice);
            } else if suspensions.of(notice.session()).is_some() {
                self.end_notice(&notice);
                suspensions.defer(notice);
            } else {
                self.notices.last = Some(notice.clone());
                return Some(notice);
            }
        }
        None
    }

    /// Takes the next gap notice for a session.
    pub(crate) fn take_gap(&mut self, session: SessionId) -> Option<Notice> {
        let notice = self.notices.take_gap(session)?;
        self.end_notice(&notice);
        Some(notice)
    }

    /// Ends a notice, because its client has been notified, its session has ended or is suspended.
    fn end_notice(&mut self, notice: &Notice) {
        let Notice::Gap { session, .. } = *notice else { return };
        if self.notices.held.remove(session) && self.has_pending(session) {
            self.list(session.index);
        }
    }
}
