//! The presence of rooms with their home here: timers, notices, and messages from and to other nodes.

use super::room::{RoomPresence, Source, THIS_NODE, Watch, table_bytes, tree_bytes};
use crate::presence::{
    Absence, CONFIRM_TIMEOUT, LEASE, MemberId, MembersPage, PresenceChange, PresenceMessage, PresenceNotice,
    PresenceOptions, PresenceStats, REPAIR_INTERVAL, WATCH_INTERVAL,
};
use crate::shrinking::{ShrinkingMap, pop_front};
use crate::topic::Room;
use crate::topics::Seeded;
use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// Time for which a room without watchers is still watched, so that short absences of watchers don't make
/// other nodes repeat their members.
const WATCH_LINGER: Duration = Duration::from_secs(5);
/// Stands between the versions that a node has confirmed in the last [`LIST_AGE_MAX`], and its other ones. No node has this id.
const CONFIRMED_END: (u64, u64) = (u64::MAX, 0);
/// Maximum age of a version that a node lists as confirmed. Versions that only lists have confirmed aren't among them, so nodes can't
/// keep the members of a dead node by each other's lists.
const LIST_AGE_MAX: Duration = Duration::from_secs(20);

/// A message to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingPresence {
    /// The room.
    pub room: Room,
    /// The receiving node; `None` means all nodes with members of the room.
    pub to: Option<u64>,
    /// The message.
    pub message: PresenceMessage,
}

/// The presence of the rooms of a shard.
pub(crate) struct PresenceTable {
    pub(crate) options: PresenceOptions,
    /// `true` if members of this node leave without a grace period.
    pub(crate) is_memory_short: bool,
    rooms: ShrinkingMap<Room, Box<RoomPresence>, Seeded>,
    timers: BTreeSet<(Instant, Room)>,
    notices: VecDeque<PresenceNotice>,
    messages: VecDeque<OutgoingPresence>,
    stats: PresenceStats,
    /// Selects this node's interval between the `Watch` messages about a room.
    selector: Seeded,
    /// Greater than every version of a forgotten room, so that no version of a room is used twice.
    next_version: u64,
}

impl PresenceTable {
    pub(crate) fn new(options: PresenceOptions, seed: [u64; 2]) -> Self {
        Self {
            options,
            is_memory_short: false,
            rooms: ShrinkingMap::with_hasher(Seeded(seed)),
            timers: BTreeSet::new(),
            notices: VecDeque::new(),
            messages: VecDeque::new(),
            stats: PresenceStats::default(),
            selector: Seeded(seed),
            next_version: 1,
        }
    }

