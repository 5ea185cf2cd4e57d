//! One core's part of the hub: its sessions, the topics they are subscribed to, and for topics whose home
//! it is, their order and their past.
//!
//! # How a publication travels
//!
//! A *feed*, and a room with configured history, has a **home core**, found by hashing the topic. All its
//! publications go there first, get offset and epoch, and leave in one order for all:
//!
//! ```text
//! control ──► home core ──┬──► its own members
//!                         └──► each interested core ──► its members
//! ```
//!
//! A *plain room* has no home. What a core publishes goes to its own members at once and then to each core
//! that has registered interest, first in first out: one order per publisher.
//!
//! # How a core becomes interested
//!
//! In a plain room: its first member makes it tell all others (`Interest`). In a topic with a home: each
//! session that joins before the core follows the topic sends `Join`; the answer `Joined` marks the exact
//! place in the home's stream from which on the core gets everything, and carries what the session is owed
//! up to there. So nothing is lost or doubled between the snapshot and what follows it. While a core waits
//! for an answer it doesn't leave, however its members come and go.
//!
//! **Invariants.** A core is in `interested` of a home topic from its `Join` to its `Leave`. `wanted` of a
//! key is a level: it is reported when it changes, not each time that somebody comes or goes.

use crate::budget::{Counters, LiveBytes};
use crate::disconnect::Disconnect;
use crate::dispatch::{CORES_MAX, CoreId, CoreSet, Current, Dispatch, Emit};
use crate::history::{History, HistoryLimits};
use crate::publication::{Body, Data, Document, Epoch, FeedState, FormatId, Position, Publication};
use crate::session::{Encoder, Member, Policy, SessionId, Sessions};
use crate::topic::{Key, Room, Topic};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// How a shard is set up. All shards of a process share the same values but for `core`.
#[derive(Clone, Debug)]
pub struct Options {
    /// This core.
    pub core: CoreId,
    /// How many there are, 1 to [`CORES_MAX`].
    pub cores: usize,
    /// Drawn at random when the process starts: hashes of names that clients choose and epochs depend on
    /// it. The same on all cores.
    pub seed: [u64; 2],
    /// Bytes that a session may be owed under `Queue` and `DropOldest`.
    pub outbox_bytes_max: usize,
    /// Topics that one session may be subscribed to.
    pub subscriptions_max: usize,
    /// Topics that this core may know of.
    pub topics_max: usize,
    /// Rooms that keep history: by the longest matching prefix of the name.
    pub room_history: Vec<(String, HistoryLimits)>,
    /// Counts the distinct live bytes of the process.
    pub live: LiveBytes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            core: 0,
            cores: 1,
            seed: [0, 0],
            outbox_bytes_max: 1 << 20,
            subscriptions_max: 1_000,
            topics_max: 1_000_000,
            room_history: Vec::new(),
            live: LiveBytes::default(),
        }
    }
}

/// Why a subscription was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// The session has `subscriptions_max` already.
    TooManySubscriptions,
    /// The core knows `topics_max` topics already.
    TooManyTopics,
}

/// What a session has to be told about one of its subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// There is no such feed. The subscription has ended.
    Lost {
        /// Whose.
        session: SessionId,
        /// Which feed.
        key: Key,
    },
    /// The topic's history no longer covers what the session asked for: something was missed.
    Gap {
        /// Whose.
        session: SessionId,
        /// Of what.
        topic: Topic,
    },
}

/// Hashes with a seed that clients don't know, so that they can't choose names which collide.
#[derive(Clone, Copy)]
struct Seeded([u64; 2]);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0[0]);
        hasher.write_u64(self.0[1]);
        hasher
    }
}

/// What the home core of a topic keeps.
struct Home<F> {
    epoch: Epoch,
    offset: u64,
    history: Option<History<F>>,
}

struct TopicState<F> {
    topic: Topic,
    members: Vec<Member>,
    /// Cores that want its publications: of plain rooms on every core, else at the home core only.
    interested: CoreSet,
    home: Option<Box<Home<F>>>,
    /// Of a follower: whether its stream has begun (`Joined` came). Of a plain room: whether the others
    /// know that this core has members.
    joined: bool,
    /// `Join`s without an answer yet.
    joining: u32,
    current: Current<F>,
}

