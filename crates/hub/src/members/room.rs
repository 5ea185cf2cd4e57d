//! The members of one room, at the home core of its presence.
//!
//! A member whose session has ended stays for the grace period, unless it left deliberately. If its user
//! joins with another session meanwhile, that session takes the member's place.
//!
//! **Invariants.** While the room is watched, notices have covered the members with `is_reported`, by name or in the
//! count `more`. The next notice covers the members of `gone`, which have left. Members without a record are only
//! counted. `leaving` has the members with `leaves_at`.

mod entries;
mod gone;
mod leaving;
mod notice;
mod own;
mod page;
mod size;

pub(super) use size::{table_bytes, tree_bytes};

use crate::presence::{Absence, MemberId, PresenceMessage, PresenceOptions, RoomMember, User};
use entries::Entries;
use gone::Gone;
use leaving::Leaving;
use own::OwnMembers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Stands for this node where other nodes have their ids.
pub(super) const THIS_NODE: u64 = 0;

/// A member as clients see it, and the size of this data in bytes.
#[derive(Clone)]
struct Record {
    member: Arc<RoomMember>,
    bytes: usize,
}

struct Entry {
    node: u64,
    /// `None` if the room has too many members to list this one.
    record: Option<Record>,
    leaves_at: Option<Instant>,
    is_reported: bool,
    /// The member that watchers know and whose place this one has taken.
    replaces: Option<MemberId>,
}

impl Entry {
    fn user(&self) -> Option<User> {
        self.record.as_ref()?.member.user.clone()
    }

    fn member(&self) -> Option<Arc<RoomMember>> {
        Some(self.record.as_ref()?.member.clone())
    }

    fn record_bytes(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.bytes)
    }
}

/// Another node's members, as far as they are known.
pub(super) struct Source {
    pub(super) version: u64,
    /// Number of the node's members, as it reports.
    count: usize,
    /// Number of the node's members that are present and known here.
    known: usize,
    /// Time of the node's last message that agreed with this version.
    pub(super) confirmed_at: Instant,
    /// Time at which another node last listed this version as confirmed.
    pub(super) listed_at: Option<Instant>,
}

/// The members of a room.
#[derive(Default)]
pub(super) struct RoomPresence {
    entries: Entries,
    leaving: Leaving,
    pub(super) own: OwnMembers,
    pub(super) sources: BTreeMap<u64, Source>,
    pub(super) is_watched: bool,
    /// The version of the last notice.
    pub(super) version: u64,
    /// Members that watchers don't know yet.
    fresh: BTreeSet<MemberId>,
    gone: Gone,
    /// Number of changes since the last notice.
    changes: usize,
    pub(super) notify_at: Option<Instant>,
    pub(super) watch_at: Option<Instant>,
    /// Time of this node's last `Watch` message.
    pub(super) watched_at: Option<Instant>,
    /// Time at which this node stops watching, if its last watcher has left.
    pub(super) unwatch_at: Option<Instant>,
    /// Number of members in the last notice.
    last_count: usize,
}

impl RoomPresence {
    /// Makes a room without members.
    pub(super) fn new(own_version: u64, lease_until: Option<Instant>) -> Self {
        Self { own: OwnMembers::new(own_version, lease_until), ..Self::default() }
    }

