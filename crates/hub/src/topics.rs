//! The topics of one shard, with position and history of those that have their home here.

mod memory;

use crate::dispatch::{CoreId, CoreSet, Current};
use crate::history::{History, HistoryLimits, HistoryPart, HistoryStats, Replay, history_limits};
use crate::options::Options;
use crate::paged_slab::PagedSlab;
use crate::patches::Patches;
use crate::publication::{Epoch, Position, Publication};
use crate::subscription::Member;
use crate::topic::{Room, Topic};
use crate::version_lag::UNKNOWN;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

/// Hashes with a secret seed, so that clients can't choose names that collide.
#[derive(Clone, Copy)]
pub(crate) struct Seeded(pub(crate) [u64; 2]);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0[0]);
        hasher.write_u64(self.0[1]);
        hasher
    }
}

/// Returns the core that a topic's hash selects among `cores`, with the process's seed.
pub fn core_of(seed: [u64; 2], cores: usize, topic: &Topic) -> CoreId {
    // A hash table uses the lowest and the highest bits of the same hash. If these bits also selected the
    // home core, its topics would fill only 1/cores of its table.
    let bits = (Seeded(seed).hash_one(topic) >> 32) & 0xff_ffff;
    (bits % cores as u64) as usize
}

/// A table with at most this capacity doesn't shrink.
const IDLE_MAX: usize = 1024;

/// The home core's state of a topic: its stream's position and history.
pub(crate) struct StreamState<F> {
    newest: Position,
    /// `false` for a room of a cluster until this node has read its history.
    is_known: bool,
    /// Boxed, because feeds have none.
    history: Option<Box<History<F>>>,
    /// Cores that prepare the room while its history is unknown, with the numbers of their requests.
    pub(crate) preparing: Vec<(CoreId, NonZeroU64)>,
}

/// A core's state of a topic with a home core. Allocated separately, because most rooms are plain.
pub(crate) struct Homed<F> {
    /// The home core.
    pub(crate) core: CoreId,
    /// Number of `Join`s sent (wraps around).
    pub(crate) joins_sent: u32,
    /// Number of `Join`s without an answer.
    pub(crate) joins_unanswered: u32,
    pub(crate) preparation: Preparation,
    /// The newest version of a feed: at its home core while the control plane keeps the feed, at a follower
    /// while `joined`.
    pub(crate) current: Current<F>,
    stream: Option<StreamState<F>>,
}

/// The state of a room that one core prepares ([`Hub::handle_prepare`](crate::Hub::handle_prepare)).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preparation {
    /// Number of calls that weren't released.
    pub(crate) holds: u32,
    /// For a follower: the number of its request to the home core, since it last sent `Leave`.
    pub(crate) asked: Option<NonZeroU64>,
    /// For a follower: `true` once the home core has answered that it knows the history, until the follower
    /// sends `Leave`.
    pub(crate) is_ready: bool,
    /// For a follower: `true` while the home core sends the room's messages to it, until the follower sends
    /// `Leave`.
    pub(crate) is_followed: bool,
}

/// The content of the last report about a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// The topic has no subscribers.
    Without,
    /// The topic has subscribers.
    With,
    /// The topic has subscribers, but the control plane has dropped the feed since, and so did this core.
    Dropped,
}

/// The members of a topic. Up to two of them are stored inline.
pub(crate) type Members = SmallVec<[Member; 2]>;

/// A shard's state of one topic. A test bounds its size.
pub(crate) struct TopicState<F> {
    pub(crate) topic: Topic,
    /// The home core and its data; `None` for a plain room.
    pub(crate) homed: Option<Box<Homed<F>>>,
    /// This shard's subscriptions, except those that wait for the home core's answer.
    pub(crate) members: Members,
    /// Cores that receive its publications: for plain rooms on every core, otherwise at the home core only.
    pub(crate) interested: CoreSet,
    /// For a follower: `true` once `Joined` has arrived. For a plain room: `true` if the other cores know
    /// that this core has members.
    pub(crate) joined: bool,
    /// For a feed at its home core: `true` if the control plane has dropped it, so that it is removed with
    /// its last subscriber.
    pub(crate) forgotten: bool,
    /// `true` if the topic is in [`Topics::changed`].
    pub(crate) reporting: bool,
    /// `true` for a room whose members are known to its presence's home core.
    pub(crate) has_presence: bool,
    pub(crate) reported: Reported,
}

