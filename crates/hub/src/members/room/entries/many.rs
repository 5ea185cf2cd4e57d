//! The members of a larger room.

use super::Few;
use crate::members::room::size::{map_bytes, set_bytes, trim};
use crate::members::room::{Entry, Unreported};
use crate::presence::{MemberId, User};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The entries of a larger room's members.
///
/// **Invariants.** `listed` has the members with a record, `unlisted` the others. `leaving` and `unreported` have the
/// members of either whose entries say so. `records_bytes` is the sum of the records' sizes.
#[derive(Default)]
pub(in crate::members::room) struct Many {
    pub(super) listed: BTreeMap<MemberId, Entry>,
    pub(super) unlisted: BTreeMap<MemberId, Entry>,
    pub(super) leaving: Leaving,
    unreported: BTreeSet<MemberId>,
    records_bytes: usize,
}

impl FromIterator<Entry> for Many {
    fn from_iter<T: IntoIterator<Item = Entry>>(entries: T) -> Self {
        let mut many = Self::default();
        entries.into_iter().for_each(|entry| many.insert(entry));
        many
    }
}

impl Many {
    pub(super) fn insert(&mut self, entry: Entry) {
        let id = entry.id;
        self.records_bytes += entry.record_bytes();
        self.leaving.insert(entry.leaves_at, id, entry.user().cloned());
        if entry.unreported.is_some() {
            self.unreported.insert(id);
        }
        let entries = if entry.member.is_some() { &mut self.listed } else { &mut self.unlisted };
        entries.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: MemberId) -> Option<Entry> {
        let entry = self.listed.remove(&id).or_else(|| self.unlisted.remove(&id))?;
        self.records_bytes -= entry.record_bytes();
        self.leaving.remove(entry.leaves_at, id, entry.user().cloned());
        self.unreported.remove(&id);
        Some(entry)
    }

    pub(super) fn move_to(&mut self, id: MemberId, node: u64) {
        if let Some(mut entry) = self.remove(id) {
            (entry.node, entry.owns_texts) = (node, true);
            self.insert(entry);
        }
    }

    pub(super) fn set_leaves_at(&mut self, id: MemberId, leaves_at: Option<Instant>) {
        if let Some(mut entry) = self.remove(id) {
            entry.leaves_at = leaves_at;
            self.insert(entry);
        }
    }

    /// Marks all members as known to watchers. Returns those that weren't, in the order of their ids.
    pub(super) fn report(&mut self) -> Vec<(MemberId, Unreported)> {
        let Self { listed, unlisted, unreported, .. } = self;
        let mut take = |id| {
            let entry = listed.get_mut(&id).or_else(|| unlisted.get_mut(&id))?;
            Some((id, entry.unreported.take()?))
        };
        std::mem::take(unreported).into_iter().filter_map(&mut take).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.listed.len() + self.unlisted.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.listed.values().chain(self.unlisted.values())
    }

    pub(super) fn into_few(self) -> Few {
        let mut few = Few::with_capacity(self.len());
        few.extend(self.listed.into_values().chain(self.unlisted.into_values()));
        few.sort_unstable_by_key(|entry| entry.id);
        few
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.records_bytes
            + map_bytes(&self.listed)
            + map_bytes(&self.unlisted)
            + set_bytes(&self.leaving.by_user)
            + set_bytes(&self.leaving.by_time)
            + set_bytes(&self.unreported)
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        trim(&mut self.listed, BTreeMap::is_empty);
        trim(&mut self.unlisted, BTreeMap::is_empty);
        trim(&mut self.leaving.by_user, BTreeSet::is_empty);
        trim(&mut self.leaving.by_time, BTreeSet::is_empty);
        trim(&mut self.unreported, BTreeSet::is_empty);
    }

    /// Returns `true` if the invariants hold. Takes time linear in the members.
    pub(super) fn is_counted(&self) -> bool {
        let by_time = self.iter().filter_map(|entry| Some((entry.leaves_at?, entry.id)));
        let unreported = self.iter().filter(|entry| entry.unreported.is_some()).map(|entry| entry.id);
        let of_users = self.iter().filter(|entry| entry.leaves_at.is_some() && entry.user().is_some());
        self.listed.values().all(|entry| entry.member.is_some())
            && self.unlisted.values().all(|entry| entry.member.is_none())
            && self.leaving.by_time == by_time.collect()
            && self.leaving.by_user.len() == of_users.count()
            && self.unreported == unreported.collect()
            && self.records_bytes == self.iter().map(Entry::record_bytes).sum::<usize>()
    }
}

/// Members whose session has ended. They leave when the grace period is over.
#[derive(Default)]
pub(super) struct Leaving {
    pub(super) by_time: BTreeSet<(Instant, MemberId)>,
    /// Members of users who may return.
    by_user: BTreeSet<(User, MemberId)>,
}

impl Leaving {
    pub(super) fn insert(&mut self, at: Option<Instant>, id: MemberId, user: Option<User>) {
        let Some(at) = at else { return };
        self.by_time.insert((at, id));
        self.by_user.extend(user.map(|user| (user, id)));
    }

    pub(super) fn remove(&mut self, at: Option<Instant>, id: MemberId, user: Option<User>) {
        let Some(at) = at else { return };
        self.by_time.remove(&(at, id));
        user.map(|user| self.by_user.remove(&(user, id)));
    }

    /// Returns a member of a user.
    pub(super) fn first_of(&self, user: &User) -> Option<MemberId> {
        let from = (user.clone(), MemberId([0; 15]));
        self.by_user.range(from..).next().filter(|(of, _)| of == user).map(|(_, id)| *id)
    }
}