/// One core's part of the hub. Sans-I/O: `handle_*` in, `poll_*` out.
pub struct Hub<E: Encoder> {
    options: Options,
    sessions: Sessions<E>,
    topics: Vec<Option<TopicState<E::Frame>>>,
    free: Vec<u32>,
    by_name: HashMap<Topic, u32, Seeded>,
    hasher: Seeded,
    epochs: u64,
    outgoing: Vec<VecDeque<Dispatch<E::Frame>>>,
    wanted_dirty: Vec<Key>,
    wanted_reported: HashSet<Key, Seeded>,
    notices: VecDeque<Notice>,
}

impl<E: Encoder> Hub<E> {
    /// A shard without sessions.
    ///
    /// # Panics
    /// If `core` isn't below `cores`, or `cores` isn't within 1 to [`CORES_MAX`].
    pub fn new(options: Options, encoder: E) -> Self {
        assert!(options.core < options.cores && options.cores <= CORES_MAX);
        let hasher = Seeded(options.seed);
        Self {
            sessions: Sessions::new(encoder, options.outbox_bytes_max),
            topics: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::with_hasher(hasher),
            hasher,
            epochs: 0,
            outgoing: (0..options.cores).map(|_| VecDeque::new()).collect(),
            wanted_dirty: Vec::new(),
            wanted_reported: HashSet::with_hasher(hasher),
            notices: VecDeque::new(),
            options,
        }
    }

    /// Opens a session that is sent frames of `format`. `tag` is the caller's.
    pub fn handle_open(&mut self, format: FormatId, tag: u64) -> SessionId {
        self.sessions.open(format, tag)
    }

    /// Changes the caller's tag of a session.
    pub fn set_tag(&mut self, session: SessionId, tag: u64) {
        self.sessions.set_tag(session, tag);
    }

    /// The tag of a session that lives.
    pub fn tag(&self, session: SessionId) -> Option<u64> {
        self.sessions.tag(session)
    }

    /// Ends a session: what it is owed is abandoned, its subscriptions end.
    pub fn handle_close(&mut self, session: SessionId) {
        let Some(state) = self.sessions.alive(session) else { return };
        let topics: Vec<u32> = state.subscriptions.iter().map(|s| s.topic).collect();
        for (slot, topic) in topics.into_iter().enumerate() {
            self.leave(session, slot as u32, topic);
        }
        self.sessions.close(session);
    }

    /// Subscribes a session. For a feed it is then owed the newest document, unless `since` is that one;
    /// for a room with history what came after `since`. Doing it again changes the policy and owes the
    /// newest document once more.
    pub fn handle_subscribe(
        &mut self,
        session: SessionId,
        topic: &Topic,
        policy: Policy,
        since: Option<Position>,
    ) -> Result<(), SubscribeError> {
        if self.sessions.alive(session).is_none() {
            return Ok(());
        }
        let known = self.by_name.get(topic).copied();
        if let Some(index) = known
            && let Some(slot) = self.sessions.find(session, index)
        {
            let member = self.sessions.member(session, slot);
            let subscription = self.sessions.subscription_mut(member);
            subscription.policy = policy;
            if !subscription.pending && matches!(topic, Topic::Feed(_)) {
                let owed = self.owed_since(index, since);
                self.replay(member, index, owed);
            }
            return Ok(());
        }
        if self.sessions.subscription_count(session) >= self.options.subscriptions_max {
            return Err(SubscribeError::TooManySubscriptions);
        }
        let index = match known {
            Some(index) => index,
            None => self.insert(topic.clone()).ok_or(SubscribeError::TooManyTopics)?,
        };
        let home = self.home_of(topic);
        let follows = self.topic(index).is_some_and(|t| t.joined);
        // A follower knows the newest document, but not the past.
        let ask = match home {
            Some(core) if core != self.options.core => {
                (!follows || (since.is_some() && matches!(topic, Topic::Room(_)))).then_some(core)
            }
            _ => None,
        };
        let Some(member) = self.sessions.subscribe(session, index, policy, ask.is_some()) else {
            return Ok(());
        };
        if let Some(core) = ask {
            if let Some(state) = self.topic_mut(index) {
                state.joining += 1;
            }
            self.outgoing[core].push_back(Dispatch::Join { topic: topic.clone(), session, since });
            return Ok(());
        }
        self.add_member(index, member);
        let owed = self.owed_since(index, since);
        self.replay(member, index, owed);
        Ok(())
    }

