//! The members of one room, at the home core of its presence.
//!
//! A member whose session has ended stays for the grace period, unless it left deliberately. If its user
//! joins with another session meanwhile, that session takes the member's place.
//!
//! Nearly all rooms have few members, and no watcher, so a room has memory for more only while it needs it.
//!
//! **Invariants.** While the room is watched, notices have covered the members without `unreported`, by name or in
//! the count `more`. The next notice covers the members of `gone`, which have left. Members without a record are only
//! counted.

mod entries;
mod gone;
mod notice;
mod own;
mod page;
mod size;
mod watch;

pub(super) use size::{table_bytes, tree_bytes};
pub(super) use watch::{Source, Watch};

use crate::presence::{Absence, MemberId, PresenceMessage, PresenceOptions, RoomMember, User};
use entries::Entries;
use own::OwnMembers;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Stands for this node where other nodes have their ids.
pub(super) const THIS_NODE: u64 = 0;

struct Entry {
    id: MemberId,
    /// `true` if the member's texts don't belong to a session of this node.
    owns_texts: bool,
    node: u64,
    /// The member as clients see it. `None` if the room has too many members to list this one.
    member: Option<Arc<RoomMember>>,
    leaves_at: Option<Instant>,
    /// `None` if notices have covered the member, or the room isn't watched.
    unreported: Option<Unreported>,
}

/// A member that the next notice covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unreported {
    /// The member that watchers know and whose place this one has taken.
    replaces: Option<MemberId>,
}

impl Entry {
    fn user(&self) -> Option<&User> {
        self.member.as_ref()?.user.as_ref()
    }

    fn is_present_on(&self, node: u64) -> bool {
        self.node == node && self.leaves_at.is_none()
    }
}

/// The members of a room.
#[derive(Default)]
pub(super) struct RoomPresence {
    entries: Entries,
    pub(super) own: OwnMembers,
    /// `None` while no session of this node watches the room.
    pub(super) watch: Option<Box<Watch>>,
    /// The version of the last notice.
    version: u64,
}

impl RoomPresence {
    /// Makes a room without members.
    pub(super) fn new(own_version: u64) -> Self {
        Self { own: OwnMembers::new(own_version), ..Self::default() }
    }

