//! How sessions come to be owed publications, by policy, and how these leave: the hot path.
//!
//! ```text
//!            fan_out ──► enqueue ──► waiting ──► take ──► in flight ──► sent
//!               │           │           │                     │
//!               ▼           ▼           ▼                     ▼
//!            dropped     dropped    conflated              abandoned
//!          (volatile)  (the budget) dropped, abandoned     (closed)
//! ```
//!
//! A document that is published may reach a session as a delta. Under `Latest` that is decided when it is taken,
//! by what the session took before: only then is it known how far it is behind. Under `Queue` it is decided when
//! it begins to wait, by what waits last, because what waits is weighed and all of it will be sent. But a subscription's
//! first document waits as under `Latest`, whatever the policy: it is what the client asked for, and is not held
//! against it that it is large.
//!
//! **Invariants.** An outbox holds names of publications, never copies. A `Latest` subscription, or one that begins, has at
//! most one document and one change of state after it waiting, so that no byte limit is needed; the bytes of all
//! other frames, in flight included, stay within `send_buffer_bytes_max`, but for one that is larger by itself
//! and alone. A delta follows what it is for. The counters add up after every call.

use crate::disconnect::Disconnect;
use crate::outbox::Entry;
use crate::publication::{Body, Publication};
use crate::session::{Encoder, Life, SessionId, Sessions};
use crate::shelf::{Elsewhere, Shelved};
use crate::subscription::{Flags, Member, Policy, UNKNOWN, further};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

impl<E: Encoder> Sessions<E> {
    /// Owes a publication to members of a topic, except to the session with index `except`.
    pub(crate) fn fan_out(
        &mut self,
        members: &[Member],
        publication: &Arc<Publication<E::Frame>>,
        volatile: bool,
        except: Option<u32>,
    ) {
        if members.is_empty() {
            return;
        }
        if let Body::Snapshot { .. } = publication.body() {
            return self.fan_out_document(members, publication);
        }
        let shelved = self.shelf.put(publication);
        let id = NonZeroU64::new(publication.id()).filter(|_| publication.is_recoverable());
        // Most members of a topic speak the same format.
        let mut last = None;
        for member in members {
            if except == Some(member.session) {
                continue;
            }
            let session = &mut self.slots[member.session as usize];
            if session.life != Life::Open {
                continue;
            }
            let bytes = match last {
                Some((format, bytes)) if format == session.format => bytes,
                _ => {
                    let bytes = self.shelf.bytes(shelved, session.format);
                    last = Some((session.format, bytes));
                    bytes
                }
            };
            let Some(bytes) = bytes else { continue };
            self.counters.due += 1;
            if volatile && (session.outbox.waiting > 0 || session.in_flight > 0) {
                self.counters.dropped += 1;
                continue;
            }
            if id.is_some() {
                session.newest_id = id;
            }
            self.enqueue(*member, shelved, bytes);
        }
        self.shelf.release(shelved);
    }

    /// Owes a new version to members of its feed.
    fn fan_out_document(&mut self, members: &[Member], publication: &Arc<Publication<E::Frame>>) {
        let shelved = self.shelf.put(publication);
        for member in members {
            let session = &mut self.slots[member.session as usize];
            let subscription = &mut session.subscriptions[member.subscription as usize];
            if session.life == Life::Open {
                subscription.behind = further(subscription.behind);
                self.owe_document(*member, shelved);
            } else {
                subscription.behind = UNKNOWN;
            }
        }
        self.shelf.release(shelved);
    }

    /// Owes the newest version to a member that is `behind` it.
    pub(crate) fn owe_newest(
        &mut self,
        member: Member,
        publication: &Arc<Publication<E::Frame>>,
        behind: u16,
    ) {
        let session = &mut self.slots[member.session as usize];
        session.subscriptions[member.subscription as usize].behind = behind;
        if session.life == Life::Open {
            let shelved = self.shelf.put(publication);
            self.owe_document(member, shelved);
            self.shelf.release(shelved);
        }
    }

    #[inline]
    fn owe_document(&mut self, member: Member, shelved: Shelved) {
        let session = &mut self.slots[member.session as usize];
        let subscription = &mut session.subscriptions[member.subscription as usize];
        match subscription.policy_now() {
            // Weighs nothing, and is encoded when it is taken.
            Policy::Latest => {
                self.counters.due += 1;
                self.enqueue(member, shelved, 0);
            }
            policy => {
                // What is left out by `DropOldest` would be missing for a delta.
                let (behind, resumes, then) = match policy {
                    Policy::Queue => (subscription.patchable(), subscription.resumes(), 0),
                    _ => (UNKNOWN, false, UNKNOWN),
                };
                let mut form = self.shelf.form(shelved, behind, resumes, session.format);
                // It must be known now whether the format supports deltas. (Deltas are usually small.)
                if form != shelved && self.shelf.bytes_now(form, session.format).is_none() {
                    form = shelved;
                }
                let Some(bytes) = self.shelf.bytes(form, session.format) else { return };
                subscription.behind = then;
                subscription.flags.set(Flags::RESUMES, false);
                self.counters.due += 1;
                self.enqueue(member, form, bytes);
            }
        }
    }