    /// Returns the time of the next due action.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let own = [self.own.publish_at, self.own.lease_until];
        let all = [self.notify_at, self.watch_at, self.unwatch_at, self.leaving.first_at()];
        all.into_iter().chain(own).flatten().min()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.entries() == 0 && !self.is_watched && self.own.lease_until.is_none() && self.gone.len() == 0
    }

    /// Returns the number of members, including those that may return.
    pub(super) fn count(&self) -> usize {
        let unknown = |source: &Source| source.count.saturating_sub(source.known);
        self.entries() + self.sources.values().map(unknown).sum::<usize>()
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.by_id.len()
    }

    pub(super) fn join(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        node: u64,
        mut record: Arc<RoomMember>,
    ) {
        let id = record.id;
        let mut replaces = None;
        if let Some(before) = self.entries.by_id.get(&id) {
            // The session has been resumed, or has moved from another node.
            let is_known = before.node == node && before.leaves_at.is_none();
            if is_known {
                return;
            }
            self.stay(id);
            self.set_node(now, options, id, node);
            return;
        }
        if let Some(user) = &record.user
            && let Some(left) = self.leaving.first_of(user)
        {
            let since_ms =
                self.entries.by_id.get(&left).and_then(|left| Some(left.record.as_ref()?.member.since_ms));
            if let Some(since_ms) = since_ms.filter(|since_ms| *since_ms < record.since_ms) {
                record = Arc::new(RoomMember { since_ms, ..(*record).clone() });
            }
            let entry = self.remove(now, options, left, Absence::Ended);
            replaces = entry.and_then(|entry| if entry.is_reported { Some(left) } else { entry.replaces });
        }
        let has_room = self.entries.listed.len() < options.members_max;
        let is_reported = !self.is_watched || self.gone.remove(id);
        if !is_reported {
            self.fresh.insert(id);
        }
        let record = has_room.then(|| Record::new(record, node != THIS_NODE));
        self.entries.insert(id, Entry { node, record, leaves_at: None, is_reported, replaces });
        self.appear(now, options, id, node);
        self.changed(now, options);
    }

    pub(super) fn leave(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        node: u64,
        id: MemberId,
        absence: Absence,
    ) {
        let Some(entry) = self.entries.by_id.get_mut(&id) else { return };
        if entry.node != node || entry.leaves_at.is_some() {
            return;
        }
        let user = entry.user();
        let may_return = match absence {
            Absence::Unsubscribed => false,
            Absence::Ended => user.is_some(),
            Absence::Suspended => true,
        };
        if !may_return || options.grace.is_zero() {
            self.remove(now, options, id, absence);
            return;
        }
        let at = now + options.grace;
        entry.leaves_at = Some(at);
        self.leaving.insert(at, id, user);
        self.disappear(now, options, id, node, absence);
    }

    /// Keeps a member that was about to leave.
    fn stay(&mut self, id: MemberId) {
        let Some(entry) = self.entries.by_id.get_mut(&id) else { return };
        let Some(at) = entry.leaves_at.take() else {
            // The member is counted on the node where it was present.
            let node = entry.node;
            self.uncount(node);
            return;
        };
        self.leaving.remove(at, id, entry.user());
    }

    fn set_node(&mut self, now: Instant, options: &PresenceOptions, id: MemberId, node: u64) {
        let Some(entry) = self.entries.by_id.get(&id) else { return };
        if entry.node == THIS_NODE && node != THIS_NODE {
            self.own.leave(now, options.interval, id, Absence::Ended);
        }
        self.entries.move_to(id, node);
        self.appear(now, options, id, node);
    }

    fn uncount(&mut self, node: u64) {
        if node == THIS_NODE {
            self.own.count -= 1;
        } else if let Some(source) = self.sources.get_mut(&node) {
            source.known = source.known.saturating_sub(1);
        }
    }

    /// Adds a member that is present on a node.
    fn appear(&mut self, now: Instant, options: &PresenceOptions, id: MemberId, node: u64) {
        if node == THIS_NODE {
            self.own.join(now, options.interval, id);
        } else if let Some(source) = self.sources.get_mut(&node) {
            source.known += 1;
        }
    }

    /// Called when a member is no longer present on a node.
    fn disappear(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        id: MemberId,
        node: u64,
        absence: Absence,
    ) {
        self.uncount(node);
        if node == THIS_NODE {
            self.own.leave(now, options.interval, id, absence);
        }
    }

    fn remove(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        id: MemberId,
        absence: Absence,
    ) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        match entry.leaves_at {
            Some(at) => self.leaving.remove(at, id, entry.user()),
            None => self.disappear(now, options, id, entry.node, absence),
        }
        if self.is_watched {
            if entry.is_reported {
                self.gone.insert(id, entry.record.as_ref());
            } else {
                self.fresh.remove(&id);
            }
        }
        self.changed(now, options);
        Some(entry)
    }

    /// Schedules a notice for watchers.
    fn changed(&mut self, now: Instant, options: &PresenceOptions) {
        if self.is_watched {
            self.changes += 1;
            self.notify_at.get_or_insert(now + options.interval);
        }
    }

    pub(super) fn watch(&mut self) {
        self.is_watched = true;
        self.last_count = self.count();
    }

    pub(super) fn unwatch(&mut self) {
        self.is_watched = false;
        (self.notify_at, self.watch_at, self.watched_at, self.unwatch_at) = (None, None, None, None);
        self.changes = 0;
        self.gone = Gone::default();
        for id in std::mem::take(&mut self.fresh) {
            if let Some(entry) = self.entries.by_id.get_mut(&id) {
                entry.is_reported = true;
            }
        }
        self.sources.clear();
        // Without a watch, no node reports the members of other nodes any longer.
        let remote = self.entries.by_id.iter().filter(|(_, entry)| entry.node != THIS_NODE);
        let remote: Vec<MemberId> = remote.map(|(id, _)| *id).collect();
        for id in remote {
            let Some(entry) = self.entries.remove(id) else { continue };
            if let Some(at) = entry.leaves_at {
                self.leaving.remove(at, id, entry.user());
            }
        }
    }

    /// Removes members whose grace period is over.
    pub(super) fn expire(&mut self, now: Instant, options: &PresenceOptions) {
        while let Some(id) = self.leaving.take_due(now) {
            self.remove(now, options, id, Absence::Ended);
        }
    }

    /// Returns the changes for other nodes.
    pub(super) fn delta(&mut self, now: Instant, options: &PresenceOptions) -> Option<PresenceMessage> {
        self.own.delta(now, options.interval, &self.entries.by_id)
    }

    /// Returns all members of this node at its current version, for another node.
    pub(super) fn snapshot(&self) -> PresenceMessage {
        let here = |entry: &&Entry| entry.node == THIS_NODE && entry.leaves_at.is_none();
        let members = self.entries.by_id.values().filter(here).filter_map(Entry::member).collect();
        PresenceMessage::Snapshot { version: self.own.version, count: self.own.count, members }
    }

    /// Handles another node's complete list of members.
    pub(super) fn set_members(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        node: u64,
        version: u64,
        count: usize,
        members: Vec<Arc<RoomMember>>,
    ) {
        let known = self.sources.get(&node).map_or(0, |source| source.known);
        self.sources.insert(node, Source { version, count, known, confirmed_at: now, listed_at: None });
        let there: BTreeSet<MemberId> = members.iter().map(|member| member.id).collect();
        for member in members {
            self.join(now, options, node, member);
        }
        self.leave_all(now, options, node, |id| !there.contains(id));
        self.changed(now, options);
    }

    pub(super) fn apply(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        node: u64,
        (to, count): (u64, usize),
        joined: Vec<Arc<RoomMember>>,
        left: Vec<(MemberId, Absence)>,
    ) {
        if let Some(source) = self.sources.get_mut(&node) {
            (source.version, source.count, source.confirmed_at) = (to, count, now);
        }
        for member in joined {
            self.join(now, options, node, member);
        }
        for (id, absence) in left {
            self.leave(now, options, node, id, absence);
        }
        self.changed(now, options);
    }

    /// Removes the members of a node that is dead.
    pub(super) fn lose(&mut self, now: Instant, options: &PresenceOptions, node: u64) {
        if !self.sources.contains_key(&node) {
            return;
        }
        self.leave_all(now, options, node, |_| true);
        self.sources.remove(&node);
    }

    fn leave_all(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        node: u64,
        leaves: impl Fn(&MemberId) -> bool,
    ) {
        let is_there = |entry: &Entry| entry.node == node && entry.leaves_at.is_none();
        let entries = self.entries.by_id.iter().filter(|(_, entry)| is_there(entry));
        let left: Vec<MemberId> = entries.map(|(id, _)| *id).filter(|id| leaves(id)).collect();
        for id in left {
            self.leave(now, options, node, id, Absence::Ended);
        }
    }

    /// Returns `true` if the room knows members of this node.
    pub(super) fn knows(&self, node: u64) -> bool {
        self.sources.contains_key(&node)
    }
}
