//! The memory of a room's presence.
//!
//! Most of the memory of a small tree is its first node. So trees are counted by their nodes.

use super::{Entry, RoomPresence};
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

impl Entry {
    /// Returns the size of the member's record in bytes, without texts of a session of this node.
    pub(super) fn record_bytes(&self) -> usize {
        let Some(member) = &self.member else { return 0 };
        let user = member.user.iter().flat_map(|user| [&user.issuer, &user.subject]);
        let texts = user.chain(&member.info).filter(|_| self.owns_texts);
        let text_bytes = |text: &Arc<str>| SHARED_BYTES + text.len();
        SHARED_BYTES + size_of::<RoomMember>() + texts.map(text_bytes).sum::<usize>()
    }
}

impl RoomPresence {
    /// Returns the approximate size of the referenced memory, without texts of this node's sessions. 0 if it
    /// is unused.
    pub(in crate::members) fn bytes(&self) -> usize {
        self.entries.bytes() + self.own.bytes() + self.watch.as_ref().map_or(0, |watch| watch.bytes())
    }

    /// Frees the nodes of empty trees.
    pub(in crate::members) fn trim(&mut self) {
        self.entries.trim();
        self.own.trim();
        if let Some(watch) = &mut self.watch {
            watch.trim();
        }
    }

    /// Returns `true` if the running sums are right. Takes time linear in the members.
    pub(in crate::members) fn is_counted(&self) -> bool {
        self.entries.is_counted() && self.watch.as_ref().is_none_or(|watch| watch.is_counted())
    }
}