    /// Puts one publication into a session's outbox, by the subscription's policy. It is due already, and
    /// comes out as owed, dropped or abandoned. `bytes` are those of its frame.
    pub(crate) fn enqueue(&mut self, member: Member, shelved: Shelved, bytes: u32) {
        let session = &mut self.slots[member.session as usize];
        let subscription = &mut session.subscriptions[member.subscription as usize];
        match subscription.policy_now() {
            Policy::Latest => {
                if subscription.waiting == 0 {
                    if subscription.flags.has(Flags::RATED) && self.rates.hold(member) {
                        subscription.flags.set(Flags::HELD, true);
                    } else {
                        session.outbox.push(Entry::place(member.subscription));
                    }
                }
                let placed = u32::from(!subscription.flags.has(Flags::HELD));
                // A newer document takes the place of the one that waits, and makes a waiting change of
                // state meaningless: the document's own state is newer.
                let is_state = self.shelf.is_state(shelved);
                let newest = if is_state { &mut subscription.state } else { &mut subscription.newest };
                let mut older = [std::mem::replace(newest, shelved), Shelved::NONE];
                if !is_state {
                    older[1] = std::mem::replace(&mut subscription.state, Shelved::NONE);
                }
                subscription.waiting += 1;
                session.outbox.waiting += placed;
                self.counters.pending += 1;
                let mut conflated = false;
                for older in older.into_iter().filter(|older| !older.is_none()) {
                    conflated = true;
                    self.shelf.release(older);
                    subscription.waiting -= 1;
                    session.outbox.waiting -= placed;
                    self.counters.pending -= 1;
                    self.counters.conflated += 1;
                }
                // The newer one leaves at the older one's place, before what came between them.
                if conflated && self.shelf.is_recoverable(shelved) {
                    session.reorder();
                    self.stamps.reorder(member.session, self.log.next());
                }
                if placed == 0 {
                    self.shelf.hold(shelved);
                    return;
                }
            }
            policy => {
                let over = |queue_bytes: u32| {
                    queue_bytes > 0
                        && u64::from(queue_bytes) + u64::from(bytes) > self.send_buffer_bytes_max.into()
                };
                while over(session.queue_bytes) {
                    let subscriptions = &mut session.subscriptions;
                    let droppable = |slot: u32| subscriptions[slot as usize].policy == Policy::DropOldest;
                    if let Some(oldest) = session.outbox.drop_oldest(droppable) {
                        subscriptions[oldest.subscription as usize].waiting -= 1;
                        session.outbox.waiting -= 1;
                        session.queue_bytes -= oldest.bytes;
                        self.queue_bytes -= oldest.bytes as usize;
                        self.shelf.release(oldest.shelved);
                        self.counters.pending -= 1;
                        self.counters.dropped += 1;
                    } else if policy == Policy::DropOldest {
                        self.counters.dropped += 1;
                        return;
                    } else {
                        self.counters.dropped_on_disconnect += 1;
                        session.life = Life::Doomed;
                        let id = SessionId { index: member.session, generation: session.generation };
                        self.doomed.push_back((id, Disconnect::SlowConsumer));
                        return;
                    }
                }
                session.outbox.push(Entry { subscription: member.subscription, shelved, bytes });
                session.subscriptions[member.subscription as usize].waiting += 1;
                session.outbox.waiting += 1;
                session.queue_bytes += bytes;
                self.queue_bytes += bytes as usize;
                self.counters.pending += 1;
            }
        }
        self.shelf.hold(shelved);
        if !session.listed {
            session.listed = true;
            self.ready.push_back(SessionId { index: member.session, generation: session.generation });
        }
    }

    /// Whether a session can be owed all of these at once without being doomed for it.
    pub(crate) fn fits(&mut self, member: Member, publications: &[Arc<Publication<E::Frame>>]) -> bool {
        let session = &self.slots[member.session as usize];
        let policy = session.subscriptions[member.subscription as usize].policy;
        if policy != Policy::Queue || publications.is_empty() {
            return true;
        }
        let (format, queue_bytes) = (session.format, u64::from(session.queue_bytes));
        let mut bytes = 0;
        for publication in publications {
            let shelved = self.shelf.put(publication);
            bytes += u64::from(self.shelf.bytes(shelved, format).unwrap_or(0));
            self.shelf.release(shelved);
        }
        queue_bytes + bytes <= self.send_buffer_bytes_max.into()
            || (queue_bytes == 0 && publications.len() <= 1)
    }