    /// Calls `change` with a room, then updates the room's timer and the statistics.
    fn with<T>(
        &mut self,
        now: Instant,
        room: &Room,
        change: impl FnOnce(&mut RoomPresence, &PresenceOptions, &mut Outputs<'_>) -> T,
    ) -> T {
        let Self { options, rooms, timers, notices, messages, stats, selector, next_version, .. } = self;
        let mut is_new = false;
        let state = rooms.entry(room.clone()).or_insert_with(|| {
            is_new = true;
            Box::new(RoomPresence::new(*next_version))
        });
        let due_before = state.poll_timeout();
        let (members_before, bytes_before) = (state.entries(), state.bytes());
        if is_new && options.has_other_nodes {
            // Nodes that already watch the room must learn of its first members.
            state.own.extend_lease(now + LEASE);
        }
        let mut outputs = Outputs { room, notices, messages, stats: &mut *stats, selector };
        let result = change(state, options, &mut outputs);
        state.trim();
        stats.members = stats.members + state.entries() - members_before;
        stats.bytes = stats.bytes + state.bytes() - bytes_before;
        let due = state.poll_timeout();
        if due != due_before {
            due_before.map(|at| timers.remove(&(at, room.clone())));
            due.map(|at| timers.insert((at, room.clone())));
        }
        if state.is_unused() {
            *next_version = (*next_version).max(state.own.version + 1);
            due.map(|at| timers.remove(&(at, room.clone())));
            rooms.remove(room);
            if timers.is_empty() {
                // An emptied tree would keep a node.
                *timers = BTreeSet::new();
            }
        }
        result
    }

    /// Called when a session of this node has joined or left.
    pub(crate) fn handle_change(&mut self, now: Instant, room: &Room, change: PresenceChange) {
        let is_memory_short = self.is_memory_short;
        self.with(now, room, |state, options, _| match change {
            PresenceChange::Left(id, _) if is_memory_short => {
                state.leave(now, options, THIS_NODE, id, Absence::Unsubscribed);
            }
            PresenceChange::Joined(member) => state.join(now, options, THIS_NODE, member),
            PresenceChange::Left(id, absence) => state.leave(now, options, THIS_NODE, id, absence),
        });
    }

    /// Records whether sessions of this node watch the room.
    pub(crate) fn set_watched(&mut self, now: Instant, room: &Room, is_watched: bool) {
        if !is_watched && !self.rooms.contains_key(room) {
            return;
        }
        self.with(now, room, |state, options, out| match (is_watched, &mut state.watch) {
            (true, Some(watch)) => watch.unwatch_at = None,
            (true, None) => {
                let watch = state.watch();
                if options.has_other_nodes {
                    out.watch(now, watch);
                }
            }
            (false, Some(watch)) => watch.unwatch_at = Some(now + WATCH_LINGER),
            (false, None) => {}
        });
    }

    /// Handles a message from another node.
    pub(crate) fn handle_message(&mut self, now: Instant, room: &Room, node: u64, message: PresenceMessage) {
        if node == THIS_NODE {
            return;
        }
        let Some(state) = self.rooms.get(room) else {
            // The sender believes that this node has members.
            if let PresenceMessage::Watch { have } = message
                && have.iter().any(|(of, _)| *of == THIS_NODE)
            {
                let message = PresenceMessage::Snapshot { version: 0, count: 0, members: Vec::new() };
                self.messages.push_back(OutgoingPresence { room: room.clone(), to: Some(node), message });
            }
            return;
        };
        if state.watch.is_none() && !matches!(message, PresenceMessage::Watch { .. }) {
            return;
        }
        self.with(now, room, |state, options, out| match message {
            PresenceMessage::Watch { have } => {
                state.own.extend_lease(now + LEASE);
                while let Some(delta) = state.delta(now, options) {
                    out.send(None, delta);
                }
                let version = state.own.version;
                let is_current = have.contains(&(THIS_NODE, version));
                let answer = if is_current { PresenceMessage::Current { version } } else { state.snapshot() };
                out.send(Some(node), answer);
                out.compare(now, state, options, node, &have);
            }
            PresenceMessage::Delta { from, to, count, joined, left } => {
                let Some(watch) = &mut state.watch else { return };
                match watch.sources.find(node) {
                    Some(source) if source.version == from => {
                        state.apply(now, options, node, (to, count), joined, left);
                    }
                    Some(source) if source.version >= to => {}
                    _ => out.repair(now, watch, node),
                }
            }
            PresenceMessage::Snapshot { version, count, members } => {
                let Some(watch) = &state.watch else { return };
                if watch.sources.find(node).is_none_or(|source| source.version < version || version == 0) {
                    state.set_members(now, options, node, version, count, members);
                }
            }
            PresenceMessage::Current { version } => {
                let Some(watch) = &mut state.watch else { return };
                match watch.sources.find_mut(node) {
                    Some(source) if source.version == version => source.confirmed_at = now,
                    _ => out.repair(now, watch, node),
                }
            }
        });
    }

    /// Handles the death of a node.
    pub(crate) fn handle_lost_node(&mut self, now: Instant, node: u64) {
        let rooms: Vec<Room> =
            self.rooms.iter().filter(|(_, state)| state.knows(node)).map(|(room, _)| room.clone()).collect();
        for room in rooms {
            self.with(now, &room, |state, options, _| state.lose(now, options, node));
        }
    }

    /// Carries out due actions.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        while let Some((_, room)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.with(now, &room, |state, options, out| {
                let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
                state.expire(now, options);
                if is_due(state.watch.as_ref().and_then(|watch| watch.unwatch_at)) {
                    state.unwatch();
                }
                if is_due(state.own.publish_at())
                    && let Some(delta) = state.delta(now, options)
                {
                    out.send(None, delta);
                }
                if is_due(state.watch.as_ref().and_then(|watch| watch.watch_at)) {
                    lose_silent(now, state, options);
                    out.watch(now, state.watch());
                }
                if is_due(state.watch.as_ref().and_then(|watch| watch.notify_at())) {
                    out.notices.extend(state.notice(out.room, out.stats));
                }
                if is_due(state.own.lease_until()) {
                    state.own.end_lease();
                }
            });
        }
    }

    /// Returns the time at which [`Self::handle_time`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(crate) fn poll_notice(&mut self) -> Option<PresenceNotice> {
        pop_front(&mut self.notices)
    }

    pub(crate) fn poll_message(&mut self) -> Option<OutgoingPresence> {
        pop_front(&mut self.messages)
    }

    /// Returns the members of a room after `after`. A watcher's request may arrive before its subscription.
    pub(crate) fn page(
        &mut self,
        now: Instant,
        room: &Room,
        after: Option<MemberId>,
        limit: usize,
        for_watcher: bool,
    ) -> MembersPage {
        if for_watcher && self.rooms.get(room).is_none_or(|state| state.watch.is_none()) {
            self.set_watched(now, room, true);
            self.set_watched(now, room, false);
        }
        self.rooms.get(room).map_or_else(MembersPage::default, |state| state.page(after, limit, for_watcher))
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let rooms = self.rooms.len() * size_of::<RoomPresence>()
            + table_bytes::<(Room, Box<RoomPresence>)>(self.rooms.capacity());
        rooms + tree_bytes::<(Instant, Room)>(self.timers.len()) + self.stats.bytes
    }

    /// Returns statistics. In tests it checks the running sums: don't call it often.
    pub(crate) fn stats(&self) -> PresenceStats {
        debug_assert!(self.rooms.values().all(|state| state.is_counted()));
        debug_assert_eq!(self.stats.bytes, self.rooms.values().map(|state| state.bytes()).sum());
        PresenceStats { bytes: self.bytes(), ..self.stats }
    }
}

