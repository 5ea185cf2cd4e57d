//! The shadow's model of feeds: the form in which a version is sent to each session, the kept patches, the
//! delays by rate; and the state of a client that applies its deliveries.

use super::rig::Content;
use super::shadow::{Shadow, ShadowSession, Slot, Status, Sub, Thing, TopicPosition, View, frame_bytes};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use stentor_hub::{FeedStats, FormatId, PatchLimits, Policy, SnapshotReason};

/// Maximum number of joined patches of one version. There is one per number of versions behind.
const JOINS_MAX: usize = 32;

/// The patches that lead to a version of a document.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Length and version of each patch, oldest first; the last one leads to this version.
    past: RefCell<Vec<(usize, u64)>>,
    own: (usize, u64),
    joins: RefCell<BTreeMap<u64, Vec<(usize, u64)>>>,
    used: Cell<bool>,
}

/// The content of a delivery, and its length.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) said: Content,
    pub(crate) len: usize,
}

impl Form {
    pub(crate) fn whole(thing: &Thing) -> Self {
        Self { said: thing.said.clone(), len: thing.len }
    }

    fn with_reason(thing: &Thing, why: SnapshotReason) -> Self {
        let Content::Document(number, state) = thing.said else {
            unreachable!("documents have no reason yet")
        };
        Self { said: Content::SnapshotWithReason(number, state, why), len: thing.len }
    }

    pub(crate) fn bytes(&self, format: FormatId) -> Option<usize> {
        frame_bytes(format, &self.said, self.len)
    }
}

impl Version {
    pub(crate) fn new(before: Option<&Thing>, own: (usize, u64), limits: PatchLimits, len: usize) -> Self {
        let mut past =
            before.and_then(|t| t.version.as_ref()).map_or(Vec::new(), |v| v.past.borrow().clone());
        past.push(own);
        while past.len() > limits.patches_max || past.iter().map(|(len, _)| len).sum::<usize>() > len {
            past.remove(0);
        }
        let (past, joins) = (RefCell::new(past), RefCell::default());
        Self { past, own, joins, used: Cell::new(false) }
    }

    /// Returns the patch from `behind` versions earlier to this version, whose document has this offset and
    /// length in bytes. `None` if there is no shorter patch.
    fn patched(&self, behind: u64, offset: u64, len: usize) -> Option<Form> {
        let said = |numbers: &[(usize, u64)]| {
            Content::Delta(offset - behind, numbers.iter().map(|(_, n)| *n).collect())
        };
        if behind == 1 {
            return Some(Form { said: said(&[self.own]), len: self.own.0 });
        }
        self.used.set(true);
        let joined =
            |steps: &[(usize, u64)]| steps.iter().map(|(len, _)| len - 2).sum::<usize>() + steps.len() + 1;
        let mut joins = self.joins.borrow_mut();
        // A joined patch is kept, even if its parts are evicted.
        if let Some(steps) = joins.get(&behind) {
            return Some(Form { said: said(steps), len: joined(steps) });
        }
        let past = self.past.borrow();
        let steps = &past[past.len().checked_sub(behind as usize).filter(|_| joins.len() < JOINS_MAX)?..];
        let made: usize = joins.values().map(|steps| joined(steps)).sum();
        if joined(steps) >= len || made + joined(steps) > len {
            return None;
        }
        joins.insert(behind, steps.to_vec());
        Some(Form { said: said(steps), len: joined(steps) })
    }
}

/// The state of a feed's subscription, as the hub and the client know it.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// The version to which the next delta must apply.
    pub(crate) has: Option<TopicPosition>,
    pub(crate) whole: bool,
    /// `true` if the client has named its version and hasn't received a document or delta since.
    pub(crate) resumes: bool,
    /// `true` until the first document is taken, under policies other than `Latest`. Until then only the
    /// newest version waits.
    pub(crate) begins: bool,
    pub(crate) interval: Duration,
    /// Time from which on the next version may leave.
    pub(crate) next: Option<Instant>,
    /// The position and number of the document that the client has.
    pub(crate) client: Option<(TopicPosition, u64)>,
}

