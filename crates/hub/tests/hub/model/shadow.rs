//! The shadow: the hub's expected behavior, written as plainly as possible, with lists and searches in place
//! of the hub's tables and numbers. It is notified of every operation and of every message that reaches a
//! core, and states the pending deliveries of each session, the counters, and the number of topics of a core.

use super::feeds::{Feed, Form, ShadowPatches, Version, waits};
use super::recovery::ShadowLog;
use super::rig::{self, Content};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use stentor_hub::{
    Counters, Disconnect, Emit, Epoch, FeedState, FormatId, HistoryLimits, PatchLimits, Policy,
    RecoveryLimits, SessionId, SubscribeError, Topic,
};

/// A publication: its content, the length of its body, its position (incarnation of the topic, offset), and
/// its sender: the core, with its count of messages (for a document, the offset).
#[derive(Clone, Debug)]
pub(crate) struct Thing {
    pub(crate) said: Content,
    pub(crate) len: usize,
    pub(crate) place: Option<TopicPosition>,
    pub(crate) sender: (usize, u64),
    /// `true` if the publication was emitted to several rooms. It then bypasses the rooms' home cores.
    pub(crate) several: bool,
    /// `true` if resumed sessions receive the publication.
    pub(crate) recoverable: bool,
    /// The patches that lead to a document's version. `None` if there is none.
    pub(crate) version: Option<Version>,
}

impl Thing {
    /// Returns the number of a message.
    pub(crate) fn number(&self) -> Option<u64> {
        if let Content::Message(number) = self.said { Some(number) } else { None }
    }
}

/// The options of an emit, in the test's terms and as the hub's type (`emit`).
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    pub(crate) volatile: bool,
    pub(crate) sessions: Vec<(usize, SessionId)>,
    /// Excepted rooms, as topic indices. `sessions` are excepted too.
    pub(crate) rooms: Vec<usize>,
    pub(crate) emit: Emit,
}

/// Returns the size of a frame as the budget counts it.
pub(crate) fn frame_bytes(format: FormatId, said: &Content, body_len: usize) -> Option<usize> {
    rig::frame_bytes(format, said, body_len).map(|bytes| bytes.max(1))
}

/// A position in a topic: incarnation and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopicPosition {
    pub(crate) incarnation: u64,
    pub(crate) offset: u64,
}

/// The newest version of a feed, as one core knows it.
#[derive(Clone, Default)]
pub(crate) struct View {
    pub(crate) document: Option<Rc<Thing>>,
    pub(crate) state: Option<Rc<Thing>>,
}

impl View {
    fn feed_state(&self) -> FeedState {
        match (&self.state, &self.document) {
            (Some(thing), _) | (None, Some(thing)) => match thing.said {
                Content::State(state, _) | Content::Document(_, state) => state,
                Content::Message(_) | Content::Delta(..) | Content::SnapshotWithReason(..) => unreachable!(),
            },
            (None, None) => FeedState::Live,
        }
    }

    fn apply(&mut self, thing: &Rc<Thing>) {
        match thing.said {
            Content::Document(..) => *self = Self { document: Some(thing.clone()), state: None },
            Content::State(FeedState::NotFound, _) => {
                *self = Self { document: None, state: Some(thing.clone()) }
            }
            Content::State(state, _) => {
                self.state = None;
                if self.feed_state() != state {
                    self.state = Some(thing.clone());
                }
            }
            Content::Message(_) | Content::Delta(..) | Content::SnapshotWithReason(..) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.document.is_none() && self.state.is_none()
    }
}

/// A `Join` in transit, or its answer.
struct Ask {
    uid: u64,
    since: Option<TopicPosition>,
    /// The answer; `Some` once the home core has handled the request.
    answer: Option<Answer>,
}

enum Answer {
    Joined {
        /// Messages of a room; `None` for a gap.
        pending: Option<Vec<Rc<Thing>>>,
        view: View,
    },
    Refused,
}

/// A core's expected knowledge of a topic.
#[derive(Default)]
pub(crate) struct AtCore {
    pub(crate) interested: BTreeSet<usize>,
    following: Option<View>,
    asks: VecDeque<Ask>,
}

pub(crate) struct ShadowTopic {
    pub(crate) topic: Topic,
    pub(crate) home: Option<usize>,
    history: Option<HistoryLimits>,
    pub(crate) at: Vec<AtCore>,
    /// At the home core: number of the topic's incarnation.
    pub(crate) incarnation: u64,
    /// At the home core: the last offset.
    pub(crate) offset: u64,
    /// At the home core: the newest version.
    pub(crate) view: View,
    /// At the home core: the history.
    past: VecDeque<(Instant, Rc<Thing>)>,
    forgotten: bool,
    pub(crate) reported: bool,
    /// `true` if the home core has forgotten the topic since it was reported.
    pub(crate) again: bool,
    /// Epochs seen on publications, by incarnation.
    epochs: BTreeMap<u64, Epoch>,
    /// Numbers of all documents ever published, by position.
    pub(crate) versions: BTreeMap<TopicPosition, u64>,
}

impl ShadowTopic {
    pub(crate) fn new(
        topic: Topic,
        home: Option<usize>,
        cores: usize,
        history: Option<HistoryLimits>,
    ) -> Self {
        Self {
            topic,
            home,
            history,
            at: (0..cores).map(|_| AtCore::default()).collect(),
            incarnation: 1,
            offset: 0,
            view: View::default(),
            past: VecDeque::new(),
            forgotten: false,
            reported: false,
            again: false,
            epochs: BTreeMap::new(),
            versions: BTreeMap::new(),
        }
    }

    pub(crate) fn is_feed(&self) -> bool {
        matches!(self.topic, Topic::Feed(_))
    }

    /// Returns a core's knowledge of the feed: as home core, or as a follower.
    pub(crate) fn view_at(&self, core: usize) -> &View {
        if self.home == Some(core) {
            return &self.view;
        }
        self.at[core].following.as_ref().expect("it follows")
    }

    pub(crate) fn epoch_of(&self, incarnation: u64) -> Option<Epoch> {
        self.epochs.get(&incarnation).copied()
    }