    /// Ends a subscription. Nothing of the topic reaches the session's connection from now on but what is
    /// in flight. Says whether there was one.
    pub fn handle_unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        let Some(index) = self.by_name.get(topic).copied() else { return false };
        let Some(slot) = self.sessions.find(session, index) else { return false };
        self.leave(session, slot, index);
        self.sessions.unsubscribe(session, slot);
        true
    }

    /// Publishes a message to a room, as something that happened on this core.
    pub fn handle_publish(
        &mut self,
        now: Instant,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
    ) {
        let topic = Topic::Room(room.clone());
        match self.home_of(&topic) {
            Some(core) if core != self.options.core => {
                self.outgoing[core].push_back(Dispatch::Submit { room: room.clone(), event, data, how });
            }
            Some(_) => self.publish_with_history(now, room, event, data, how),
            None => {
                let Some(index) = self.by_name.get(&topic).copied() else { return };
                let body = Body::Message { room: room.clone(), event, data, position: None };
                let publication = Publication::new(body, &self.options.live);
                self.spread(index, &publication, how);
            }
        }
    }

    /// A feed has a new version. To be called on the home core of the key only. A document that is the
    /// same, byte for byte, is no new version, but makes the feed live again.
    pub fn handle_document(&mut self, key: &Key, state: FeedState, document: Document) {
        let Some(index) = self.home_topic(Topic::Feed(key.clone())) else { return };
        let Some(topic) = self.topic_mut(index) else { return };
        let Some(home) = topic.home.as_mut() else { return };
        let same =
            topic.current.snapshot.as_ref().is_some_and(
                |p| matches!(p.body(), Body::Snapshot { document: last, .. } if **last == document),
            );
        if same {
            if topic.current.state.is_some() || state != FeedState::Live {
                self.handle_state(key, state, Arc::from(""));
            }
            return;
        }
        home.offset += 1;
        let position = Position { epoch: home.epoch, offset: home.offset };
        let body = Body::Snapshot { key: key.clone(), position, state, document: Arc::new(document) };
        let publication = Publication::new(body, &self.options.live);
        if let Some(topic) = self.topic_mut(index) {
            topic.current = Current { snapshot: Some(publication.clone()), state: None };
        }
        self.spread(index, &publication, Emit::default());
    }

    /// A feed's state changed. To be called on the home core of the key only. `Lost` ends all its
    /// subscriptions after they were told ([`Hub::poll_notice`]).
    pub fn handle_state(&mut self, key: &Key, state: FeedState, reason: Arc<str>) {
        let Some(index) = self.home_topic(Topic::Feed(key.clone())) else { return };
        let publication =
            Publication::new(Body::State { key: key.clone(), state, reason }, &self.options.live);
        if let Some(topic) = self.topic_mut(index) {
            let live = state == FeedState::Live;
            topic.current.state = (!live).then(|| publication.clone());
            if state == FeedState::Lost {
                topic.current.snapshot = None;
            }
        }
        self.spread(index, &publication, Emit::default());
        self.settle(index);
    }

    /// The control plane doesn't keep the feed any more. To be called on its home core only. Does nothing
    /// while somebody is subscribed: the control plane is about to hear of that.
    pub fn handle_forget(&mut self, key: &Key) {
        let Some(index) = self.by_name.get(&Topic::Feed(key.clone())).copied() else { return };
        if let Some(topic) = self.topic_mut(index)
            && topic.members.is_empty()
            && topic.interested.is_empty()
        {
            topic.current = Current::default();
        }
        self.settle(index);
    }

    /// Something arrived from another core's shard.
    pub fn handle_dispatch(&mut self, now: Instant, from: CoreId, dispatch: Dispatch<E::Frame>) {
        match dispatch {
            Dispatch::Interest { room, wanted } => {
                let topic = Topic::Room(room);
                let index = match self.by_name.get(&topic) {
                    Some(index) => Some(*index),
                    None if wanted => self.insert(topic),
                    None => None,
                };
                let Some(index) = index else { return };
                if let Some(topic) = self.topic_mut(index) {
                    topic.interested.set(from, wanted);
                }
                self.settle(index);
            }
            Dispatch::Join { topic, session, since } => {
                let Some(index) = self.home_topic(topic.clone()) else {
                    // Out of topics: an empty answer, so that the other core isn't left waiting.
                    let current = Current::default();
                    self.outgoing[from].push_back(Dispatch::Joined { topic, session, replay: None, current });
                    return;
                };
                let replay = self.owed_since(index, since);
                let mut current = Current::default();
                if let Some(state) = self.topic_mut(index) {
                    state.interested.set(from, true);
                    current = state.current.clone();
                }
                self.wanted_changed(index);
                self.outgoing[from].push_back(Dispatch::Joined { topic, session, replay, current });
            }
            Dispatch::Joined { topic, session, replay, current } => {
                self.joined(&topic, session, replay, current)
            }
            Dispatch::Leave { topic } => {
                let Some(index) = self.by_name.get(&topic).copied() else { return };
                if let Some(topic) = self.topic_mut(index) {
                    topic.interested.set(from, false);
                }
                self.wanted_changed(index);
                self.settle(index);
            }
            Dispatch::Publish { topic, publication, how } => {
                let Some(index) = self.by_name.get(&topic).copied() else { return };
                let homed = self.home_of(&topic).is_some();
                let Some(state) = self.topic_mut(index) else { return };
                if homed {
                    if !state.joined {
                        return;
                    }
                    match publication.body() {
                        Body::Snapshot { .. } => {
                            state.current = Current { snapshot: Some(publication.clone()), state: None };
                        }
                        Body::State { state: FeedState::Live, .. } => state.current.state = None,
                        Body::State { .. } => state.current.state = Some(publication.clone()),
                        Body::Message { .. } => {}
                    }
                }
                self.deliver_locally(index, &publication, how);
                self.settle(index);
            }
            Dispatch::Submit { room, event, data, how } => {
                self.publish_with_history(now, &room, event, data, how)
            }
        }
    }

    /// Forgets what is older than its room's history keeps.
    pub fn handle_tick(&mut self, now: Instant) {
        if self.options.room_history.is_empty() {
            return;
        }
        for index in 0..self.topics.len() as u32 {
            let Some(topic) = self.topic_mut(index) else { continue };
            let Some(history) = topic.home.as_mut().and_then(|h| h.history.as_mut()) else { continue };
            history.expire(now);
            self.settle(index);
        }
    }

    /// The process is `excess_bytes` over its memory budget: forgets history first, then dooms the session
    /// that is owed the most. Returns about how many bytes that gives back.
    pub fn handle_overload(&mut self, excess_bytes: usize) -> usize {
        let mut freed = 0;
        while freed < excess_bytes {
            let histories =
                self.topics.iter_mut().flatten().filter_map(|t| t.home.as_mut()?.history.as_mut());
            let stalest = histories.filter(|h| !h.is_empty()).min_by_key(|h| h.newest_at());
            let Some(history) = stalest else { break };
            while freed < excess_bytes && !history.is_empty() {
                freed += history.forget_oldest();
            }
        }
        if freed < excess_bytes {
            freed += self.sessions.doom_the_slowest();
        }
        freed
    }

    /// The next session that is owed something new, with its tag.
    pub fn poll_ready(&mut self) -> Option<(SessionId, u64)> {
        self.sessions.poll_ready()
    }

    /// The next session that has to end, with its tag. The caller closes it.
    pub fn poll_doomed(&mut self) -> Option<(SessionId, u64, Disconnect)> {
        self.sessions.poll_doomed()
    }

    /// The next thing that a session has to be told about its subscriptions.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The next key for which it changed whether anybody wants it.
    pub fn poll_wanted(&mut self) -> Option<(Key, bool)> {
        while let Some(key) = self.wanted_dirty.pop() {
            let index = self.by_name.get(&Topic::Feed(key.clone())).copied();
            let wanted = index
                .and_then(|i| self.topic(i))
                .is_some_and(|t| !t.members.is_empty() || !t.interested.is_empty());
            if wanted != self.wanted_reported.contains(&key) {
                if wanted {
                    self.wanted_reported.insert(key.clone());
                } else {
                    self.wanted_reported.remove(&key);
                }
                return Some((key, wanted));
            }
        }
        None
    }

    /// What this shard has to tell `core`, oldest first. What can't be passed on now stays.
    pub fn outgoing(&mut self, core: CoreId) -> &mut VecDeque<Dispatch<E::Frame>> {
        &mut self.outgoing[core]
    }

    /// Moves what a session is owed into flight: at least one frame if there is any, more while they fit
    /// into `bytes_max` and `frames_max`. [`Hub::handle_sent`] says when the kernel has them.
    pub fn take(
        &mut self,
        session: SessionId,
        bytes_max: usize,
        frames_max: usize,
        each: impl FnMut(&Arc<Publication<E::Frame>>, &E::Frame),
    ) {
        self.sessions.take(session, bytes_max, frames_max, each);
    }

    /// Everything in flight of a session has been taken by the kernel.
    pub fn handle_sent(&mut self, session: SessionId) {
        self.sessions.sent(session);
    }

    /// Whether something waits for a session.
    pub fn is_owed(&self, session: SessionId) -> bool {
        self.sessions.is_owed(session)
    }

    /// What became of everything that was due.
    pub fn counters(&self) -> Counters {
        self.sessions.counters
    }

    /// How many sessions live.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// How many topics this core knows.
    pub fn topics(&self) -> usize {
        self.topics.len() - self.free.len()
    }

    /// Encoded bytes owed under byte-limited policies, all sessions together (shared frames count each
    /// time).
    pub fn owed_bytes(&self) -> usize {
        self.sessions.queue_bytes
    }

    /// The core that gives a topic its order, if it has one.
    pub fn home_of(&self, topic: &Topic) -> Option<CoreId> {
        match topic {
            Topic::Room(room) if self.history_of(room).is_none() => None,
            _ => Some(self.core_of(topic)),
        }
    }

    /// The core that a topic's hash points at.
    pub fn core_of(&self, topic: &Topic) -> CoreId {
        core_of(self.options.seed, self.options.cores, topic)
    }

    fn history_of(&self, room: &Room) -> Option<HistoryLimits> {
        let matching = self.options.room_history.iter().filter(|(prefix, _)| room.name().starts_with(prefix));
        matching
            .max_by_key(|(prefix, _)| prefix.len())
            .map(|(_, limits)| *limits)
            .filter(|l| l.publications_max > 0)
    }

    fn topic(&self, index: u32) -> Option<&TopicState<E::Frame>> {
        self.topics.get(index as usize)?.as_ref()
    }

    fn topic_mut(&mut self, index: u32) -> Option<&mut TopicState<E::Frame>> {
        self.topics.get_mut(index as usize)?.as_mut()
    }

    fn insert(&mut self, topic: Topic) -> Option<u32> {
        if self.topics() >= self.options.topics_max {
            return None;
        }
        let state = TopicState {
            topic: topic.clone(),
            members: Vec::new(),
            interested: CoreSet::default(),
            home: None,
            joined: false,
            joining: 0,
            current: Current::default(),
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.topics[index as usize] = Some(state);
                index
            }
            None => {
                self.topics.push(Some(state));
                self.topics.len() as u32 - 1
            }
        };
        self.by_name.insert(topic, index);
        Some(index)
    }

    /// The state of a topic whose home this core is, made where there was none.
    fn home_topic(&mut self, topic: Topic) -> Option<u32> {
        debug_assert_eq!(self.home_of(&topic), Some(self.options.core));
        let index = match self.by_name.get(&topic) {
            Some(index) => *index,
            None => self.insert(topic)?,
        };
        self.make_home(index);
        Some(index)
    }

    fn make_home(&mut self, index: u32) {
        let Some(state) = self.topic(index) else { return };
        if state.home.is_some() {
            return;
        }
        let limits = match &state.topic {
            Topic::Room(room) => self.history_of(room),
            Topic::Feed(_) => None,
        };
        let drawn = self.hasher.hash_one((self.epochs + 1, &state.topic)) as u32;
        self.epochs += 1;
        let epoch = Epoch(drawn.max(1));
        if let Some(state) = self.topic_mut(index) {
            state.home = Some(Box::new(Home { epoch, offset: 0, history: limits.map(History::new) }));
        }
    }

    fn add_member(&mut self, index: u32, member: Member) {
        let homed = self.topic(index).map(|t| self.home_of(&t.topic));
        if homed == Some(Some(self.options.core)) {
            self.make_home(index);
        }
        let Some(state) = self.topics.get_mut(index as usize).and_then(Option::as_mut) else { return };
        self.sessions.subscription_mut(member).member = state.members.len() as u32;
        state.members.push(member);
        if state.members.len() > 1 {
            return;
        }
        match (&state.topic, homed) {
            (Topic::Room(room), Some(None)) => {
                // Announced to the others from now on.
                state.joined = true;
                for core in (0..self.options.cores).filter(|core| *core != self.options.core) {
                    self.outgoing[core].push_back(Dispatch::Interest { room: room.clone(), wanted: true });
                }
            }
            _ => self.wanted_changed(index),
        }
    }

    /// Takes a subscription out of its topic. Its slot in the session is the caller's to free.
    fn leave(&mut self, session: SessionId, slot: u32, index: u32) {
        let Some(state) = self.topics.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let member = self.sessions.member(session, slot);
        let subscription = *self.sessions.subscription_mut(member);
        if !subscription.pending {
            state.members.swap_remove(subscription.member as usize);
            if let Some(moved) = state.members.get(subscription.member as usize) {
                self.sessions.subscription_mut(*moved).member = subscription.member;
            }
        }
        // So that a second call finds nothing.
        self.sessions.subscription_mut(member).topic = crate::session::NO_TOPIC;
        self.settle(index);
    }

    /// Tells others that this core has no members left, and forgets a topic that means nothing any more.
    fn settle(&mut self, index: u32) {
        let Some(state) = self.topics.get(index as usize).and_then(Option::as_ref) else { return };
        if !state.members.is_empty() || state.joining > 0 {
            return;
        }
        let topic = state.topic.clone();
        let home = self.home_of(&topic);
        match (&topic, home) {
            (Topic::Room(room), None) => {
                let announced = self.topic(index).is_some_and(|t| t.joined);
                if announced {
                    for core in (0..self.options.cores).filter(|core| *core != self.options.core) {
                        self.outgoing[core]
                            .push_back(Dispatch::Interest { room: room.clone(), wanted: false });
                    }
                }
            }
            (_, Some(core)) if core != self.options.core => {
                if self.topic(index).is_some_and(|t| t.joined) {
                    self.outgoing[core].push_back(Dispatch::Leave { topic: topic.clone() });
                }
            }
            _ => self.wanted_changed(index),
        }
        let Some(state) = self.topic_mut(index) else { return };
        state.joined = false;
        let follower = home.is_some_and(|core| core != self.options.core);
        let Some(state) = self.topic_mut(index) else { return };
        if follower {
            state.current = Current::default();
        }
        let keeps = state.home.as_ref().is_some_and(|h| h.history.as_ref().is_some_and(|h| !h.is_empty()));
        let known = state.current.snapshot.is_some() || state.current.state.is_some();
        if state.interested.is_empty() && !keeps && !known {
            self.by_name.remove(&topic);
            self.topics[index as usize] = None;
            self.free.push(index);
        }
    }

    fn wanted_changed(&mut self, index: u32) {
        if let Some(TopicState { topic: Topic::Feed(key), .. }) = self.topic(index) {
            let key = key.clone();
            if self.wanted_dirty.last() != Some(&key) {
                self.wanted_dirty.push(key);
            }
        }
    }

    fn publish_with_history(
        &mut self,
        now: Instant,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
    ) {
        let Some(index) = self.home_topic(Topic::Room(room.clone())) else { return };
        let Some(state) = self.topics.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let Some(home) = state.home.as_mut() else { return };
        // What is volatile is worth nothing later: it gets no place, so that offsets stay without gaps.
        let position = (!how.volatile).then(|| {
            home.offset += 1;
            Position { epoch: home.epoch, offset: home.offset }
        });
        let body = Body::Message { room: room.clone(), event, data, position };
        let publication = Publication::new(body, &self.options.live);
        if let (Some(position), Some(history)) = (position, home.history.as_mut()) {
            history.push(now, position.offset, publication.clone());
        }
        self.spread(index, &publication, how);
    }

    /// To this core's members, then to the other interested cores.
    fn spread(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>, how: Emit) {
        let Some(state) = self.topic(index) else { return };
        let (topic, interested) = (state.topic.clone(), state.interested);
        for core in (0..self.options.cores).filter(|core| interested.contains(*core)) {
            let publication = publication.clone();
            self.outgoing[core].push_back(Dispatch::Publish { topic: topic.clone(), publication, how });
        }
        self.deliver_locally(index, publication, how);
    }

    fn deliver_locally(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>, how: Emit) {
        let Some(state) = self.topics.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let except = how.except.filter(|(core, _)| *core == self.options.core).map(|(_, session)| session);
        for member in &state.members {
            if except.is_none_or(|except| self.sessions.id_of(*member) != except) {
                self.sessions.deliver(*member, publication, &how);
            }
        }
        if let Body::State { key, state: FeedState::Lost, .. } = publication.body() {
            for member in std::mem::take(&mut state.members) {
                self.sessions.subscription_mut(member).topic = crate::session::NO_TOPIC;
                let session = self.sessions.id_of(member);
                self.notices.push_back(Notice::Lost { session, key: key.clone() });
            }
        }
    }

    /// What a session with `since` is owed of a topic now; `None` where the past doesn't reach back so far.
    fn owed_since(&self, index: u32, since: Option<Position>) -> Option<Vec<Arc<Publication<E::Frame>>>> {
        let Some(state) = self.topic(index) else { return Some(Vec::new()) };
        match &state.topic {
            Topic::Feed(_) => {
                let current = &state.current;
                let newest = current.snapshot.as_ref().filter(
                    |p| !matches!(p.body(), Body::Snapshot { position, .. } if Some(*position) == since),
                );
                Some(newest.into_iter().chain(&current.state).cloned().collect())
            }
            Topic::Room(_) => {
                let (Some(since), Some(home)) = (since, state.home.as_ref()) else { return Some(Vec::new()) };
                let newest = Position { epoch: home.epoch, offset: home.offset };
                home.history.as_ref().and_then(|h| h.after(since, newest))
            }
        }
    }

    /// Owes a new member what it is due from the topic's past.
    fn replay(&mut self, member: Member, index: u32, owed: Option<Vec<Arc<Publication<E::Frame>>>>) {
        let session = self.sessions.id_of(member);
        let Some(owed) = owed else {
            if let Some(state) = self.topic(index) {
                self.notices.push_back(Notice::Gap { session, topic: state.topic.clone() });
            }
            return;
        };
        for publication in &owed {
            self.sessions.deliver(member, publication, &Emit::default());
            if let Body::State { key, state: FeedState::Lost, .. } = publication.body() {
                self.leave(session, member.subscription, index);
                self.notices.push_back(Notice::Lost { session, key: key.clone() });
            }
        }
    }

    fn joined(
        &mut self,
        topic: &Topic,
        session: SessionId,
        replay: Option<Vec<Arc<Publication<E::Frame>>>>,
        current: Current<E::Frame>,
    ) {
        let Some(index) = self.by_name.get(topic).copied() else { return };
        let Some(state) = self.topic_mut(index) else { return };
        state.joining -= 1;
        if !state.joined {
            state.joined = true;
            state.current = current;
        }
        if let Some(slot) = self.sessions.find(session, index) {
            let member = self.sessions.member(session, slot);
            if self.sessions.subscription_mut(member).pending {
                self.sessions.subscription_mut(member).pending = false;
                self.add_member(index, member);
                self.replay(member, index, replay);
            }
        }
        self.settle(index);
    }
}

/// The core that a topic's hash points at, among `cores`, for the process's seed.
pub fn core_of(seed: [u64; 2], cores: usize, topic: &Topic) -> CoreId {
    (Seeded(seed).hash_one(topic) % cores as u64) as usize
}
