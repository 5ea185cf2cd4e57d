//! The members of one room, at the home core of its presence.
//!
//! A member whose session has ended stays for the grace period, unless it left deliberately. If its user
//! joins with another session meanwhile, that session takes the member's place.
//!
//! **Invariants.** While the room is watched, notices have covered the members with `is_reported`, by name or in the
//! count `more`. The next notice covers the members of `gone` and `gone_unlisted`, which have left. `listed` members
//! have a record; the others are only counted. `leaving` has the members of users who may return.

mod notice;
mod page;
mod size;

pub(super) use size::{table_bytes, tree_bytes};

use crate::presence::{
    Absence, DELTA_CHANGES_MAX, MemberId, PresenceMessage, PresenceOptions, RoomMember, User,
};
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
    pub(super) confirmed_at: Instant,
}

/// A change that other nodes don't know yet.
enum Unpublished {
    Joined,
    Left(Absence),
}

/// The members of a room.
#[derive(Default)]
pub(super) struct RoomPresence {
    entries: BTreeMap<MemberId, Entry>,
    /// The members of `entries` that have a record, so that a list needn't skip the other entries.
    listed: BTreeSet<MemberId>,
    /// Size of the records in bytes.
    records_bytes: usize,
    /// Number of this node's present members.
    local: usize,
    leaving: BTreeSet<(User, MemberId)>,
    leaving_at: BTreeSet<(Instant, MemberId)>,
    pub(super) sources: BTreeMap<u64, Source>,
    pub(super) is_watched: bool,
    /// The version of the last notice.
    pub(super) version: u64,
    /// Members that watchers don't know yet.
    fresh: BTreeSet<MemberId>,
    /// Members that watchers know, and that have left.
    gone: BTreeMap<MemberId, Record>,
    /// Size of the records in `gone` in bytes.
    gone_bytes: usize,
    /// Members without a record that watchers know, and that have left.
    gone_unlisted: BTreeSet<MemberId>,
    /// Number of changes since the last notice.
    changes: usize,
    pub(super) notify_at: Option<Instant>,
    /// End of the time in which changes are published to other nodes.
    pub(super) lease_until: Option<Instant>,
    /// The version of this node's members that other nodes know.
    pub(super) local_version: u64,
    unpublished: BTreeMap<MemberId, Unpublished>,
    pub(super) publish_at: Option<Instant>,
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
    pub(super) fn new(local_version: u64, lease_until: Option<Instant>) -> Self {
        Self { local_version, lease_until, ..Self::default() }
    }