    /// Records the epoch of a publication: one distinct epoch per incarnation.
    pub(crate) fn saw_epoch(&mut self, incarnation: u64, epoch: Epoch) {
        let known = *self.epochs.entry(incarnation).or_insert(epoch);
        assert_eq!(known, epoch, "two epochs in one incarnation");
        assert!(self.epochs.iter().all(|(l, e)| *l == incarnation || *e != epoch), "an epoch came twice");
    }

    fn trim(&mut self, now: Option<Instant>) {
        let limits = self.history.expect("it keeps history");
        let bytes = |past: &VecDeque<(Instant, Rc<Thing>)>| past.iter().map(|(_, t)| t.len).sum::<usize>();
        while self.past.len() > limits.publications_max || bytes(&self.past) > limits.bytes_max {
            self.past.pop_front();
        }
        if let Some(now) = now {
            self.past.retain(|(at, _)| now - *at <= limits.age_max);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    #[default]
    Pending,
    Active,
    /// Ended by the hub (not found, refused), or by leaving a room: waiting deliveries are still sent.
    Ended,
    /// Unsubscribed: no delivery may follow.
    Left,
}

#[derive(Default)]
pub(crate) struct Sub {
    pub(crate) uid: u64,
    pub(crate) topic: usize,
    pub(crate) status: Status,
    pub(crate) policy: Policy,
    /// Position in the core's log at which the subscription became active.
    pub(crate) since: u64,
    /// `true` if the topic has a home core.
    home: bool,
    /// `true` if the session subscribed again or was resumed. A document may then be delivered twice.
    pub(crate) again: bool,
    /// The position that the client named, if the hub knows that version.
    came_with: Option<TopicPosition>,
    /// Used by checks on deliveries alone: the last position, and the last number per sender.
    last: Option<TopicPosition>,
    last_of: BTreeMap<(usize, bool), u64>,
    /// `true` if positions must be consecutive: a room under `Queue` from the start, without exceptions.
    pub(crate) gapless: bool,
    pub(crate) feed: Feed,
}

impl Sub {
    /// Returns `true` if the newest version can't have been dropped for lack of space.
    pub(crate) fn has_newest(&self) -> bool {
        self.policy != Policy::DropOldest && self.status == Status::Active
    }

    /// Clears the record of the client's deliveries, because the client is sent the newest version again.
    pub(crate) fn forget_arrivals(&mut self) {
        self.last = None;
        self.last_of.clear();
    }

    /// Records that the client received this message.
    pub(crate) fn had(&mut self, thing: &Thing) {
        self.last = self.last.max(thing.place);
        self.last_of.insert((thing.sender.0, self.home && thing.several), thing.sender.1);
    }

    /// Returns the newest position that the client has.
    pub(crate) fn newest_place(&self) -> Option<TopicPosition> {
        self.last.max(self.came_with)
    }
}

/// One entry in an outbox.
pub(crate) enum Slot {
    One { uid: u64, thing: Rc<Thing>, form: Form, bytes: usize },
    Newest { uid: u64, newest: Option<Rc<Thing>>, state: Option<Rc<Thing>> },
}

impl Slot {
    pub(crate) fn uid(&self) -> u64 {
        match self {
            Self::One { uid, .. } | Self::Newest { uid, .. } => *uid,
        }
    }

    pub(crate) fn things(&self) -> Vec<Rc<Thing>> {
        match self {
            Self::One { thing, .. } => vec![thing.clone()],
            Self::Newest { newest, state, .. } => newest.iter().chain(state).cloned().collect(),
        }
    }
}

pub(crate) struct ShadowSession {
    pub(crate) core: usize,
    pub(crate) id: SessionId,
    pub(crate) format: FormatId,
    pub(crate) alive: bool,
    pub(crate) terminating: bool,
    /// `true` if `poll_ready` must return the session.
    pub(crate) ready: bool,
    pub(crate) subs: Vec<Sub>,
    /// The subscription that stands for messages to the session alone.
    pub(crate) direct: u64,
    pub(crate) outbox: Vec<Slot>,
    /// Outbox entries that are delayed.
    pub(crate) early: Vec<Slot>,
    /// Bytes of each delivery in flight, and `true` if they count towards the send buffer.
    pub(crate) in_flight: Vec<(usize, bool)>,
    /// Positions that were sent to the session, by topic, for reconnecting.
    pub(crate) places: Vec<(usize, TopicPosition)>,
    /// The position in the log at which the session was suspended; `None` if it isn't suspended.
    pub(crate) suspended_at: Option<u64>,
    /// `true` if a connection can take the session's deliveries.
    pub(crate) is_writable: bool,
    /// Notices that are deferred until the session is resumed.
    pub(crate) held: Vec<ExpectedNotice>,
    /// Position in the log from which the session's deliveries follow the log's order.
    pub(crate) ordered_since: u64,
    /// `true` if the order differed before `ordered_since`.
    pub(crate) reordered: bool,
    /// Number of the newest message that became pending after `ordered_since`.
    pub(crate) newest: Option<u64>,
    /// The messages that the client received, each with the subscription's uid.
    pub(crate) had: Vec<(u64, Rc<Thing>)>,
    /// Number of messages in `had` from before this connection.
    pub(crate) had_before: usize,
    /// The messages that the client should have received; `None` once a rule has dropped a message.
    pub(crate) ideal: Option<Vec<u64>>,
    pub(crate) recoveries: usize,
}

impl ShadowSession {
    pub(crate) fn waiting(&self) -> usize {
        self.outbox.iter().map(|slot| slot.things().len()).sum()
    }

    pub(crate) fn waiting_for(&self, uid: u64) -> usize {
        waits(self).filter(|slot| slot.uid() == uid).map(|slot| slot.things().len()).sum()
    }

    pub(crate) fn queue_bytes(&self) -> usize {
        let waiting = self.outbox.iter().map(|slot| match slot {
            Slot::One { bytes, .. } => *bytes,
            Slot::Newest { .. } => 0,
        });
        let in_flight = self.in_flight.iter().map(|(bytes, counted)| if *counted { *bytes } else { 0 });
        waiting.chain(in_flight).sum()
    }

    /// Removes a subscription's waiting deliveries from the outbox. Returns their number.
    pub(crate) fn take_out(&mut self, uid: u64) -> u64 {
        let waiting = self.waiting_for(uid) as u64;
        self.outbox.retain(|slot| slot.uid() != uid);
        self.early.retain(|slot| slot.uid() != uid);
        waiting
    }

    /// Returns the active subscription to a topic.
    fn live_uid(&self, topic: usize) -> Option<u64> {
        self.live_subs().find(|sub| sub.topic == topic).map(|sub| sub.uid)
    }

    fn counted(&self) -> usize {
        let waiting = self.outbox.iter().filter(|slot| matches!(slot, Slot::One { .. })).count();
        waiting + self.in_flight.iter().filter(|(_, counted)| *counted).count()
    }

    /// Returns the bytes that closing the session for lack of memory frees.
    pub(crate) fn held(&self) -> usize {
        let latest = self.in_flight.iter().map(|(bytes, counted)| if *counted { 0 } else { *bytes });
        self.queue_bytes() + latest.sum::<usize>()
    }

    pub(crate) fn live_subs(&self) -> impl Iterator<Item = &Sub> {
        self.subs.iter().filter(|s| matches!(s.status, Status::Pending | Status::Active))
    }

    pub(crate) fn sub(&mut self, uid: u64) -> &mut Sub {
        self.subs.iter_mut().find(|s| s.uid == uid).expect("it was subscribed")
    }

    fn slots_in_use(&self) -> usize {
        self.subs
            .iter()
            .filter(|s| s.uid != self.direct)
            .filter(|s| match s.status {
                Status::Pending | Status::Active => true,
                Status::Ended => self.waiting_for(s.uid) > 0,
                Status::Left => false,
            })
            .count()
    }
}

/// An expected notice to a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExpectedNotice {
    Lost(usize, usize),
    Gap(usize, usize),
    Refused(usize, usize),
}

impl ExpectedNotice {
    /// Returns the session of the notice.
    pub(crate) fn session(&self) -> usize {
        match self {
            Self::Lost(session, _) | Self::Gap(session, _) | Self::Refused(session, _) => *session,
        }
    }
}

pub(crate) struct Limits {
    pub(crate) send_buffer_bytes_max: usize,
    pub(crate) subscriptions_max: usize,
    pub(crate) topics_max: usize,
    pub(crate) recovery: Option<RecoveryLimits>,
    pub(crate) patches: PatchLimits,
}

/// A publication in transit between cores.
pub(crate) struct Sending {
    pub(crate) topics: Vec<usize>,
    pub(crate) thing: Rc<Thing>,
    pub(crate) how: How,
}

pub(crate) struct Shadow {
    pub(crate) limits: Limits,
    pub(crate) cores: usize,
    pub(crate) topics: Vec<ShadowTopic>,
    pub(crate) sessions: Vec<ShadowSession>,
    pub(crate) counters: Vec<Counters>,
    /// Publications that must be in transit, by `[from][to]`. `submitted` has the messages in transit to home
    /// cores.
    pub(crate) spreading: Vec<Vec<VecDeque<Sending>>>,
    pub(crate) submitted: Vec<Vec<VecDeque<Sending>>>,
    /// Expected results of `poll_notice` and `poll_terminating`, by core.
    pub(crate) told: Vec<Vec<ExpectedNotice>>,
    pub(crate) terminating: Vec<Vec<(usize, Disconnect)>>,
    /// The recent deliveries of each core.
    pub(crate) logs: Vec<ShadowLog>,
    /// The patches that each core keeps. `clocks` has the time of each core's turn.
    pub(crate) patches: Vec<ShadowPatches>,
    pub(crate) clocks: Vec<Option<Instant>>,
    uids: u64,
    /// Number of messages that each core has published.
    sent: Vec<u64>,
    /// Number of times that each interesting situation occurred.
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl Shadow {
    pub(crate) fn new(limits: Limits, cores: usize, topics: Vec<ShadowTopic>) -> Self {
        let wires = || (0..cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect();
        Self {
            limits,
            cores,
            topics,
            sessions: Vec::new(),
            counters: vec![Counters::default(); cores],
            spreading: wires(),
            submitted: wires(),
            told: vec![Vec::new(); cores],
            terminating: vec![Vec::new(); cores],
            logs: (0..cores).map(|_| ShadowLog::default()).collect(),
            patches: (0..cores).map(|_| ShadowPatches::default()).collect(),
            clocks: vec![None; cores],
            uids: 0,
            sent: vec![0; cores],
            seen: BTreeMap::new(),
        }
    }

    pub(crate) fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    // Knowledge of cores

    fn members(&self, topic: usize, core: usize) -> Vec<(usize, u64)> {
        let here = self.sessions.iter().enumerate().filter(|(_, s)| s.alive && s.core == core);
        here.flat_map(|(n, s)| s.subs.iter().map(move |sub| (n, sub)))
            .filter(|(_, sub)| sub.topic == topic && sub.status == Status::Active)
            .map(|(n, sub)| (n, sub.uid))
            .collect()
    }

    pub(crate) fn has_members(&self, topic: usize, core: usize) -> bool {
        !self.members(topic, core).is_empty()
    }

    pub(crate) fn exists(&self, topic: usize, core: usize) -> bool {
        let t = &self.topics[topic];
        let at = &t.at[core];
        let known = t.home == Some(core) && (!t.view.is_empty() || !t.past.is_empty() || t.reported);
        known || !at.asks.is_empty() || !at.interested.is_empty() || self.has_members(topic, core)
    }

    pub(crate) fn topics_at(&self, core: usize) -> usize {
        (0..self.topics.len()).filter(|topic| self.exists(*topic, core)).count()
    }

    fn may_exist(&self, topic: usize, core: usize) -> bool {
        self.exists(topic, core) || self.topics_at(core) < self.limits.topics_max
    }

    pub(crate) fn wanted(&self, topic: usize) -> bool {
        let home = self.topics[topic].home.expect("a feed has a home");
        self.has_members(topic, home) || !self.topics[topic].at[home].interested.is_empty()
    }

    /// Releases unused state, after every operation: a core without members stops following, and a topic
    /// without users ends its incarnation.
    pub(crate) fn release_unused(&mut self) {
        for topic in 0..self.topics.len() {
            for core in 0..self.cores {
                let empty = !self.has_members(topic, core) && self.topics[topic].at[core].asks.is_empty();
                if self.topics[topic].home == Some(core) {
                    let nobody = !self.has_members(topic, core);
                    let t = &mut self.topics[topic];
                    if t.forgotten && nobody && t.at[core].interested.is_empty() {
                        t.view = View::default();
                        t.again = t.reported;
                        self.account(topic);
                    }
                    if !self.exists(topic, core) {
                        let t = &mut self.topics[topic];
                        if t.offset > 0 {
                            t.incarnation += 1;
                        }
                        t.offset = 0;
                        t.forgotten = false;
                    }
                } else if empty {
                    self.topics[topic].at[core].following = None;
                }
            }
        }
    }

    // Sessions

    pub(crate) fn open(&mut self, core: usize, id: SessionId, format: FormatId) {
        self.uids += 1;
        let direct = Sub { uid: self.uids, topic: usize::MAX, status: Status::Ended, ..Sub::default() };
        self.sessions.push(ShadowSession {
            direct: direct.uid,
            core,
            id,
            format,
            alive: true,
            terminating: false,
            ready: false,
            subs: vec![direct],
            outbox: Vec::new(),
            early: Vec::new(),
            in_flight: Vec::new(),
            places: Vec::new(),
            suspended_at: None,
            is_writable: true,
            held: Vec::new(),
            ordered_since: self.logs[core].next,
            reordered: false,
            newest: None,
            had: Vec::new(),
            had_before: 0,
            ideal: Some(Vec::new()),
            recoveries: 0,
        });
    }

    pub(crate) fn close(&mut self, session: usize) {
        self.drop_pending(session);
        let s = &mut self.sessions[session];
        s.alive = false;
        s.suspended_at = None;
        s.held.clear();
        for sub in &mut s.subs {
            sub.status = Status::Left;
        }
    }

    /// Ends a connection: drops its deliveries, waiting and in flight.
    pub(crate) fn drop_pending(&mut self, session: usize) {
        let s = &mut self.sessions[session];
        let pending = (waits(s).map(|slot| slot.things().len()).sum::<usize>() + s.in_flight.len()) as u64;
        let counters = &mut self.counters[s.core];
        counters.pending -= pending;
        counters.dropped_on_disconnect += pending;
        s.outbox.clear();
        s.early.clear();
        s.in_flight.clear();
    }

    pub(crate) fn subscribe(
        &mut self,
        session: usize,
        topic: usize,
        options: SubscribeOptions,
        since: Option<TopicPosition>,
    ) -> Result<(), SubscribeError> {
        let core = self.sessions[session].core;
        let known = self.sessions[session].live_subs().find(|s| s.topic == topic);
        let policy = options.policy;
        let is_feed = self.topics[topic].is_feed();
        let rated = is_feed && policy == Policy::Latest;
        let interval = if rated { options.interval } else { Duration::ZERO };
        if let Some((uid, status)) = known.map(|s| (s.uid, s.status)) {
            if !is_feed {
                self.set_policy(session, uid, policy);
                return Ok(());
            }
            let lost = self.set_options(session, uid, policy, !options.deltas);
            self.set_rate(session, uid, interval);
            if status == Status::Active {
                let view = self.topics[topic].view_at(core).clone();
                let s = &mut self.sessions[session];
                let waiting = s.waiting_for(uid);
                let sub = s.sub(uid);
                let has = sub.feed.has;
                if self.base(&view, since).is_none() {
                    self.sessions[session].sub(uid).again = true;
                    self.deliver_feed(session, uid, &view, None, since.is_some());
                } else if lost || (waiting == 0 && view.document.as_ref().is_some_and(|d| d.place != has)) {
                    // Under `DropOldest` the client's version is unknown.
                    self.sessions[session].sub(uid).again |= has.is_none();
                    let resumes = self.sessions[session].sub(uid).feed.resumes;
                    self.deliver_feed(session, uid, &view, has, resumes);
                }
            }
            return Ok(());
        }
        if self.sessions[session].slots_in_use() >= self.limits.subscriptions_max {
            self.saw("too many subscriptions");
            return Err(SubscribeError::TooManySubscriptions);
        }
        if !self.may_exist(topic, core) {
            self.saw("too many topics");
            return Err(SubscribeError::TooManyTopics);
        }
        self.uids += 1;
        let uid = self.uids;
        let t = &mut self.topics[topic];
        let follower = t.home.is_some_and(|home| home != core);
        let following = t.at[core].following.as_ref();
        // The home core is notified of every requester of a feed without a state.
        let is_cold = t.is_feed() && following.is_some_and(|v| v.document.is_none() && v.state.is_none());
        let ask = follower && (following.is_none() || is_cold || (since.is_some() && !t.is_feed()));
        let gapless = t.history.is_some() && policy == Policy::Queue;
        self.sessions[session].subs.push(Sub {
            uid,
            topic,
            status: if ask { Status::Pending } else { Status::Active },
            policy,
            since: self.logs[core].next,
            home: t.home.is_some(),
            gapless,
            feed: Feed { whole: !options.deltas, interval, ..Feed::default() },
            ..Sub::default()
        });
        if ask {
            t.at[core].asks.push_back(Ask { uid, since, answer: None });
        } else if is_feed {
            self.comes_to_feed(session, uid, since);
        } else {
            self.replay(session, uid, self.pending_here(topic, core, since));
        }
        Ok(())
    }

    /// Removes a session from a room. Waiting deliveries are still sent.
    pub(crate) fn leave(&mut self, session: usize, topic: usize) -> bool {
        if self.topics[topic].is_feed() {
            return self.unsubscribe(session, topic);
        }
        let s = &mut self.sessions[session];
        let Some(uid) = s.live_uid(topic) else { return false };
        s.sub(uid).status = Status::Ended;
        s.ideal = None;
        if s.waiting_for(uid) > 0 {
            self.saw("left with something waiting");
        }
        true
    }

    pub(crate) fn unsubscribe(&mut self, session: usize, topic: usize) -> bool {
        let s = &mut self.sessions[session];
        let Some(uid) = s.live_uid(topic) else { return false };
        let taken_back = s.take_out(uid);
        s.sub(uid).status = Status::Left;
        s.ideal = None;
        self.counters[s.core].pending -= taken_back;
        self.counters[s.core].dropped_on_disconnect += taken_back;
        if taken_back > 0 {
            self.saw("dropped when unsubscribed");
        }
        true
    }

    /// Enqueues the versions that the client of a new subscription doesn't have.
    fn comes_to_feed(&mut self, session: usize, uid: u64, since: Option<TopicPosition>) {
        let s = &mut self.sessions[session];
        let core = s.core;
        let topic = s.sub(uid).topic;
        let view = self.topics[topic].view_at(core).clone();
        let has = self.base(&view, since);
        if let Some(place) = has {
            let number = self.topics[topic].versions[&place];
            let sub = self.sessions[session].sub(uid);
            sub.feed.client = Some((place, number));
            sub.came_with = Some(place);
            let newest = view.document.as_ref().is_some_and(|d| d.place == has);
            self.saw(if newest { "has it already" } else { "client has an older version" });
        }
        self.deliver_feed(session, uid, &view, has, since.is_some());
    }

    /// Changes a feed's subscription. Returns `true` if a waiting version was dropped.
    fn set_options(&mut self, session: usize, uid: u64, policy: Policy, whole: bool) -> bool {
        let s = &mut self.sessions[session];
        let core = s.core;
        let waiting = s.waiting_for(uid) as u64;
        let sub = s.sub(uid);
        sub.feed.whole = whole;
        let old = std::mem::replace(&mut sub.policy, policy);
        let begins = sub.feed.begins;
        sub.feed.begins &= policy != Policy::Latest;
        if old == policy || waiting == 0 {
            return false;
        }
        if old != Policy::Latest && !begins {
            sub.feed.has = None;
            sub.again = true;
        }
        s.take_out(uid);
        self.counters[core].pending -= waiting;
        self.counters[core].conflated += waiting;
        self.saw("policy of a feed changed with something waiting");
        true
    }

    fn set_policy(&mut self, session: usize, uid: u64, policy: Policy) {
        let s = &mut self.sessions[session];
        let core = s.core;
        let old = std::mem::replace(&mut s.sub(uid).policy, policy);
        s.sub(uid).gapless &= policy == Policy::Queue;
        if old == policy || (old != Policy::Latest && policy != Policy::Latest) {
            return;
        }
        let mut keep: Vec<Rc<Thing>> = Vec::new();
        let waiting: Vec<Rc<Thing>> =
            s.outbox.iter().filter(|slot| slot.uid() == uid).flat_map(Slot::things).collect();
        s.outbox.retain(|slot| slot.uid() != uid);
        for thing in &waiting {
            keep.retain(|kept| thing.said.is_state() && !kept.said.is_state());
            keep.push(thing.clone());
        }
        self.counters[core].pending -= waiting.len() as u64;
        self.counters[core].conflated += (waiting.len() - keep.len()) as u64;
        if waiting.iter().any(|thing| thing.recoverable) {
            self.reorder(session);
        }
        if !waiting.is_empty() {
            self.saw("policy changed with something waiting");
        }
        for thing in keep {
            self.enqueue(session, uid, &thing, Form::whole(&thing));
        }
    }

    // Pending deliveries

    /// Returns the messages for a session that joins a room on a core that knows the room.
    pub(crate) fn pending_here(
        &self,
        topic: usize,
        core: usize,
        since: Option<TopicPosition>,
    ) -> Option<Vec<Rc<Thing>>> {
        let t = &self.topics[topic];
        let Some(since) = since.filter(|_| t.home.is_some()) else { return Some(Vec::new()) };
        assert_eq!(t.home, Some(core), "only home knows the past");
        if since.incarnation != t.incarnation || since.offset > t.offset {
            return None;
        }
        let after: Vec<Rc<Thing>> = t.past.iter().map(|(_, thing)| thing.clone()).collect();
        let after: Vec<Rc<Thing>> =
            after.into_iter().filter(|thing| thing.place.is_some_and(|p| p.offset > since.offset)).collect();
        (after.len() as u64 == t.offset - since.offset).then_some(after)
    }

    pub(crate) fn replay(&mut self, session: usize, uid: u64, pending: Option<Vec<Rc<Thing>>>) {
        let s = &mut self.sessions[session];
        let (core, format) = (s.core, s.format);
        let sub = s.sub(uid);
        let (topic, policy) = (sub.topic, sub.policy);
        let bytes = |pending: &[Rc<Thing>]| -> usize {
            pending.iter().filter_map(|thing| frame_bytes(format, &thing.said, thing.len)).sum()
        };
        let queued = s.queue_bytes();
        let fits = |pending: &Vec<Rc<Thing>>| {
            policy != Policy::Queue
                || pending.is_empty()
                || queued + bytes(pending) <= self.limits.send_buffer_bytes_max
                || (queued == 0 && pending.len() == 1)
        };
        let Some(pending) = pending.filter(fits) else {
            self.told[core].push(ExpectedNotice::Gap(session, topic));
            self.sessions[session].ideal = None;
            self.saw("gap");
            return;
        };
        let reorders = !pending.is_empty();
        if reorders {
            self.saw("replayed");
            if let Some(first) = pending[0].place {
                let before = TopicPosition { incarnation: first.incarnation, offset: first.offset - 1 };
                self.sessions[session].sub(uid).last = Some(before);
            }
        }
        for thing in pending {
            self.deliver_to(session, uid, &thing, false);
        }
        if reorders {
            self.reorder(session);
        }
    }

    pub(crate) fn deliver_to(&mut self, session: usize, uid: u64, thing: &Rc<Thing>, volatile: bool) {
        if matches!(thing.said, Content::Document(..)) {
            return self.enqueue_document(session, uid, thing);
        }
        let s = &self.sessions[session];
        if s.terminating
            || s.suspended_at.is_some()
            || frame_bytes(s.format, &thing.said, thing.len).is_none()
        {
            return;
        }
        let counters = &mut self.counters[s.core];
        counters.due += 1;
        let is_writable = s.is_writable;
        if volatile && (!is_writable || s.waiting() > 0 || !s.in_flight.is_empty()) {
            counters.dropped += 1;
            self.saw(if is_writable { "volatile left out" } else { "volatile not writable" });
            return;
        }
        if thing.recoverable {
            self.sessions[session].newest = thing.number();
        }
        self.enqueue(session, uid, thing, Form::whole(thing));
    }

    pub(crate) fn enqueue(&mut self, session: usize, uid: u64, thing: &Rc<Thing>, form: Form) {
        let too_soon = self.too_soon(session, uid);
        let s = &mut self.sessions[session];
        let (core, format) = (s.core, s.format);
        let counters = &mut self.counters[core];
        if s.terminating {
            counters.dropped_on_disconnect += 1;
            return;
        }
        let policy = s.sub(uid).policy_now();
        if policy == Policy::Latest {
            if !waits(s).any(|slot| slot.uid() == uid) {
                let places = if too_soon { &mut s.early } else { &mut s.outbox };
                places.push(Slot::Newest { uid, newest: None, state: None });
                if too_soon {
                    *self.seen.entry("held").or_default() += 1;
                }
            }
            let before = s.waiting_for(uid) as u64;
            let mut reorders = false;
            let place = s.outbox.iter_mut().chain(&mut s.early).find(|slot| slot.uid() == uid);
            if let Some(Slot::Newest { newest, state, .. }) = place {
                reorders = newest.is_some() && thing.recoverable;
                if thing.said.is_state() {
                    *state = Some(thing.clone());
                } else {
                    (*newest, *state) = (Some(thing.clone()), None);
                }
            }
            let after = s.waiting_for(uid) as u64;
            counters.pending = counters.pending + after - before;
            counters.conflated += before + 1 - after;
            s.ready |= s.outbox.iter().any(|slot| slot.uid() == uid);
            if before + 1 > after {
                self.saw("conflated");
            }
            if reorders {
                self.reorder(session);
                self.saw("messages conflated");
            }
            return;
        }
        let bytes = form.bytes(format).expect("it was due");
        while s.queue_bytes() > 0 && s.queue_bytes() + bytes > self.limits.send_buffer_bytes_max {
            let droppable = |slot: &Slot| {
                let uid = slot.uid();
                matches!(slot, Slot::One { .. })
                    && s.subs.iter().any(|s| s.uid == uid && s.policy == Policy::DropOldest)
            };
            if let Some(oldest) = s.outbox.iter().position(droppable) {
                let dropped = s.outbox.remove(oldest).uid();
                s.sub(dropped).gapless = false;
                s.ideal = None;
                counters.pending -= 1;
                counters.dropped += 1;
                *self.seen.entry("oldest dropped").or_default() += 1;
            } else if policy == Policy::DropOldest {
                counters.dropped += 1;
                s.ideal = None;
                self.saw("newest dropped");
                return;
            } else {
                counters.dropped_on_disconnect += 1;
                s.terminating = true;
                self.terminating[core].push((session, Disconnect::SlowConsumer));
                self.saw("slow consumer");
                return;
            }
        }
        s.outbox.push(Slot::One { uid, thing: thing.clone(), form, bytes });
        s.ready = true;
        counters.pending += 1;
        // Invariant of the budget: only a single counted delivery may exceed it.
        assert!(s.queue_bytes() <= self.limits.send_buffer_bytes_max || s.counted() == 1);
    }

    /// Returns the expected result of `take`.
    pub(crate) fn take(
        &mut self,
        session: usize,
        bytes_max: usize,
        frames_max: usize,
    ) -> Vec<(Rc<Thing>, Content)> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(slot) = self.sessions[session].outbox.first() {
            let thing = slot.things()[0].clone();
            let (uid, is_counted) = (slot.uid(), matches!(slot, Slot::One { .. }));
            let form = match slot {
                Slot::One { form, .. } => form.clone(),
                Slot::Newest { newest: Some(_), .. } if matches!(thing.said, Content::Document(..)) => {
                    self.form_for(session, uid, &thing)
                }
                Slot::Newest { .. } => Form::whole(&thing),
            };
            let s = &mut self.sessions[session];
            let frame = form.bytes(s.format).expect("it was due").max(1);
            if !taken.is_empty() && (taken.len() >= frames_max || bytes + frame > bytes_max) {
                break;
            }
            bytes += frame;
            s.in_flight.push((frame, is_counted));
            match s.outbox.first_mut() {
                Some(Slot::Newest { newest, state, .. }) if newest.is_some() && state.is_some() => {
                    *newest = None
                }
                _ => {
                    s.outbox.remove(0);
                }
            }
            s.arrives(uid, &thing, &form.said);
            self.took(session, uid, &thing, &form, !is_counted);
            taken.push((thing, form.said));
        }
        taken
    }

    pub(crate) fn sent(&mut self, session: usize) {
        let s = &mut self.sessions[session];
        let in_flight = std::mem::take(&mut s.in_flight).len() as u64;
        self.counters[s.core].pending -= in_flight;
        self.counters[s.core].sent += in_flight;
    }

    // Operations on topics

    /// Publishes to a room from `core`.
    pub(crate) fn publish(
        &mut self,
        now: Instant,
        core: usize,
        topic: usize,
        number: u64,
        len: usize,
        how: How,
    ) {
        let thing = self.message(core, number, len, &how, false);
        match self.topics[topic].home {
            Some(home) if home != core => {
                let thing = Rc::new(thing);
                self.submitted[core][home].push_back(Sending { topics: vec![topic], thing, how });
            }
            Some(_) => self.publish_at_home(now, topic, thing, how),
            None => self.broadcast(now, core, topic, &Rc::new(thing), how),
        }
    }

    pub(crate) fn message(
        &mut self,
        core: usize,
        number: u64,
        len: usize,
        how: &How,
        several: bool,
    ) -> Thing {
        self.sent[core] += 1;
        Thing {
            said: Content::Message(number),
            len,
            place: None,
            sender: (core, self.sent[core]),
            several,
            recoverable: self.limits.recovery.is_some() && !how.volatile,
            version: None,
        }
    }

    /// Emits to several rooms from `core`.
    pub(crate) fn emit(
        &mut self,
        now: Instant,
        core: usize,
        topics: &[usize],
        number: u64,
        len: usize,
        how: How,
    ) {
        if let [topic] = topics {
            return self.publish(now, core, *topic, number, len, how);
        }
        let thing = Rc::new(self.message(core, number, len, &how, true));
        let all = topics.iter().any(|topic| self.topics[*topic].home.is_some());
        for to in (0..self.cores).filter(|to| *to != core) {
            let interested = topics.iter().any(|topic| self.topics[*topic].at[core].interested.contains(&to));
            if all || interested {
                let (topics, thing, how) = (topics.to_vec(), thing.clone(), how.clone());
                self.spreading[core][to].push_back(Sending { topics, thing, how });
            }
        }
        self.deliver(now, core, topics, &thing, &how);
    }

    pub(crate) fn publish_at_home(&mut self, now: Instant, topic: usize, mut thing: Thing, how: How) {
        let home = self.topics[topic].home.expect("it has one");
        if !self.may_exist(topic, home) {
            self.saw("history refused");
            return;
        }
        let t = &mut self.topics[topic];
        if !how.volatile {
            t.offset += 1;
            thing.place = Some(TopicPosition { incarnation: t.incarnation, offset: t.offset });
        }
        let thing = Rc::new(thing);
        if !how.volatile {
            t.past.push_back((now, thing.clone()));
            t.trim(Some(now));
        }
        self.broadcast(now, home, topic, &thing, how);
    }

    fn broadcast(&mut self, now: Instant, core: usize, topic: usize, thing: &Rc<Thing>, how: How) {
        for to in self.topics[topic].at[core].interested.clone() {
            let (topics, thing, how) = (vec![topic], thing.clone(), how.clone());
            self.spreading[core][to].push_back(Sending { topics, thing, how });
        }
        self.deliver(now, core, &[topic], thing, &how);
    }

    fn deliver(&mut self, now: Instant, core: usize, topics: &[usize], thing: &Rc<Thing>, how: &How) {
        self.log(now, core, topics, thing, how);
        let in_room = |room: &usize| self.members(*room, core).into_iter().map(|(session, _)| session);
        let excepted: BTreeSet<usize> = how.rooms.iter().flat_map(in_room).collect();
        let mut seen = BTreeSet::new();
        let members: Vec<_> = topics.iter().flat_map(|topic| self.members(*topic, core)).collect();
        for (session, uid) in members {
            if !seen.insert(session) {
                self.saw("member of several rooms");
                continue;
            }
            let topic = self.sessions[session].sub(uid).topic;
            if how.sessions.contains(&(core, self.sessions[session].id)) {
                self.sessions[session].sub(uid).gapless = false;
                self.saw("excepted");
            } else if excepted.contains(&session) {
                self.sessions[session].sub(uid).gapless = false;
                self.saw("excepted for its room");
            } else {
                if let (true, Some(ideal)) = (thing.recoverable, &mut self.sessions[session].ideal) {
                    ideal.extend(thing.number());
                }
                self.deliver_to(session, uid, thing, how.volatile);
            }
            if thing.said.is_lost() {
                self.sessions[session].sub(uid).status = Status::Ended;
                self.told[core].push(ExpectedNotice::Lost(session, topic));
                self.saw("lost");
            }
        }
    }

    /// Delivers a publication that reaches another core.
    pub(crate) fn arrives(&mut self, now: Instant, core: usize, sending: &Sending) {
        let t = &mut self.topics[sending.topics[0]];
        if t.home.is_some() && sending.topics.len() == 1 {
            let Some(view) = &mut t.at[core].following else {
                self.saw("arrived after the leave");
                return;
            };
            view.apply(&sending.thing);
        }
        self.deliver(now, core, &sending.topics, &sending.thing, &sending.how);
    }

    /// Handles a `Join` at the home core.
    pub(crate) fn join(&mut self, topic: usize, from: usize, session: SessionId) {
        let home = self.topics[topic].home.expect("it has one");
        let refused = !self.may_exist(topic, home);
        let ask = self.topics[topic].at[from].asks.iter().find(|a| a.answer.is_none()).expect("it was sent");
        let (uid, since) = (ask.uid, ask.since);
        let (_, asker) = self.sub_by_uid(uid);
        assert_eq!(self.sessions[asker].id, session, "questions come in order");
        let answer = if refused {
            Answer::Refused
        } else {
            let is_feed = self.topics[topic].is_feed();
            let pending = if is_feed { None } else { self.pending_here(topic, home, since) };
            self.topics[topic].at[home].interested.insert(from);
            let view = self.topics[topic].view.clone();
            Answer::Joined { pending, view }
        };
        let asks = &mut self.topics[topic].at[from].asks;
        asks.iter_mut().find(|a| a.uid == uid).expect("found above").answer = Some(answer);
    }

    /// Delivers the answer to a `Join` to the requesting core.
    pub(crate) fn answered(&mut self, topic: usize, core: usize, session: SessionId, refused: bool) {
        let at = &mut self.topics[topic].at[core];
        let ask = at.asks.pop_front().expect("an answer has a question");
        let answer = ask.answer.expect("home has seen it");
        assert_eq!(matches!(answer, Answer::Refused), refused);
        let (status, asker) = self.sub_by_uid(ask.uid);
        assert_eq!(self.sessions[asker].id, session, "answers come in order");
        match answer {
            Answer::Joined { pending, view } => {
                let at = &mut self.topics[topic].at[core];
                at.following.get_or_insert(view);
                if status == Status::Pending {
                    let since = self.logs[core].next;
                    let sub = self.sessions[asker].sub(ask.uid);
                    (sub.status, sub.since) = (Status::Active, since);
                    if self.topics[topic].is_feed() {
                        self.comes_to_feed(asker, ask.uid, ask.since);
                    } else {
                        self.replay(asker, ask.uid, pending);
                    }
                } else {
                    self.saw("answered too late");
                }
            }
            Answer::Refused => {
                if status == Status::Pending {
                    self.sessions[asker].sub(ask.uid).status = Status::Ended;
                    self.told[core].push(ExpectedNotice::Refused(asker, topic));
                    self.saw("refused by the home core");
                }
            }
        }
    }

    /// Handles a core's notice that it has members in a plain room (`wanted`) or none. Returns `false` if the
    /// receiver can't record it.
    pub(crate) fn interest(&mut self, topic: usize, from: usize, at: usize, wanted: bool) -> bool {
        if wanted && !self.may_exist(topic, at) {
            return false;
        }
        let interested = &mut self.topics[topic].at[at].interested;
        if wanted {
            // The sender may be recorded already: after a refusal it sends its notice again.
            interested.insert(from);
        } else {
            interested.remove(&from);
        }
        true
    }

    /// Ends the subscriptions to a plain room on this core, because another core can't record them.
    pub(crate) fn interest_refused(&mut self, topic: usize, core: usize) {
        for (session, uid) in self.members(topic, core) {
            self.sessions[session].sub(uid).status = Status::Ended;
            self.sessions[session].ideal = None;
            self.told[core].push(ExpectedNotice::Refused(session, topic));
            self.saw("refused by another core");
        }
    }

    /// Handles a feed's new version, optionally with a patch of this length from the previous one.
    pub(crate) fn document(
        &mut self,
        now: Instant,
        topic: usize,
        state: FeedState,
        (number, len): (u64, usize),
        patch: Option<usize>,
    ) {
        let home = self.topics[topic].home.expect("it has one");
        if !self.may_exist(topic, home) {
            return;
        }
        let t = &mut self.topics[topic];
        let same = |d: &Rc<Thing>| matches!(d.said, Content::Document(n, _) if n == number) && d.len == len;
        if t.view.document.as_ref().is_some_and(same) {
            self.saw("same document");
            self.state(now, topic, state, "");
            return;
        }
        t.forgotten = false;
        t.offset += 1;
        let place = Some(TopicPosition { incarnation: t.incarnation, offset: t.offset });
        let said = Content::Document(number, state);
        let sender = (home, t.offset);
        let before = t.view.document.as_deref();
        let patch = patch.filter(|_| before.is_some() && state == FeedState::Live);
        let version = patch.map(|patch| Version::new(before, (patch, number), self.limits.patches, len));
        let thing = Rc::new(Thing { said, len, place, sender, several: false, recoverable: false, version });
        t.view.apply(&thing);
        t.versions.extend(place.map(|place| (place, number)));
        self.broadcast(now, home, topic, &thing, How::default());
        self.account(topic);
    }

    pub(crate) fn state(&mut self, now: Instant, topic: usize, state: FeedState, reason: &str) {
        let home = self.topics[topic].home.expect("it has one");
        if !self.may_exist(topic, home) {
            return;
        }
        let t = &mut self.topics[topic];
        t.forgotten = false;
        let news = match t.view.state.as_ref().map(|s| &s.said) {
            Some(Content::State(known, last)) => *known != state || (last != reason && !reason.is_empty()),
            _ => t.view.feed_state() != state || (state != FeedState::Live && !reason.is_empty()),
        };
        if !news {
            self.saw("unchanged state");
            return;
        }
        let said = Content::State(state, reason.to_owned());
        let (len, sender) = (reason.len(), (home, 0));
        let (several, recoverable, version) = (false, false, None);
        let thing = Rc::new(Thing { said, len, place: None, sender, several, recoverable, version });
        t.view.apply(&thing);
        let lost = thing.said.is_lost();
        self.broadcast(now, home, topic, &thing, How::default());
        if lost {
            self.account(topic);
        }
    }

    pub(crate) fn forget(&mut self, topic: usize) {
        let home = self.topics[topic].home.expect("it has one");
        if self.exists(topic, home) {
            self.topics[topic].forgotten = true;
            if self.wanted(topic) {
                self.saw("forgotten while wanted");
            }
        }
    }

    /// Records a report about a key to the control plane.
    pub(crate) fn reported(&mut self, topic: usize, wanted: bool) {
        let again = std::mem::take(&mut self.topics[topic].again);
        assert!(self.topics[topic].reported != wanted || again, "reported without a change");
        if wanted && again {
            self.saw("wanted again after it was forgotten");
        }
        assert_eq!(self.wanted(topic), wanted, "reported what isn't so");
        self.topics[topic].reported = wanted;
    }

    pub(crate) fn tick(&mut self, now: Instant, core: usize) {
        for t in self.topics.iter_mut().filter(|t| t.home == Some(core) && t.history.is_some()) {
            t.trim(Some(now));
        }
        if let Some(limits) = self.limits.recovery {
            self.logs[core].expire(now, limits);
        }
    }

    /// Evicts the log, then history, as `handle_overload` must. Returns the freed bytes.
    pub(crate) fn overload(&mut self, core: usize, excess: usize) -> usize {
        let mut freed = 0;
        while freed < excess {
            let Some(bytes) = self.logs[core].evict() else { break };
            freed += bytes;
            self.saw("log evicted by overload");
        }
        while freed < excess {
            match self.evict(core) {
                0 => break,
                bytes => freed += bytes,
            }
        }
        while freed < excess {
            let kept = self.topics.iter_mut().filter(|t| t.home == Some(core) && !t.past.is_empty());
            let Some(stalest) = kept.min_by_key(|t| t.past.back().map(|(at, _)| *at)) else { break };
            while freed < excess && !stalest.past.is_empty() {
                freed += stalest.past.pop_front().map_or(0, |(_, thing)| thing.len);
            }
        }
        freed
    }

    fn sub_by_uid(&self, uid: u64) -> (Status, usize) {
        let found = self
            .sessions
            .iter()
            .enumerate()
            .find_map(|(n, s)| s.subs.iter().find(|sub| sub.uid == uid).map(|sub| (sub.status, n)));
        found.expect("it was subscribed")
    }
}

impl ShadowSession {
    /// Checks a delivery alone, independent of the rest of the shadow.
    fn arrives(&mut self, uid: u64, thing: &Rc<Thing>, said: &Content) {
        if let Some(place) = thing.place {
            self.applies(uid, place, said);
        }
        let sub = self.subs.iter_mut().find(|s| s.uid == uid).expect("it was subscribed");
        assert_ne!(sub.status, Status::Left, "something arrived after the answer to unsubscribe");
        if let Some(place) = thing.place {
            if let Some(last) = sub.last {
                assert!(place > last || (sub.again && place == last), "{place:?} came after {last:?}");
                if sub.gapless && !sub.again {
                    let next = TopicPosition { incarnation: last.incarnation, offset: last.offset + 1 };
                    assert_eq!(place, next, "something is missing");
                }
            }
            sub.last = Some(place);
            self.places.push((sub.topic, place));
        }
        if matches!(thing.said, Content::Message(_)) {
            let (sender, number) = thing.sender;
            let last = sub.last_of.insert((sender, sub.home && thing.several), number).unwrap_or(0);
            assert!(number > last, "publication {number} of core {sender} came after {last}");
            self.had.push((uid, thing.clone()));
        }
    }
}

/// The options of a subscription, as the hub's type.
pub(crate) use stentor_hub::SubscribeOptions;

/// A duration that exceeds the maximum age of every history.
pub(crate) const AGES: Duration = Duration::from_secs(3600);