    /// Whether no session is ready and none is doomed.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.ready.is_empty() && self.doomed.is_empty()
    }

    /// The next session that is owed something new, with its tag.
    pub(crate) fn poll_ready(&mut self) -> Option<(SessionId, u64)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(session) = self.alive_mut(id) {
                session.listed = false;
                if session.life == Life::Suspended {
                    continue;
                }
                return Some((id, session.tag));
            }
        }
        None
    }

    /// The next session that has to end, with its tag.
    pub(crate) fn poll_terminating(&mut self) -> Option<(SessionId, u64, Disconnect)> {
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
        let Some(session) = self.slots.get_mut(id.index as usize) else { return };
        if !session.is(id) {
            return;
        }
        let (mut bytes, mut frames) = (0_usize, 0);
        while let Some(entry) = session.outbox.front() {
            let member = Member { session: id.index, subscription: entry.subscription };
            let subscription = &mut session.subscriptions[entry.subscription as usize];
            let (behind, resumes) = (subscription.patchable(), subscription.resumes());
            let place = match (entry.is_place(), subscription.newest.is_none()) {
                (false, _) => None,
                (true, false) => Some(&mut subscription.newest),
                (true, true) => Some(&mut subscription.state),
            };
            let shelved = place.as_deref().map_or(entry.shelved, |place| *place);
            let is_document = self.shelf.is_document(shelved);
            let form = if place.is_some() && is_document {
                self.shelf.form(shelved, behind, resumes, session.format)
            } else {
                shelved
            };
            let Some((publication, frame, frame_bytes)) = self.shelf.frame(form, session.format) else {
                match self.shelf.make(form, session.format) {
                    Ok(Some(_)) => continue,
                    Ok(None) => {}
                    Err(Elsewhere) => {
                        let publication = self.shelf.publication(form);
                        self.awaited.add(publication, session.format, id, &mut session.listed);
                        break;
                    }
                }
                // The format doesn't support it, which became known after the wait began.
                match place {
                    Some(place) => *place = Shelved::NONE,
                    None => {
                        session.queue_bytes -= entry.bytes;
                        self.queue_bytes -= entry.bytes as usize;
                    }
                }
                if is_document {
                    subscription.behind = UNKNOWN;
                }
                self.shelf.release(shelved);
                subscription.waiting -= 1;
                if !entry.is_place() || subscription.has_empty_place() {
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
            each(publication, frame);
            if let Some(place) = place {
                *place = Shelved::NONE;
                if is_document {
                    // What is left out later by `DropOldest` would be missing for a delta.
                    subscription.behind = if subscription.policy == Policy::DropOldest { UNKNOWN } else { 0 };
                    subscription.flags.set(Flags::RESUMES, false);
                    subscription.flags.set(Flags::BEGINS, false);
                }
                if subscription.flags.has(Flags::RATED) {
                    self.rates.taken(member);
                }
            } else {
                session.queue_bytes_in_flight += entry.bytes;
            }
            self.shelf.release(shelved);
            subscription.waiting -= 1;
            if !entry.is_place() || subscription.has_empty_place() {
                session.outbox.pop();
            }
            session.outbox.waiting -= 1;
            session.in_flight += 1;
            session.in_flight_bytes = session.in_flight_bytes.saturating_add(frame_bytes);
            frames += 1;
            bytes += frame_bytes as usize;
        }
    }

    /// Gives what was held and whose time has come its place in the outbox.
    #[inline]
    pub(crate) fn handle_time(&mut self, now: Instant) {
        if !self.awaited.is_empty() {
            self.awaited.move_encoded_to(&mut self.ready);
        }
        self.rates.handle_time(now);
        while let Some(member) = self.rates.poll_due() {
            self.place(member);
        }
    }

    /// Everything in flight of a session has been taken by the kernel.
    pub(crate) fn sent(&mut self, id: SessionId) {
        let Some(session) = self.slots.get_mut(id.index as usize) else { return };
        if !session.is(id) {
            return;
        }
        self.counters.pending -= u64::from(session.in_flight);
        self.counters.sent += u64::from(session.in_flight);
        session.in_flight = 0;
        session.in_flight_bytes = 0;
        session.queue_bytes -= session.queue_bytes_in_flight;
        self.queue_bytes -= session.queue_bytes_in_flight as usize;
        session.queue_bytes_in_flight = 0;
    }

    pub(crate) fn has_pending(&self, id: SessionId) -> bool {
        self.alive(id).is_some_and(|s| s.outbox.waiting > 0 && s.life == Life::Open)
    }
}
