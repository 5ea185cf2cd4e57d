//! The shadow's model of recovery: the log of deliveries, the publications that a session missed while it was
//! disconnected, and the publications that its client really received.

use super::feeds::Form;
use super::shadow::{How, Shadow, Slot, Status, Thing, frame_bytes};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use stentor_hub::{FormatId, LogStats, Policy, RECOVERY_ENTRY_BYTES, RecoveryLimits, ResumeError};

/// The recent deliveries of one core.
#[derive(Default)]
pub(crate) struct ShadowLog {
    entries: VecDeque<Logged>,
    pub(crate) next: u64,
    expired: u64,
    evicted: u64,
}

struct Logged {
    place: u64,
    at: Instant,
    thing: Rc<Thing>,
    topics: Vec<usize>,
    how: How,
    /// The receiver of a message to one session. `None` for a message to rooms.
    to: Option<usize>,
}

impl Logged {
    fn bytes(&self) -> usize {
        self.thing.len + RECOVERY_ENTRY_BYTES
    }
}

impl ShadowLog {
    fn bytes(&self) -> usize {
        self.entries.iter().map(Logged::bytes).sum()
    }

    pub(crate) fn figures(&self) -> LogStats {
        LogStats {
            publications: self.entries.len(),
            bytes: self.bytes(),
            expired: self.expired,
            evicted: self.evicted,
        }
    }

    pub(crate) fn evict(&mut self) -> Option<usize> {
        let bytes = self.entries.pop_front().map(|entry| entry.bytes());
        self.evicted += u64::from(bytes.is_some());
        bytes
    }

    pub(crate) fn expire(&mut self, now: Instant, limits: RecoveryLimits) {
        while self.entries.front().is_some_and(|entry| now - entry.at > limits.age_max) {
            self.entries.pop_front();
            self.expired += 1;
        }
    }
}

impl Shadow {
    /// Logs a recoverable publication before it is delivered to members of these topics.
    pub(crate) fn log(&mut self, now: Instant, core: usize, topics: &[usize], thing: &Rc<Thing>, how: &How) {
        if !thing.recoverable || !topics.iter().any(|topic| self.has_members(*topic, core)) {
            return;
        }
        let (thing, topics, how) = (thing.clone(), topics.to_vec(), how.clone());
        let place = self.logs[core].next;
        self.keep(core, Logged { place, at: now, thing, topics, how, to: None });
    }

    /// Sends a message to one session.
    pub(crate) fn send(&mut self, now: Instant, session: usize, number: u64, len: usize) {
        let s = &self.sessions[session];
        if !s.alive {
            return;
        }
        let (core, uid) = (s.core, s.direct);
        let thing = Rc::new(self.message(core, number, len, &How::default(), false));
        if thing.recoverable {
            let (place, how) = (self.logs[core].next, How::default());
            let topics = Vec::new();
            self.keep(core, Logged { place, at: now, thing: thing.clone(), topics, how, to: Some(session) });
            if let Some(ideal) = &mut self.sessions[session].ideal {
                ideal.extend(thing.number());
            }
        }
        if self.sessions[session].suspended_at.is_some() {
            self.saw("sent while suspended");
        }
        self.deliver_to(session, uid, &thing, false);
    }

    fn keep(&mut self, core: usize, entry: Logged) {
        let limits = self.limits.recovery.expect("it is recoverable");
        let (now, log) = (entry.at, &mut self.logs[core]);
        log.entries.push_back(entry);
        log.next += 1;
        let mut evicted = false;
        while log.bytes() > limits.bytes_max {
            log.evict();
            evicted = true;
        }
        log.expire(now, limits);
        if evicted {
            self.saw("log evicted");
        }
    }

    /// Records that a session receives or will receive a publication out of the log's order.
    pub(crate) fn reorder(&mut self, session: usize) {
        let s = &mut self.sessions[session];
        (s.reordered, s.ordered_since, s.newest) = (true, self.logs[s.core].next, None);
        s.ideal = None;
    }