impl Sub {
    pub(crate) fn policy_now(&self) -> Policy {
        if self.feed.begins { Policy::Latest } else { self.policy }
    }

    /// Returns `true` if the subscription receives complete documents only.
    fn is_whole(&self) -> bool {
        self.feed.whole || self.policy == Policy::DropOldest
    }

    fn keeps_time(&self) -> bool {
        !self.feed.interval.is_zero()
    }
}

/// The feeds whose patches a core keeps, least recently used first, and the forms that the core's sessions
/// took.
#[derive(Default)]
pub(crate) struct ShadowPatches {
    topics: VecDeque<usize>,
    evicted: u64,
    taken: FeedStats,
}

impl Shadow {
    /// Starts a core's turn: delayed versions that are due become ready.
    pub(crate) fn time(&mut self, core: usize, now: Instant) {
        self.clocks[core] = Some(now);
        let mut due: Vec<(Instant, usize)> = Vec::new();
        for (n, s) in self.sessions.iter().enumerate().filter(|(_, s)| s.core == core) {
            let next = s.early.iter().filter_map(|slot| s.sub_of(slot.uid()).feed.next);
            due.extend(next.filter(|next| *next <= now).map(|next| (next, n)));
        }
        due.sort();
        for (next, session) in due {
            let s = &mut self.sessions[session];
            let found = s.early.iter().position(|slot| s.sub_of(slot.uid()).feed.next == Some(next)).unwrap();
            let slot = s.early.remove(found);
            s.outbox.push(slot);
            s.ready = true;
            self.saw("delayed version due");
        }
    }

    /// Returns the time of the next action of a core's shard.
    pub(crate) fn next_due(&self, core: usize) -> Option<Instant> {
        let here = self.sessions.iter().filter(|s| s.core == core);
        here.flat_map(|s| s.early.iter().filter_map(|slot| s.sub_of(slot.uid()).feed.next)).min()
    }

    /// Returns `true` if the rate delays the next version. The subscription has no waiting version.
    pub(crate) fn too_soon(&self, session: usize, uid: u64) -> bool {
        let s = &self.sessions[session];
        let (sub, now) = (s.sub_of(uid), self.clocks[s.core]);
        sub.keeps_time() && sub.feed.next.is_some_and(|next| now.is_some_and(|now| next > now))
    }

    /// Sets or changes a rate.
    pub(crate) fn set_rate(&mut self, session: usize, uid: u64, interval: Duration) {
        let s = &mut self.sessions[session];
        let now = self.clocks[s.core];
        let feed = &mut s.sub(uid).feed;
        if !(feed.interval.is_zero() && interval.is_zero()) {
            let last = feed.next.map(|next| next - feed.interval);
            feed.next = last.map(|last| last + interval).filter(|_| !interval.is_zero());
        }
        feed.interval = interval;
        if let Some(found) = s.early.iter().position(|slot| slot.uid() == uid)
            && !self.too_soon(session, uid)
        {
            assert!(now.is_some());
            let s = &mut self.sessions[session];
            let slot = s.early.remove(found);
            s.outbox.push(slot);
            s.ready = true;
            self.saw("delayed version released by a new rate");
        }
    }

    /// Returns the form in which a session with the version `has` receives the newest version.
    fn form(
        &mut self,
        thing: &Rc<Thing>,
        has: Option<TopicPosition>,
        resumes: bool,
        format: FormatId,
    ) -> Form {
        let place = thing.place.expect("a document has one");
        let behind =
            has.filter(|has| has.incarnation == place.incarnation).map(|has| place.offset - has.offset);
        let version = thing.version.as_ref().filter(|_| behind.is_some_and(|behind| behind > 0));
        let form = version.and_then(|version| version.patched(behind?, place.offset, thing.len));
        if form.is_none() && resumes {
            self.saw("a document instead of patches");
            let why = if behind.is_some() { SnapshotReason::History } else { SnapshotReason::Epoch };
            return Form::with_reason(thing, why);
        }
        let form = form.filter(|form| form.bytes(format).is_some());
        match (behind, &form) {
            (Some(2..), Some(_)) => self.saw("joined patches"),
            (Some(2..), None) if thing.version.is_some() => self.saw("too far behind for patches"),
            (Some(1), Some(_)) => self.saw("delta"),
            _ => {}
        }
        form.unwrap_or_else(|| Form::whole(thing))
    }

