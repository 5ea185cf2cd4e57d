//! Members that watchers know and that have left since the last notice.

use super::Entry;
use super::size::{map_bytes, set_bytes, trim};
use crate::presence::{MemberId, RoomMember};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A member as clients see it, and the size of this data in bytes.
pub(super) struct Record {
    pub(super) member: Arc<RoomMember>,
    bytes: usize,
}

#[derive(Default)]
pub(super) struct Gone {
    pub(super) records: BTreeMap<MemberId, Record>,
    /// Size of the records in bytes.
    records_bytes: usize,
    /// Members without a record.
    pub(super) unlisted: BTreeSet<MemberId>,
}

impl Gone {
    pub(super) fn len(&self) -> usize {
        self.records.len() + self.unlisted.len()
    }

    pub(super) fn contains(&self, id: MemberId) -> bool {
        self.records.contains_key(&id) || self.unlisted.contains(&id)
    }

    pub(super) fn insert(&mut self, entry: &Entry) {
        match &entry.member {
            Some(member) => {
                let record = Record { member: member.clone(), bytes: entry.record_bytes() };
                self.records_bytes += record.bytes;
                self.records.insert(entry.id, record);
            }
            None => drop(self.unlisted.insert(entry.id)),
        }
    }

    /// Removes a member. Returns `true` if it was here.
    pub(super) fn remove(&mut self, id: MemberId) -> bool {
        match self.records.remove(&id) {
            Some(record) => {
                self.records_bytes -= record.bytes;
                true
            }
            None => self.unlisted.remove(&id),
        }
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.records_bytes + map_bytes(&self.records) + set_bytes(&self.unlisted)
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        trim(&mut self.records, BTreeMap::is_empty);
        trim(&mut self.unlisted, BTreeSet::is_empty);
    }

    /// Returns `true` if the running sum is right.
    pub(super) fn is_counted(&self) -> bool {
        self.records_bytes == self.records.values().map(|record| record.bytes).sum::<usize>()
    }
}