impl<F> TopicState<F> {
    /// Returns `true` for a feed without a document and a state on this core.
    pub(crate) fn is_cold(&self) -> bool {
        matches!(self.topic, Topic::Feed(_)) && self.current().is_none_or(Current::is_empty)
    }

    /// Returns the home core; `None` for a plain room.
    pub(crate) fn home(&self) -> Option<CoreId> {
        self.homed.as_ref().map(|homed| homed.core)
    }

    /// Returns the newest document and state of a feed.
    pub(crate) fn current(&self) -> Option<&Current<F>> {
        self.homed.as_ref().map(|homed| &homed.current)
    }

    /// Returns the newest version of a feed.
    pub(crate) fn snapshot(&self) -> Option<&Arc<Publication<F>>> {
        self.current()?.snapshot.as_ref()
    }

    /// Drops the document and state of a feed.
    pub(crate) fn forget_current(&mut self) {
        if let Some(homed) = &mut self.homed {
            homed.current = Current::default();
        }
    }

    /// Applies a publication to a feed: [`Current::apply`].
    pub(crate) fn apply(&mut self, publication: &Arc<Publication<F>>) -> u16 {
        self.homed.as_mut().map_or(UNKNOWN, |homed| homed.current.apply(publication))
    }

    /// Returns `true` if the home core hasn't answered all `Join`s.
    pub(crate) fn is_joining(&self) -> bool {
        self.homed.as_ref().is_some_and(|homed| homed.joins_unanswered > 0)
    }

    /// Returns `true` if this core prepares the topic for future sessions.
    pub(crate) fn is_held(&self) -> bool {
        self.homed.as_ref().is_some_and(|homed| homed.preparation.holds > 0)
    }

    /// Returns `true` if the topic has subscribers, as far as this core knows.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.members.is_empty() || !self.interested.is_empty() || self.is_held()
    }

    fn stream(&self) -> Option<&StreamState<F>> {
        self.homed.as_ref()?.stream.as_ref()
    }

    pub(crate) fn stream_mut(&mut self) -> Option<&mut StreamState<F>> {
        self.homed.as_mut()?.stream.as_mut()
    }

    /// Adds a member. Returns its position in the list.
    fn add(&mut self, member: Member) -> u32 {
        self.members.push(member);
        self.members.len() as u32 - 1
    }

    /// Removes a member. Returns the member that moved to its position.
    fn remove(&mut self, position: u32) -> Option<Member> {
        self.members.swap_remove(position as usize);
        // The list shrinks after most members have left, not with each one.
        if self.members.capacity() > 64 && self.members.len() < self.members.capacity() / 4 {
            let mut fewer = Members::with_capacity(self.members.capacity() / 2);
            fewer.extend_from_slice(&self.members);
            self.members = fewer;
        }
        self.members.get(position as usize).copied()
    }

    /// Returns the messages after `since` in a room with history.
    pub(crate) fn since(&self, since: Position) -> Replay<F> {
        let Some(stream) = self.stream() else { return Replay::Expired };
        match &stream.history {
            Some(history) if stream.is_known => history.since(since, stream.newest),
            Some(_) => Replay::Unknown,
            None => Replay::Expired,
        }
    }

    /// Returns the position of a topic with its home here; `None` while it is unknown.
    pub(crate) fn newest(&self) -> Option<Position> {
        self.stream().filter(|stream| stream.is_known).map(|stream| stream.newest)
    }

    /// Sets the position of a topic with its home here: the next publication has this position.
    pub(crate) fn set_newest(&mut self, newest: Position) {
        if let Some(stream) = self.stream_mut() {
            (stream.newest, stream.is_known) = (newest, true);
        }
    }

    /// Returns the history of a room with its home here, as far as it is known.
    pub(crate) fn history(&self) -> Option<HistoryPart<F>> {
        self.stream().and_then(|stream| Some(stream.history.as_ref()?.part(stream.newest)))
    }

    fn has_past(&self) -> bool {
        self.stream().and_then(|stream| stream.history.as_ref()).is_some_and(|h| !h.is_empty())
    }
}