/// Removes the members of nodes that haven't been confirmed for [`CONFIRM_TIMEOUT`].
fn lose_silent(now: Instant, state: &mut RoomPresence, options: &PresenceOptions) {
    let Some(watch) = &state.watch else { return };
    let silent = unconfirmed(now, watch, CONFIRM_TIMEOUT);
    silent.into_iter().for_each(|node| state.lose(now, options, node));
}

/// Returns the nodes that haven't been confirmed for this time. A list confirms a version as of the interval before it.
fn unconfirmed(now: Instant, watch: &Watch, time: Duration) -> Vec<u64> {
    let is_old = |source: &&Source| {
        let age = now.saturating_duration_since(source.confirmed_at);
        let listed = source.listed_at.map(|at| now.saturating_duration_since(at) + WATCH_INTERVAL);
        listed.map_or(age, |listed| age.min(listed)) >= time
    };
    watch.sources.iter().filter(is_old).map(|source| source.node).collect()
}

/// The destinations of a room's notices and messages.
struct Outputs<'a> {
    room: &'a Room,
    notices: &'a mut VecDeque<PresenceNotice>,
    messages: &'a mut VecDeque<OutgoingPresence>,
    stats: &'a mut PresenceStats,
    selector: &'a Seeded,
}

impl Outputs<'_> {
    fn send(&mut self, to: Option<u64>, message: PresenceMessage) {
        self.messages.push_back(OutgoingPresence { room: self.room.clone(), to, message });
    }

    /// This node's interval between `Watch` messages to all nodes: 0.7 to 1 times [`WATCH_INTERVAL`]. Nodes have different intervals,
    /// so the others usually receive the `Watch` of one node before theirs are due.
    fn watch_interval(&self) -> Duration {
        let share = (self.selector.hash_one(self.room) & 0xffff) as f64 / 65_536.0;
        WATCH_INTERVAL.mul_f64(0.7 + 0.3 * share)
    }

    /// Sends `Watch` to all nodes: this node watches the room.
    fn watch(&mut self, now: Instant, watch: &mut Watch) {
        let is_confirmed =
            |source: &Source| now.saturating_duration_since(source.confirmed_at) <= LIST_AGE_MAX;
        let versions = |wanted: bool| {
            let all = watch.sources.iter().filter(move |source| is_confirmed(source) == wanted);
            all.map(|source| (source.node, source.version))
        };
        let have = versions(true).chain([CONFIRMED_END]).chain(versions(false)).collect();
        (watch.watched_at, watch.watch_at) = (Some(now), Some(now + self.watch_interval()));
        self.send(None, PresenceMessage::Watch { have });
    }

    /// Sends `Watch` to one node.
    fn watch_node(&mut self, watch: &Watch, node: u64) {
        let have = watch.sources.find(node).map(|source| (node, source.version));
        self.send(Some(node), PresenceMessage::Watch { have: have.into_iter().collect() });
    }

    /// Compares this node's versions with those that `node` lists in a `Watch` to all nodes. This node's own `Watch` to all is postponed:
    /// only `node` and the nodes that no list confirms receive one each.
    fn compare(
        &mut self,
        now: Instant,
        state: &mut RoomPresence,
        options: &PresenceOptions,
        node: u64,
        have: &[(u64, u64)],
    ) {
        let Some(watch) = &mut state.watch else { return };
        // A `Watch` to one node has no end of a list.
        let Some(confirmed) = have.iter().position(|pair| *pair == CONFIRMED_END) else { return };
        for (of, version) in have[..confirmed].iter().filter(|(of, _)| *of != THIS_NODE) {
            match watch.sources.find_mut(*of) {
                Some(source) if source.version >= *version => source.listed_at = Some(now),
                // A node without members and watchers has version 0, and doesn't answer.
                None if *version == 0 => {}
                _ => self.repair(now, watch, *of),
            }
        }
        let is_due = watch.watch_at.is_some_and(|at| at < now + self.watch_interval() / 2);
        let is_repair =
            watch.watch_at.zip(watch.watched_at).is_some_and(|(at, last)| at <= last + REPAIR_INTERVAL);
        if !is_due || is_repair {
            return;
        }
        watch.watch_at = Some(now + self.watch_interval());
        lose_silent(now, state, options);
        let watch = state.watch();
        let mut asked = unconfirmed(now, watch, WATCH_INTERVAL + REPAIR_INTERVAL);
        asked.retain(|of| *of != node);
        asked.push(node);
        asked.into_iter().for_each(|of| self.watch_node(watch, of));
    }

    /// Asks a node for its members because a message of that node was lost. If this node has asked a moment ago, schedules a
    /// `Watch` to all nodes.
    fn repair(&mut self, now: Instant, watch: &mut Watch, node: u64) {
        let at = watch.watched_at.map_or(now, |at| now.max(at + REPAIR_INTERVAL));
        if at > now {
            watch.watch_at = Some(watch.watch_at.map_or(at, |before| before.min(at)));
        } else {
            watch.watched_at = Some(now);
            self.watch_node(watch, node);
        }
    }
}
