//! The members of one room, at the home core of its presence.
//!
//! A member whose session has ended stays for the grace, unless it has left on purpose. If its user joins with another
//! session meanwhile, that one takes its place.
//!
//! **Invariants.** What watchers were notified of is exactly the members that are `is_reported`, and those of `gone`. `listed`
//! members have a record; the others are only counted. `leaving` has the members of users who may return.

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

/// Stands for this node. Others have their ids.
pub(super) const THIS_NODE: u64 = 0;

/// The shown part of a member, and its size.
#[derive(Clone)]
struct Record {
    member: Arc<RoomMember>,
    bytes: usize,
}

struct Entry {
    node: u64,
    /// `None`: it is one of too many.
    record: Option<Record>,
    leaves_at: Option<Instant>,
    is_reported: bool,
    /// The member whose place it has taken, of those that watchers know.
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

/// What is known of another node.
pub(super) struct Source {
    pub(super) version: u64,
    /// How many members it has, by its own count.
    count: usize,
    /// How many of them are known here and present.
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
    /// Those of `entries` that have a record: a list passes over no others.
    listed: BTreeSet<MemberId>,
    /// Size of the records.
    records_bytes: usize,
    /// Members of this node that are present.
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
    /// Size of their records.
    gone_bytes: usize,
    /// The same, without a record.
    gone_unlisted: BTreeSet<MemberId>,
    /// Changes since the last notice.
    changes: usize,
    pub(super) notify_at: Option<Instant>,
    /// Until when changes are published to other nodes.
    pub(super) lease_until: Option<Instant>,
    /// The version that other nodes know this node's members by.
    pub(super) local_version: u64,
    unpublished: BTreeMap<MemberId, Unpublished>,
    pub(super) publish_at: Option<Instant>,
    pub(super) watch_at: Option<Instant>,
    /// When this node last said that it watches.
    pub(super) watched_at: Option<Instant>,
    /// When it stops watching, since its last watcher has left.
    pub(super) unwatch_at: Option<Instant>,
    /// What the last notice said.
    last_count: usize,
}

impl RoomPresence {
    /// A room without members.
    pub(super) fn new(local_version: u64, lease_until: Option<Instant>) -> Self {
        Self { local_version, lease_until, ..Self::default() }
    }

    /// When something is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let grace = self.leaving_at.first().map(|(at, _)| *at);
        let all = [self.notify_at, self.publish_at, self.watch_at, self.unwatch_at, self.lease_until, grace];
        all.into_iter().flatten().min()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.entries.is_empty() && !self.is_watched && self.lease_until.is_none() && self.gone_count() == 0
    }

    /// How many members there are, those that may return included.
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

    /// A member that has left isn't to be reported as such. Returns whether it was.
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

    /// A member that was about to leave doesn't.
    fn stay(&mut self, id: MemberId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some(at) = entry.leaves_at.take() else {
            // It is counted as present where it was.
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
            // If its texts were those of a session, that isn't here any more.
            entry.record = entry.record.take().map(|record| Record::new(record.member, true));
            self.records_bytes += entry.record_bytes();
        }
        self.appear(now, options, id, node);
    }

    /// A session of a user who may return.
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

    /// A member is present on a node.
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

    /// A member isn't present on a node any more.
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

    /// Watchers have something to learn.
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
        // Nobody says any more which members other nodes have.
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

    /// Removes those whose grace is over.
    pub(super) fn expire(&mut self, now: Instant, options: &PresenceOptions) {
        while let Some((at, id)) = self.leaving_at.first().copied().filter(|(at, _)| *at <= now) {
            self.leaving_at.remove(&(at, id));
            self.remove(now, options, id, Absence::Ended);
        }
    }

    /// Changes for other nodes.
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

    /// Changes needn't be published any more.
    pub(super) fn end_lease(&mut self) {
        (self.lease_until, self.publish_at) = (None, None);
        if !self.unpublished.is_empty() {
            self.unpublished.clear();
            self.local_version += 1;
        }
    }

    /// All members of this node as of its version, for another one.
    pub(super) fn snapshot(&self) -> PresenceMessage {
        let here = |entry: &&Entry| entry.node == THIS_NODE && entry.leaves_at.is_none();
        let members = self.entries.values().filter(here).filter_map(Entry::member).collect();
        PresenceMessage::Snapshot { version: self.local_version, count: self.local, members }
    }

    /// Another node says which members it has.
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

    /// A node is gone.
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

    /// Whether a lost node is known here.
    pub(super) fn knows(&self, node: u64) -> bool {
        self.sources.contains_key(&node)
    }
}