/// The table of topics.
pub(crate) struct Topics<F> {
    pub(crate) options: Options,
    slots: PagedSlab<TopicState<F>>,
    /// Finds topics by name; only the slots store the names.
    by_name: HashTable<Named>,
    /// Topics with history.
    with_past: BTreeSet<u32>,
    /// Accounts of patches of feeds with their home here.
    pub(crate) patches: Patches,
    epochs: u64,
    /// Size of the names and the [`Homed`] of all topics, without documents and the messages of histories, in bytes.
    referenced_bytes: usize,
    /// Capacity for members in allocations of their own.
    members_spilled: usize,
    /// `true` if new topics are refused.
    pub(crate) refuses_topics: bool,
    /// Topics whose number of subscribers may have changed to or from 0, and that this core reports: those
    /// with `reporting`, in the order of the changes.
    pub(crate) changed: VecDeque<Topic>,
}

/// An entry of the table of names: a topic's number, and the hash of its name, so that the table grows
/// without reading names.
struct Named {
    hash: u32,
    index: u32,
}

impl Named {
    /// Spreads a hash of 32 bits, which suffice for the table's size, over its highest and lowest bits, which
    /// the table uses.
    fn table_hash(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

impl<F> Topics<F> {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            slots: PagedSlab::new(),
            by_name: HashTable::new(),
            with_past: BTreeSet::new(),
            patches: Patches::new(options.patches),
            epochs: 0,
            referenced_bytes: 0,
            members_spilled: 0,
            refuses_topics: false,
            changed: VecDeque::new(),
            options,
        }
    }

