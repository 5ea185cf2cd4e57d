//! The memory of a room's presence.
//!
//! Most rooms are small, and nearly all of their memory is the first nodes of trees. So trees are counted by
//! their nodes.

use super::{Record, RoomPresence};
use crate::presence::RoomMember;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Number of entries of a full node of the standard library's trees.
const NODE_ENTRIES_MAX: usize = 11;
/// Size of a node without its entries, in bytes.
const NODE_BYTES: usize = 2 * size_of::<usize>();
/// Additional memory of an inner node, in bytes.
const CHILDREN_BYTES: usize = (NODE_ENTRIES_MAX + 1) * size_of::<usize>();
/// Entries per leaf in a tree of several leaves: about the mean of ascending and random insertion.
const LEAF_ENTRIES: usize = 8;
/// Size of the counters of a shared allocation, in bytes.
const SHARED_BYTES: usize = 2 * size_of::<usize>();

/// Returns the approximate size of a tree in bytes, exact up to one leaf.
pub(in crate::members) fn tree_bytes<T>(entries: usize) -> usize {
    let leaf = NODE_BYTES + NODE_ENTRIES_MAX * size_of::<T>();
    match entries {
        0 => 0,
        1..=NODE_ENTRIES_MAX => leaf,
        _ => {
            let leaves = entries.div_ceil(LEAF_ENTRIES);
            leaves * leaf + leaves.div_ceil(LEAF_ENTRIES) * (leaf + CHILDREN_BYTES)
        }
    }
}

/// Returns the size of a hash table, of which an eighth stays free.
pub(in crate::members) fn table_bytes<T>(capacity: usize) -> usize {
    capacity * 8 / 7 * (size_of::<T>() + 1)
}

pub(super) fn map_bytes<K, V>(map: &BTreeMap<K, V>) -> usize {
    tree_bytes::<(K, V)>(map.len())
}

pub(super) fn set_bytes<T>(set: &BTreeSet<T>) -> usize {
    tree_bytes::<T>(set.len())
}

/// Frees the node that an emptied tree keeps.
pub(super) fn trim<T: Default>(tree: &mut T, is_empty: impl FnOnce(&T) -> bool) {
    if is_empty(tree) {
        *tree = T::default();
    }
}

impl Record {
    /// Makes a record. `owns_texts` is `true` if the texts don't belong to a session of this node.
    pub(super) fn new(member: Arc<RoomMember>, owns_texts: bool) -> Self {
        let text_bytes = |text: &Arc<str>| SHARED_BYTES + text.len();
        let user = member.user.as_ref().map(|user| text_bytes(&user.issuer) + text_bytes(&user.subject));
        let texts = user.unwrap_or(0) + member.info.as_ref().map_or(0, text_bytes);
        let bytes = SHARED_BYTES + size_of::<RoomMember>() + if owns_texts { texts } else { 0 };
        Self { member, bytes }
    }
}

impl RoomPresence {
    /// Returns the approximate size of the referenced memory, without texts of this node's sessions. 0 if it
    /// is unused.
    pub(in crate::members) fn bytes(&self) -> usize {
        self.entries.bytes()
            + self.leaving.bytes()
            + self.own.bytes()
            + map_bytes(&self.sources)
            + set_bytes(&self.fresh)
            + self.gone.bytes()
    }

    /// Frees the nodes of empty trees.
    pub(in crate::members) fn trim(&mut self) {
        self.entries.trim();
        self.leaving.trim();
        self.own.trim();
        trim(&mut self.sources, BTreeMap::is_empty);
        trim(&mut self.fresh, BTreeSet::is_empty);
        self.gone.trim();
    }

    /// Returns `true` if the running sums are right. Takes time linear in the members.
    pub(in crate::members) fn is_counted(&self) -> bool {
        self.entries.is_counted() && self.gone.is_counted()
    }
}