    /// Enqueues a document for a member.
    pub(crate) fn enqueue_document(&mut self, session: usize, uid: u64, thing: &Rc<Thing>) {
        let s = &self.sessions[session];
        if s.terminating || s.suspended_at.is_some() {
            self.sessions[session].sub(uid).feed.has = None;
            return;
        }
        let (core, format) = (s.core, s.format);
        self.counters[core].due += 1;
        let sub = self.sessions[session].sub(uid);
        let has = sub.feed.has.filter(|_| !sub.is_whole());
        let resumes = sub.feed.resumes && !sub.is_whole();
        sub.feed.resumes &= sub.policy_now() == Policy::Latest;
        let form = match sub.policy_now() {
            Policy::Latest => Form::whole(thing),
            Policy::Queue => {
                sub.feed.has = thing.place;
                self.form(thing, has, resumes, format)
            }
            Policy::DropOldest => {
                sub.feed.has = None;
                Form::whole(thing)
            }
        };
        self.enqueue(session, uid, thing, form);
    }

    /// Returns the form of the newest document for a session that takes it.
    pub(crate) fn form_for(&mut self, session: usize, uid: u64, thing: &Rc<Thing>) -> Form {
        let format = self.sessions[session].format;
        let sub = self.sessions[session].sub(uid);
        let has = sub.feed.has.filter(|_| !sub.is_whole());
        let resumes = sub.feed.resumes && !sub.is_whole();
        self.form(thing, has, resumes, format)
    }

    /// Records that a document, a delta or a state was taken.
    pub(crate) fn took(&mut self, session: usize, uid: u64, thing: &Rc<Thing>, form: &Form, latest: bool) {
        let core = self.sessions[session].core;
        let taken = &mut self.patches[core].taken;
        match &form.said {
            Content::Document(..) | Content::SnapshotWithReason(..) => taken.snapshots += 1,
            Content::Delta(base, _) if thing.place.is_some_and(|p| p.offset == base + 1) => taken.deltas += 1,
            Content::Delta(..) => taken.joined += 1,
            _ => {}
        }
        let now = self.clocks[core];
        let sub = self.sessions[session].sub(uid);
        if latest && matches!(thing.said, Content::Document(..)) {
            sub.feed.has = thing.place.filter(|_| sub.policy != Policy::DropOldest);
            sub.feed.resumes = false;
            sub.feed.begins = false;
        }
        if latest && sub.keeps_time() {
            sub.feed.next = now.map(|now| now + sub.feed.interval);
        }
    }

    /// Returns the base version of a client with a new or restarted subscription.
    pub(crate) fn base(&self, view: &View, since: Option<TopicPosition>) -> Option<TopicPosition> {
        let newest = view.document.as_ref()?.place?;
        since.filter(|since| {
            since.incarnation == newest.incarnation && (1..=newest.offset).contains(&since.offset)
        })
    }

    /// Enqueues the form that leads from a client's version to the newest one.
    pub(crate) fn deliver_feed(
        &mut self,
        session: usize,
        uid: u64,
        view: &View,
        has: Option<TopicPosition>,
        says: bool,
    ) {
        let is_newest = view.document.as_ref().is_some_and(|document| document.place == has);
        let feed = &mut self.sessions[session].sub(uid).feed;
        (feed.has, feed.resumes) = (has, says && !is_newest);
        self.begin(session, uid, !is_newest);
        if let Some(document) = &view.document
            && document.place != has
        {
            self.enqueue_document(session, uid, document);
        }
        if let Some(state) = &view.state {
            self.deliver_to(session, uid, state, false);
            if state.said.is_lost() {
                let (core, topic) = (self.sessions[session].core, self.sessions[session].sub(uid).topic);
                self.sessions[session].sub(uid).status = Status::Ended;
                self.told[core].push(super::shadow::ExpectedNotice::Lost(session, topic));
                self.saw("lost at once");
            }
        }
    }