    /// Suspends a session. Of the messages in [`ShadowSession::had`], the client really received the first
    /// `had`.
    pub(crate) fn suspend(&mut self, session: usize, had: usize) -> bool {
        let next = self.logs[self.sessions[session].core].next;
        let s = &mut self.sessions[session];
        if self.limits.recovery.is_none() || s.terminating {
            return false;
        }
        if s.suspended_at.is_some() {
            return true;
        }
        self.drop_pending(session);
        let s = &mut self.sessions[session];
        s.suspended_at = Some(next);
        if had < s.had.len() {
            self.seen.entry("tail lost").and_modify(|n| *n += 1).or_insert(1);
        }
        s.had.truncate(had);
        s.had_before = had;
        for sub in &mut s.subs {
            sub.again = true;
            (sub.feed.has, sub.feed.client) = (None, None);
            sub.forget_arrivals();
            let uid = sub.uid;
            for (_, thing) in s.had.iter().filter(|(of, _)| *of == uid) {
                sub.had(thing);
            }
        }
        true
    }

    /// Resumes a session. `last` is the number of the message that the client says it received last.
    pub(crate) fn resume(&mut self, session: usize, last: Option<u64>) -> Result<(), ResumeError> {
        let s = &self.sessions[session];
        let core = s.core;
        let Some(suspended_at) = s.suspended_at else { return Err(ResumeError::NotSuspended) };
        let log = &self.logs[core];
        let place = if last.is_none() && s.reordered {
            None
        } else if last == s.newest {
            Some(suspended_at)
        } else if let Some(last) = last {
            let is_its = |entry: &&Logged| entry.to.is_none_or(|to| to == session);
            let found = log.entries.iter().filter(is_its).find(|entry| entry.thing.number() == Some(last));
            found.map(|entry| entry.place).filter(|place| *place >= s.ordered_since).map(|place| place + 1)
        } else {
            Some(s.ordered_since)
        };
        let first = log.next - log.entries.len() as u64;
        let Some(place) = place.filter(|place| *place >= first) else {
            self.saw("not covered");
            return Err(ResumeError::NotCovered);
        };
        let quiet = last == s.newest
            && last.is_some_and(|last| !log.entries.iter().any(|entry| entry.thing.number() == Some(last)));
        let was_in = |topic: usize, place: u64| {
            let subs = s.subs.iter().filter(|sub| sub.status == Status::Active && sub.topic == topic);
            subs.map(|sub| (sub.uid, sub.since)).find(|(_, since)| *since <= place).map(|(uid, _)| uid)
        };
        let mut missed: Vec<(u64, Rc<Thing>)> = Vec::new();
        let mut sent_alone = false;
        for entry in log.entries.iter().filter(|entry| entry.place >= place) {
            if entry.to == Some(session) {
                missed.push((s.direct, entry.thing.clone()));
                sent_alone = true;
            }
            if entry.to.is_some() {
                continue;
            }
            let Some(uid) = entry.topics.iter().find_map(|topic| was_in(*topic, entry.place)) else {
                continue;
            };
            let by_room = entry.how.rooms.iter().any(|topic| was_in(*topic, entry.place).is_some());
            if !by_room && !entry.how.sessions.contains(&(core, s.id)) {
                missed.push((uid, entry.thing.clone()));
            }
        }
        let mut feeds: Vec<(u64, usize)> = s
            .subs
            .iter()
            .filter(|sub| sub.status == Status::Active && self.topics[sub.topic].is_feed())
            .map(|sub| (sub.uid, sub.topic))
            .collect();
        // The test's feeds are numbered in the order of their keys.
        feeds.sort_by_key(|(_, topic)| *topic);
        let queued: Vec<usize> = missed
            .iter()
            .filter(|(uid, _)| s.subs.iter().any(|sub| sub.uid == *uid && sub.policy == Policy::Queue))
            .filter_map(|(_, thing)| frame_bytes(s.format, &thing.said, thing.len))
            .collect();
        if queued.iter().sum::<usize>() > self.limits.send_buffer_bytes_max && queued.len() > 1 {
            self.saw("missed too much");
            return Err(ResumeError::TooMuch);
        }
        if !missed.is_empty() {
            self.saw("recovered");
        }
        if sent_alone {
            self.saw("recovered a message to one session");
        }
        if quiet {
            self.saw("recovered from an evicted position");
        }
        if last.is_none() {
            self.saw(if missed.is_empty() {
                "recovered nothing from the start"
            } else {
                "recovered from the start"
            });
        }
        let s = &mut self.sessions[session];
        (s.suspended_at, s.is_writable) = (None, true);
        s.recoveries += 1;
        if s.recoveries > 1 {
            self.saw("recovered again");
        }
        let held = std::mem::take(&mut self.sessions[session].held);
        if !held.is_empty() {
            self.saw("deferred notices sent");
        }
        self.told[core].extend(held);
        for (uid, thing) in missed {
            self.deliver_to(session, uid, &thing, false);
        }
        for (uid, topic) in feeds {
            let view = self.topics[topic].view_at(core).clone();
            self.deliver_feed(session, uid, &view, None, false);
        }
        Ok(())
    }

