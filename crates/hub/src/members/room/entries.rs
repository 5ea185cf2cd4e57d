//! The entries of a room's members.
//!
//! **Invariants.** `listed` has the members with a record. `records_bytes` is the sum of the records' sizes.

use super::size::{map_bytes, set_bytes, trim};
use super::{Entry, Record};
use crate::presence::MemberId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Entries {
    /// A change of a record goes through [`Entries::move_to`].
    pub(super) by_id: BTreeMap<MemberId, Entry>,
    /// Lets a list skip the entries without a record.
    pub(super) listed: BTreeSet<MemberId>,
    records_bytes: usize,
}

impl Entries {
    /// Adds a member that isn't among the entries.
    pub(super) fn insert(&mut self, id: MemberId, entry: Entry) {
        if entry.record.is_some() {
            self.listed.insert(id);
        }
        self.records_bytes += entry.record_bytes();
        self.by_id.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: MemberId) -> Option<Entry> {
        let entry = self.by_id.remove(&id)?;
        self.listed.remove(&id);
        self.records_bytes -= entry.record_bytes();
        Some(entry)
    }

    /// Records that a member is on another node than before.
    pub(super) fn move_to(&mut self, id: MemberId, node: u64) {
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        self.records_bytes -= entry.record_bytes();
        entry.node = node;
        // The member's texts may have belonged to a session that has left this node, so the record owns
        // them.
        entry.record = entry.record.take().map(|record| Record::new(record.member, true));
        self.records_bytes += entry.record_bytes();
    }

    /// Returns the approximate size in bytes, without texts of this node's sessions.
    pub(super) fn bytes(&self) -> usize {
        self.records_bytes + map_bytes(&self.by_id) + set_bytes(&self.listed)
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        trim(&mut self.by_id, BTreeMap::is_empty);
        trim(&mut self.listed, BTreeSet::is_empty);
    }

    /// Returns `true` if the invariants hold. Takes time linear in the members.
    pub(super) fn is_counted(&self) -> bool {
        let listed = self.by_id.iter().filter(|(_, entry)| entry.record.is_some());
        self.records_bytes == self.by_id.values().map(Entry::record_bytes).sum::<usize>()
            && listed.map(|(id, _)| id).eq(&self.listed)
    }
}