    /// Returns the time of the next due action.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let leaving = self.entries.first_leaving().map(|(at, _)| at);
        let watch = self.watch.as_ref().and_then(|watch| watch.poll_timeout());
        [leaving, watch, self.own.poll_timeout()].into_iter().flatten().min()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.entries() == 0 && self.watch.is_none() && self.own.lease.is_none()
    }

    /// Returns the number of members, including those that may return.
    pub(super) fn count(&self) -> usize {
        self.entries() + self.watch.as_ref().map_or(0, |watch| watch.unknown())
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn join(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        node: u64,
        mut member: Arc<RoomMember>,
    ) {
        let id = member.id;
        let mut replaces = None;
        if let Some(before) = self.entries.get(id) {
            // The session has been resumed, or has moved from another node.
            if before.is_present_on(node) {
                return;
            }
            self.stay(id);
            self.set_node(now, options, id, node);
            return;
        }
        if let Some(user) = &member.user
            && let Some(left) = self.entries.leaving_of(user)
        {
            let since_ms = self.entries.get(left).and_then(|left| Some(left.member.as_ref()?.since_ms));
            if let Some(since_ms) = since_ms.filter(|since_ms| *since_ms < member.since_ms) {
                member = Arc::new(RoomMember { since_ms, ..(*member).clone() });
            }
            let entry = self.remove(now, options, left, Absence::Ended);
            replaces = entry.and_then(|entry| entry.unreported.map_or(Some(left), |news| news.replaces));
        }
        let has_room = self.entries.listed_len() < options.members_max;
        let is_reported = self.watch.as_mut().is_none_or(|watch| watch.returned(id));
        self.entries.insert(Entry {
            id,
            owns_texts: node != THIS_NODE,
            node,
            member: has_room.then_some(member),
            leaves_at: None,
            unreported: (!is_reported).then_some(Unreported { replaces }),
        });
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
        let Some(entry) = self.entries.get(id) else { return };
        if entry.node != node || entry.leaves_at.is_some() {
            return;
        }
        let may_return = match absence {
            Absence::Unsubscribed => false,
            Absence::Ended => entry.user().is_some(),
            Absence::Suspended => true,
        };
        if !may_return || options.grace.is_zero() {
            self.remove(now, options, id, absence);
            return;
        }
        self.entries.set_leaves_at(id, Some(now + options.grace));
        self.disappear(now, options, id, node, absence);
    }

    /// Keeps a member that was about to leave.
    fn stay(&mut self, id: MemberId) {
        let Some(entry) = self.entries.get(id) else { return };
        let (node, is_leaving) = (entry.node, entry.leaves_at.is_some());
        if is_leaving {
            self.entries.set_leaves_at(id, None);
        } else {
            // The member is counted on the node where it was present.
            self.uncount(node);
        }
    }

    fn set_node(&mut self, now: Instant, options: &PresenceOptions, id: MemberId, node: u64) {
        let Some(entry) = self.entries.get(id) else { return };
        if entry.node == THIS_NODE && node != THIS_NODE {
            self.own.leave(now, options.interval, id, Absence::Ended);
        }
        self.entries.move_to(id, node);
        self.appear(now, options, id, node);
    }

    fn uncount(&mut self, node: u64) {
        if node == THIS_NODE {
            self.own.count -= 1;
        } else if let Some(source) = self.source_mut(node) {
            source.known = source.known.saturating_sub(1);
        }
    }

    /// Returns what is known of another node. `None` if nothing, or if the room isn't watched.
    fn source_mut(&mut self, node: u64) -> Option<&mut Source> {
        self.watch.as_mut()?.sources.find_mut(node)
    }

    /// Adds a member that is present on a node.
    fn appear(&mut self, now: Instant, options: &PresenceOptions, id: MemberId, node: u64) {
        if node == THIS_NODE {
            self.own.join(now, options.interval, id);
        } else if let Some(source) = self.source_mut(node) {
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
        if entry.leaves_at.is_none() {
            self.disappear(now, options, id, entry.node, absence);
        }
        if let Some(watch) = &mut self.watch {
            watch.left(now + options.interval, &entry);
        }
        Some(entry)
    }

    /// Schedules a notice for watchers.
    fn changed(&mut self, now: Instant, options: &PresenceOptions) {
        if let Some(watch) = &mut self.watch {
            watch.changed(now + options.interval);
        }
    }

    /// Returns the state of the watch, which begins with this call unless it has already begun.
    pub(super) fn watch(&mut self) -> &mut Watch {
        let count = self.count();
        self.watch.get_or_insert_with(|| Box::new(Watch::new(count)))
    }

    pub(super) fn unwatch(&mut self) {
        self.watch = None;
        self.entries.report();
        // Without a watch, no node reports the members of other nodes any longer.
        let remote = self.entries.iter().filter(|entry| entry.node != THIS_NODE);
        let remote: Vec<MemberId> = remote.map(|entry| entry.id).collect();
        for id in remote {
            self.entries.remove(id);
        }
    }

    /// Removes members whose grace period is over.
    pub(super) fn expire(&mut self, now: Instant, options: &PresenceOptions) {
        while let Some((_, id)) = self.entries.first_leaving().filter(|(at, _)| *at <= now) {
            self.remove(now, options, id, Absence::Ended);
        }
    }

    /// Returns the changes for other nodes.
    pub(super) fn delta(&mut self, now: Instant, options: &PresenceOptions) -> Option<PresenceMessage> {
        self.own.delta(now, options.interval, &self.entries)
    }

    /// Returns all members of this node at its current version, for another node.
    pub(super) fn snapshot(&self) -> PresenceMessage {
        let here = self.entries.listed(None).filter(|entry| entry.is_present_on(THIS_NODE));
        let members = here.filter_map(|entry| entry.member.clone()).collect();
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
        if let Some(watch) = &mut self.watch {
            watch.sources.set(node, version, count, now);
        }
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
        if let Some(source) = self.source_mut(node) {
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
        if !self.knows(node) {
            return;
        }
        self.leave_all(now, options, node, |_| true);
        if let Some(watch) = &mut self.watch {
            watch.sources.remove(node);
        }
    }

    fn leave_all(
        &mut self,
        now: Instant,
        options: &PresenceOptions,
        node: u64,
        leaves: impl Fn(&MemberId) -> bool,
    ) {
        let there = self.entries.iter().filter(|entry| entry.is_present_on(node));
        let left: Vec<MemberId> = there.map(|entry| entry.id).filter(|id| leaves(id)).collect();
        for id in left {
            self.leave(now, options, node, id, Absence::Ended);
        }
    }

    /// Returns `true` if the room knows members of this node.
    pub(super) fn knows(&self, node: u64) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.sources.find(node).is_some())
    }
}