    /// Returns the time of the next due action.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let grace = self.leaving_at.first().map(|(at, _)| *at);
        let all = [self.notify_at, self.publish_at, self.watch_at, self.unwatch_at, self.lease_until, grace];
        all.into_iter().flatten().min()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.entries.is_empty() && !self.is_watched && self.lease_until.is_none() && self.gone_count() == 0
    }

    /// Returns the number of members, including those that may return.
    pub(super) fn count(&self) -> usize {
        let unknown = |source: &Source| source.count.saturating_sub(source.known);
        self.entries.len() + self.sources.values().map(unknown).sum::<usize>()
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    fn gone_count(&self) -> usize {
        self.gone.len() + self.gone_unlisted.len()
    }

    /// Cancels the pending report that a member has left. Returns `true` if there was one.
    fn forget_gone(&mut self, id: MemberId) -> bool {
        match self.gone.remove(&id) {
            Some(record) => {
                self.gone_bytes -= record.bytes;
                true
            }
            None => self.gone_unlisted.remove(&id),
        }
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
        if let Some(before) = self.entries.get(&id) {
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
            && let Some(left) = self.first_leaving(user)
        {
            let since_ms =
                self.entries.get(&left).and_then(|left| Some(left.record.as_ref()?.member.since_ms));
            if let Some(since_ms) = since_ms.filter(|since_ms| *since_ms < record.since_ms) {
                record = Arc::new(RoomMember { since_ms, ..(*record).clone() });
            }
            let entry = self.remove(now, options, left, Absence::Ended);
            replaces = entry.and_then(|entry| if entry.is_reported { Some(left) } else { entry.replaces });
        }
        let has_room = self.listed.len() < options.members_max;
        if has_room {
            self.listed.insert(id);
        }
        let is_reported = !self.is_watched || self.forget_gone(id);
        if !is_reported {
            self.fresh.insert(id);
        }
        let record = has_room.then(|| Record::new(record, node != THIS_NODE));
        let entry = Entry { node, record, leaves_at: None, is_reported, replaces };
        self.records_bytes += entry.record_bytes();
        self.entries.insert(id, entry);
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
        let Some(entry) = self.entries.get_mut(&id) else { return };
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
        self.leaving_at.insert((at, id));
        if let Some(user) = user {
            self.leaving.insert((user, id));
        }
        self.disappear(now, options, id, node, absence);
    }

    /// Keeps a member that was about to leave.
    fn stay(&mut self, id: MemberId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some(at) = entry.leaves_at.take() else {
            // The member is counted on the node where it was present.
            let node = entry.node;
            self.uncount(node);
            return;
        };
        self.leaving_at.remove(&(at, id));
        let user = entry.user();
        self.forget_leaving(user, id);
    }

    fn set_node(&mut self, now: Instant, options: &PresenceOptions, id: MemberId, node: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.node == THIS_NODE && node != THIS_NODE {
            self.unpublish(now, options, id, Absence::Ended);
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            self.records_bytes -= entry.record_bytes();
            entry.node = node;
            // The member's texts may have belonged to a session that has left this node, so the record owns
            // them.
            entry.record = entry.record.take().map(|record| Record::new(record.member, true));
            self.records_bytes += entry.record_bytes();
        }
        self.appear(now, options, id, node);
    }

    /// Returns a member of a user who may return.
    fn first_leaving(&self, user: &User) -> Option<MemberId> {
        let from = (user.clone(), MemberId([0; 15]));
        self.leaving.range(from..).next().filter(|(of, _)| of == user).map(|(_, id)| *id)
    }

    fn forget_leaving(&mut self, user: Option<User>, id: MemberId) {
        if let Some(user) = user {
            self.leaving.remove(&(user, id));
        }
    }

    fn uncount(&mut self, node: u64) {
        if node == THIS_NODE {
            self.local -= 1;
        } else if let Some(source) = self.sources.get_mut(&node) {
            source.known = source.known.saturating_sub(1);
        }
    }

    /// Adds a member that is present on a node.
    fn appear(&mut self, now: Instant, options: &PresenceOptions, id: MemberId, node: u64) {
        if node != THIS_NODE {
            if let Some(source) = self.sources.get_mut(&node) {
                source.known += 1;
            }
            return;
        }
        self.local += 1;
        if self.lease_until.is_some() {
            match self.unpublished.remove(&id) {
                Some(Unpublished::Left(_)) => {}
                Some(Unpublished::Joined) | None => {
                    self.unpublished.insert(id, Unpublished::Joined);
                }
            }
            self.publish_at.get_or_insert(now + options.interval);
        } else {
            self.local_version += 1;
        }
    }

    /// Handles that a member is no longer present on a node.
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
            self.unpublish(now, options, id, absence);
        }
    }

    fn unpublish(&mut self, now: Instant, options: &PresenceOptions, id: MemberId, absence: Absence) {
        if self.lease_until.is_some() {
            if !matches!(self.unpublished.remove(&id), Some(Unpublished::Joined)) {
                self.unpublished.insert(id, Unpublished::Left(absence));
            }
            self.publish_at.get_or_insert(now + options.interval);
        } else {
            self.local_version += 1;
        }
    }

    fn remove(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        id: MemberId,
        absence: Absence,
    ) -> Option<Entry> {
        let entry = self.remove_entry(id)?;
        match entry.leaves_at {
            Some(at) => {
                self.leaving_at.remove(&(at, id));
                self.forget_leaving(entry.user(), id);
            }
            None => self.disappear(now, options, id, entry.node, absence),
        }
        if self.is_watched {
            if entry.is_reported {
                match &entry.record {
                    Some(record) => {
                        self.gone_bytes += record.bytes;
                        self.gone.insert(id, record.clone());
                    }
                    None => drop(self.gone_unlisted.insert(id)),
                }
            } else {
                self.fresh.remove(&id);
            }
        }
        self.changed(now, options);
        Some(entry)
    }

    fn remove_entry(&mut self, id: MemberId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.listed.remove(&id);
        self.records_bytes -= entry.record_bytes();
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
        self.gone.clear();
        self.gone_bytes = 0;
        self.gone_unlisted.clear();
        for id in std::mem::take(&mut self.fresh) {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.is_reported = true;
            }
        }
        self.sources.clear();
        // Without a watch, no node reports the members of other nodes any longer.
        let remote: Vec<MemberId> =
            self.entries.iter().filter(|(_, entry)| entry.node != THIS_NODE).map(|(id, _)| *id).collect();
        for id in remote {
            let Some(entry) = self.remove_entry(id) else { continue };
            if let Some(at) = entry.leaves_at {
                self.leaving_at.remove(&(at, id));
                self.forget_leaving(entry.user(), id);
            }
        }
    }

    /// Removes members whose grace period is over.
    pub(super) fn expire(&mut self, now: Instant, options: &PresenceOptions) {
        while let Some((at, id)) = self.leaving_at.first().copied().filter(|(at, _)| *at <= now) {
            self.leaving_at.remove(&(at, id));
            self.remove(now, options, id, Absence::Ended);
        }
    }

    /// Returns the changes for other nodes.
    pub(super) fn delta(&mut self, now: Instant, options: &PresenceOptions) -> Option<PresenceMessage> {
        self.publish_at = None;
        if self.unpublished.is_empty() {
            return None;
        }
        let mut left = Vec::new();
        let mut joined = Vec::new();
        for _ in 0..DELTA_CHANGES_MAX {
            let Some((id, change)) = self.unpublished.pop_first() else { break };
            match change {
                Unpublished::Left(absence) => left.push((id, absence)),
                Unpublished::Joined => {
                    joined.extend(self.entries.get(&id).and_then(Entry::member));
                }
            }
        }
        if !self.unpublished.is_empty() {
            self.publish_at = Some(now + options.interval);
        }
        let from = self.local_version;
        self.local_version += 1;
        Some(PresenceMessage::Delta { from, to: self.local_version, count: self.local, joined, left })
    }

    /// Stops publishing changes.
    pub(super) fn end_lease(&mut self) {
        (self.lease_until, self.publish_at) = (None, None);
        if !self.unpublished.is_empty() {
            self.unpublished.clear();
            self.local_version += 1;
        }
    }

    /// Returns all members of this node at its current version, for another node.
    pub(super) fn snapshot(&self) -> PresenceMessage {
        let here = |entry: &&Entry| entry.node == THIS_NODE && entry.leaves_at.is_none();
        let members = self.entries.values().filter(here).filter_map(Entry::member).collect();
        PresenceMessage::Snapshot { version: self.local_version, count: self.local, members }
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
        self.sources.insert(node, Source { version, count, known, confirmed_at: now });
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

    /// Removes the members of a node that is gone.
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
        let entries =
            self.entries.iter().filter(|(_, entry)| entry.node == node && entry.leaves_at.is_none());
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