    /// Restarts a subscription: under any policy, only the newest version waits until the session has taken
    /// one.
    fn begin(&mut self, session: usize, uid: u64, begins: bool) {
        let s = &mut self.sessions[session];
        let (core, waiting) = (s.core, s.waiting_for(uid) as u64);
        let sub = s.sub(uid);
        if sub.policy == Policy::Latest {
            return;
        }
        if std::mem::replace(&mut sub.feed.begins, begins) || !begins || waiting == 0 {
            return;
        }
        s.take_out(uid);
        self.counters[core].pending -= waiting;
        self.counters[core].conflated += waiting;
        self.saw("restarted with something waiting");
    }

    /// Records that a feed's patches have changed or were used.
    pub(crate) fn account(&mut self, topic: usize) {
        let core = self.topics[topic].home.expect("a feed has one");
        self.patches[core].topics.retain(|of| *of != topic);
        if self.past_len(topic) > 0 {
            self.patches[core].topics.push_back(topic);
        }
        while self.patch_bytes(core) > self.limits.patches.bytes_max {
            self.evict(core);
        }
    }

    /// Evicts the patches of one feed.
    pub(crate) fn evict(&mut self, core: usize) -> usize {
        loop {
            let Some(topic) = self.patches[core].topics.pop_front() else { return 0 };
            let document = self.topics[topic].view.document.clone().expect("it has patches");
            let version = document.version.as_ref().expect("it has patches");
            if version.used.take() {
                self.patches[core].topics.push_back(topic);
                self.saw("used patches kept");
                continue;
            }
            let past = std::mem::take(&mut *version.past.borrow_mut());
            self.patches[core].evicted += past.len() as u64;
            self.saw("patches evicted");
            return past.iter().map(|(len, _)| len).sum();
        }
    }

    fn past_len(&self, topic: usize) -> usize {
        let document = self.topics[topic].view.document.as_ref();
        document.and_then(|d| d.version.as_ref()).map_or(0, |version| version.past.borrow().len())
    }

    fn patch_bytes(&self, core: usize) -> usize {
        let topics = self.patches[core].topics.iter();
        let documents = topics.filter_map(|topic| self.topics[*topic].view.document.as_ref());
        let versions = documents.filter_map(|document| document.version.as_ref());
        versions.map(|version| version.past.borrow().iter().map(|(len, _)| len).sum::<usize>()).sum()
    }

    /// Returns the expected statistics of a shard. Checks that the bytes of its patches are within the limit.
    pub(crate) fn feed_stats(&self, core: usize) -> FeedStats {
        let of = &self.patches[core];
        let patches = of.topics.iter().map(|topic| self.past_len(*topic)).sum();
        let patch_bytes = self.patch_bytes(core);
        assert!(patch_bytes <= self.limits.patches.bytes_max);
        FeedStats { patches, patch_bytes, patches_evicted: of.evicted, ..of.taken }
    }
}

impl ShadowSession {
    pub(crate) fn sub_of(&self, uid: u64) -> &Sub {
        self.subs.iter().find(|sub| sub.uid == uid).expect("it was subscribed")
    }

    /// Applies a delivery as the client does, using only the client's own state.
    pub(crate) fn applies(&mut self, uid: u64, place: TopicPosition, said: &Content) {
        let feed = &mut self.sub(uid).feed;
        feed.client = match said {
            Content::Document(number, _) | Content::SnapshotWithReason(number, ..) => Some((place, *number)),
            Content::Delta(base, numbers) => {
                let (has, _) = feed.client.expect("a delta needs a document");
                assert_eq!(
                    (has.incarnation, has.offset),
                    (place.incarnation, *base),
                    "a delta for another version"
                );
                assert_eq!(numbers.len() as u64, place.offset - base, "a version is missing in the delta");
                Some((place, *numbers.last().expect("at least one")))
            }
            _ => return,
        };
    }
}

/// Returns all waiting deliveries, delayed ones included.
pub(crate) fn waits(s: &ShadowSession) -> impl Iterator<Item = &Slot> {
    s.outbox.iter().chain(&s.early)
}