    /// Relaxes the checks of later deliveries to a client that lied about its last message.
    pub(crate) fn lied(&mut self, session: usize) {
        let s = &mut self.sessions[session];
        s.ideal = None;
        for sub in &mut s.subs {
            sub.gapless = false;
            sub.again = true;
            sub.forget_arrivals();
        }
    }

    pub(crate) fn set_format(&mut self, session: usize, format: FormatId) {
        let s = &mut self.sessions[session];
        let old = std::mem::replace(&mut s.format, format);
        let core = s.core;
        if old == format {
            return;
        }
        for slot in &mut s.early {
            if let Slot::Newest { state, .. } = slot
                && state.take_if(|state| Form::whole(state).bytes(format).is_none()).is_some()
            {
                self.counters[core].pending -= 1;
                self.counters[core].dropped_on_disconnect += 1;
                *self.seen.entry("the new format can't say what is held").or_default() += 1;
            }
        }
        s.early.retain(|slot| !slot.things().is_empty());
        if s.outbox.is_empty() {
            return;
        }
        let mut waiting: Vec<(u64, Rc<Thing>, Form)> = Vec::new();
        for slot in std::mem::take(&mut s.outbox) {
            match slot {
                Slot::One { uid, thing, form, .. } => waiting.push((uid, thing, form)),
                Slot::Newest { uid, newest, state } => {
                    let both = newest.into_iter().chain(state);
                    waiting.extend(both.map(|thing| (uid, thing.clone(), Form::whole(&thing))));
                }
            }
        }
        self.counters[core].pending -= waiting.len() as u64;
        self.saw("format changed with something waiting");
        for (uid, thing, form) in waiting {
            if form.bytes(format).is_some() {
                self.enqueue(session, uid, &thing, form);
            } else {
                self.counters[core].dropped_on_disconnect += 1;
                self.saw("unsupported by the new format");
            }
        }
    }

    /// Checks, once all messages are delivered, that a client whose session dropped no message received every
    /// message for it: each once, in order, however often it was disconnected. Returns the number of these
    /// messages.
    pub(crate) fn had_it_all(&self, session: usize) -> Option<usize> {
        let s = &self.sessions[session];
        if s.terminating || s.suspended_at.is_some() {
            return None;
        }
        let had: Vec<u64> =
            s.had.iter().filter(|(_, thing)| thing.recoverable).filter_map(|(_, t)| t.number()).collect();
        assert_eq!(&had, s.ideal.as_ref()?, "session {session} after {} recoveries", s.recoveries);
        Some(had.len())
    }
}