    /// Changes the limits. A history above its new limit shrinks with the next publication.
    pub(crate) fn set_limits(&mut self, options: Options) {
        self.patches.limits = options.patches;
        // The rooms with presence are fixed at the start.
        let options = Options { presence: self.options.presence.clone(), ..options };
        let before = std::mem::replace(&mut self.options, options);
        if before.room_history == self.options.room_history {
            return;
        }
        for index in 0..self.end() as u32 {
            let limits = self.at(index).and_then(|state| match &state.topic {
                Topic::Room(room) => self.history_of(room),
                Topic::Feed(_) | Topic::Presence(_) => None,
            });
            let history = self.at_mut(index).and_then(|state| state.stream_mut()?.history.as_mut());
            if let (Some(limits), Some(history)) = (limits, history) {
                history.set_limits(limits);
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns an index above the indexes of all topics.
    pub(crate) fn end(&self) -> usize {
        self.slots.end()
    }

    pub(crate) fn home_of(&self, topic: &Topic) -> Option<CoreId> {
        match topic {
            Topic::Room(room) if self.history_of(room).is_none() => None,
            _ => Some(self.core_of(topic)),
        }
    }

    pub(crate) fn core_of(&self, topic: &Topic) -> CoreId {
        core_of(self.options.seed, self.options.cores, topic)
    }

    /// Returns `true` if a topic is a room with presence.
    pub(crate) fn has_presence(&self, topic: &Topic) -> bool {
        let (Some(options), Topic::Room(room)) = (&self.options.presence, topic) else { return false };
        !room.is_all_members() && options.rooms.iter().any(|prefix| room.name().starts_with(&**prefix))
    }

    fn history_of(&self, room: &Room) -> Option<HistoryLimits> {
        history_limits(&self.options.room_history, room)
    }

    pub(crate) fn find(&self, topic: &Topic) -> Option<u32> {
        self.find_hashed(topic, self.hash(topic))
    }

    /// Returns a topic's hash for the table. Avoids the bits that select the home core, which are equal for
    /// all topics of a core.
    pub(crate) fn hash(&self, topic: &Topic) -> u32 {
        Seeded(self.options.seed).hash_one(topic) as u32
    }

    pub(crate) fn find_hashed(&self, topic: &Topic, hash: u32) -> Option<u32> {
        let is_it = |named: &Named| {
            named.hash == hash && self.at(named.index).is_some_and(|state| state.topic == *topic)
        };
        self.by_name.find(Named::table_hash(hash), is_it).map(|named| named.index)
    }

    pub(crate) fn at(&self, index: u32) -> Option<&TopicState<F>> {
        self.slots.get(index as usize)
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut TopicState<F>> {
        self.slots.get_mut(index as usize)
    }

    /// Returns the topic's slot in the table, and creates it if it doesn't exist. `None` if the table already
    /// has `topics_max` topics, or while memory is short.
    pub(crate) fn find_or_insert(&mut self, topic: &Topic) -> Option<u32> {
        let hash = self.hash(topic);
        self.find_hashed(topic, hash).or_else(|| self.insert(topic, hash))
    }

    /// Creates the slot of a topic that isn't in the table. `hash` must be its [`Self::hash`].
    pub(crate) fn insert(&mut self, topic: &Topic, hash: u32) -> Option<u32> {
        if self.refuses_topics || self.count() >= self.options.topics_max {
            return None;
        }
        let homed = self.home_of(topic).map(|core| {
            let stream = (core == self.options.core).then(|| self.new_stream(topic));
            Box::new(Homed {
                core,
                joins_sent: 0,
                joins_unanswered: 0,
                preparation: Preparation::default(),
                current: Current::default(),
                stream,
            })
        });
        let state = TopicState {
            topic: topic.clone(),
            homed,
            members: Members::new(),
            interested: CoreSet::default(),
            joined: false,
            forgotten: false,
            reporting: false,
            has_presence: self.has_presence(topic),
            reported: Reported::Without,
        };
        self.referenced_bytes += Self::referenced_by(&state);
        let index = self.slots.insert(state) as u32;
        let named = Named { hash, index };
        self.by_name.insert_unique(Named::table_hash(hash), named, |named| Named::table_hash(named.hash));
        Some(index)
    }

    fn new_stream(&mut self, topic: &Topic) -> StreamState<F> {
        self.epochs += 1;
        let drawn = Seeded(self.options.seed).hash_one((self.epochs, topic)) as u32;
        let newest = Position { epoch: Epoch(drawn.max(1).into()), offset: 0 };
        let limits = match topic {
            Topic::Room(room) => self.history_of(room),
            Topic::Feed(_) | Topic::Presence(_) => None,
        };
        let is_known = !(self.options.external_positions && limits.is_some());
        StreamState {
            newest,
            is_known,
            history: limits.map(History::new).map(Box::new),
            preparing: Vec::new(),
        }
    }

    /// Removes a topic that has no members, interested cores, outstanding answers, document or state for new
    /// members, or report to correct.
    pub(crate) fn remove_if_idle(&mut self, index: u32) {
        let Some(state) = self.at(index) else { return };
        let idle = !state.is_in_use() && !state.is_joining();
        let has_nothing = state.current().is_none_or(Current::is_empty) && !state.has_past();
        if idle && has_nothing && state.reported == Reported::Without {
            let Some(state) = self.slots.try_remove(index as usize) else { return };
            self.referenced_bytes -= Self::referenced_by(&state);
            self.members_spilled -= crate::shrinking::spilled(&state.members);
            let hash = Named::table_hash(self.hash(&state.topic));
            if let Ok(named) = self.by_name.find_entry(hash, |named| named.index == index) {
                named.remove();
            }
            // Shrinks the table after most topics are gone, not with each removal.
            if self.by_name.capacity() > IDLE_MAX && self.by_name.len() < self.by_name.capacity() / 8 {
                self.by_name.shrink_to(self.by_name.len() * 2, |named| Named::table_hash(named.hash));
            }
        }
    }

    /// Returns the next position in a topic with its home here; `None` if other nodes assign it.
    pub(crate) fn next_position(&mut self, index: u32) -> Option<Position> {
        let stream = self.slots.get_mut(index as usize)?.stream_mut()?;
        if self.options.external_positions && stream.history.is_some() {
            return None;
        }
        stream.newest.offset += 1;
        Some(stream.newest)
    }

    /// Clears the history of a room with its home here: it is complete after this position.
    pub(crate) fn restart(&mut self, index: u32, after: Position) {
        let Some(stream) = self.slots.get_mut(index as usize).and_then(|t| t.stream_mut()) else { return };
        let Some(history) = &mut stream.history else { return };
        history.restart(after.offset);
        (stream.newest, stream.is_known) = (after, true);
        self.with_past.remove(&index);
    }

    /// Clears the history of a room with its home here if other nodes assign its positions.
    pub(crate) fn forget_external(&mut self, index: u32) {
        let Some(stream) = self.slots.get_mut(index as usize).and_then(|t| t.stream_mut()) else { return };
        if self.options.external_positions
            && let Some(history) = &mut stream.history
        {
            history.restart(0);
            stream.is_known = false;
            self.with_past.remove(&index);
        }
    }

    /// Updates the account of a feed's patches, and evicts patches of other feeds if there are too many.
    pub(crate) fn account(&mut self, index: u32) {
        let snapshot = self.at(index).and_then(TopicState::snapshot);
        let version = snapshot.and_then(|snapshot| snapshot.version());
        let (patches, bytes) = version.map_or((0, 0), |version| version.past_size());
        self.patches.set(index, patches, bytes);
        while self.patches.is_over() && self.forget_stalest_patches() > 0 {}
    }

    /// Evicts the patches of the least recently used feed. Returns the freed bytes.
    fn forget_stalest_patches(&mut self) -> usize {
        // Each feed is checked at most once: after the check it counts as unused.
        while let Some(index) = self.patches.stalest() {
            let snapshot = self.at(index).and_then(TopicState::snapshot);
            let Some(version) = snapshot.and_then(|snapshot| snapshot.version()) else {
                return self.patches.evict(index);
            };
            if version.was_used() {
                self.patches.touch(index);
                continue;
            }
            version.forget_past();
            return self.patches.evict(index);
        }
        0
    }

    /// Evicts patches until about `bytes_max` bytes are freed. Returns the freed bytes.
    pub(crate) fn evict_patches(&mut self, bytes_max: usize) -> usize {
        let mut freed = 0;
        while freed < bytes_max {
            match self.forget_stalest_patches() {
                0 => break,
                bytes => freed += bytes,
            }
        }
        freed
    }

    /// Adds a publication to the topic's history, if the topic keeps one.
    pub(crate) fn remember(&mut self, now: Instant, index: u32, publication: &Arc<Publication<F>>) {
        let Some(stream) = self.slots.get_mut(index as usize).and_then(|t| t.stream_mut()) else { return };
        let Some(history) = stream.history.as_mut() else { return };
        history.push(now, publication.clone());
        if history.is_empty() {
            self.with_past.remove(&index);
        } else {
            self.with_past.insert(index);
        }
    }

    /// Removes expired history. Returns the topics whose history is empty now.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<u32> {
        let mut empty = Vec::new();
        let slots = &mut self.slots;
        self.with_past.retain(|index| {
            let state = slots.get_mut(*index as usize);
            let keeps = state.and_then(|t| t.stream_mut()?.history.as_mut()).is_some_and(|history| {
                history.expire(now);
                !history.is_empty()
            });
            if !keeps {
                empty.push(*index);
            }
            keeps
        });
        empty
    }

    /// Returns the total size of all histories. Takes time linear in the topics with history.
    pub(crate) fn history_stats(&self) -> HistoryStats {
        let histories = self.with_past.iter().filter_map(|index| self.at(*index)?.stream()?.history.as_ref());
        histories.map(|history| history.figures()).fold(HistoryStats::default(), |sum, one| HistoryStats {
            publications: sum.publications + one.publications,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// Evicts the history of topics, least recently published first, until about `bytes_max` bytes are freed.
    /// Returns the freed bytes, and the topics whose history is empty now.
    pub(crate) fn evict_stalest_history(&mut self, bytes_max: usize) -> (usize, Vec<u32>) {
        let newest_at =
            |index: &u32| self.slots.get(*index as usize)?.stream()?.history.as_ref()?.newest_at();
        let mut stalest: Vec<(Option<Instant>, u32)> =
            self.with_past.iter().map(|index| (newest_at(index), *index)).collect();
        stalest.sort_unstable();
        let (mut freed, mut empty) = (0, Vec::new());
        for (_, index) in stalest {
            let Some(history) =
                self.slots.get_mut(index as usize).and_then(|t| t.stream_mut()?.history.as_mut())
            else {
                continue;
            };
            while freed < bytes_max && !history.is_empty() {
                freed += history.forget_oldest();
            }
            if !history.is_empty() {
                break;
            }
            self.with_past.remove(&index);
            empty.push(index);
        }
        (freed, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn every_core_is_home_to_some_and_its_table_is_evenly_used() {
        let cores = 64;
        let mut homes = vec![0; cores];
        let mut low_bits = vec![0; cores];
        for n in 0..64_000 {
            let topic = Topic::from(Key::parse(&format!("k/{n}")).unwrap());
            let core = core_of([1, 2], cores, &topic);
            homes[core] += 1;
            if core == 5 {
                low_bits[Seeded([1, 2]).hash_one(&topic) as usize % cores] += 1;
            }
        }
        assert!(homes.iter().all(|n| (800..1200).contains(n)), "{homes:?}");
        assert!(low_bits.iter().all(|n| (2..40).contains(n)), "{low_bits:?}");
    }
}
