//! Tables and queues that free their memory after most of their entries are gone, and the memory of short lists.
//!
//! Clients decide how many rooms and feeds exist at a time. A `HashMap` and a `VecDeque` keep the memory of
//! the largest number that ever existed.

use smallvec::SmallVec;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::ops::{Deref, DerefMut};

/// A table with at most this capacity doesn't shrink.
const IDLE_MAX: usize = 1024;
/// A larger table shrinks when its length is below this fraction of its capacity.
const FILL_MIN: usize = 8;

/// A `HashMap` with capacity for at most eight times its entries, or for 1,024. Remove entries with its own
/// functions.
#[derive(Debug)]
pub struct ShrinkingMap<K, V, S = RandomState> {
    entries: HashMap<K, V, S>,
    /// The capacity. (`entries` reports a smaller one after each removal.)
    capacity: usize,
}

impl<K, V, S: Default> Default for ShrinkingMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S> ShrinkingMap<K, V, S> {
    /// Makes an empty table.
    pub fn with_hasher(hasher: S) -> Self {
        Self { entries: HashMap::with_hasher(hasher), capacity: 0 }
    }

    /// Returns the number of entries for which the table has memory.
    pub fn capacity(&self) -> usize {
        self.capacity.max(self.entries.capacity())
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> ShrinkingMap<K, V, S> {
    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.capacity = self.capacity();
        let removed = self.entries.remove(key);
        self.shrink();
        removed
    }

    /// Removes the entries for which `is_kept` returns `false`.
    pub fn retain(&mut self, is_kept: impl FnMut(&K, &mut V) -> bool) {
        self.capacity = self.capacity();
        self.entries.retain(is_kept);
        self.shrink();
    }

    /// Shrinks the table after most entries are gone, not with each removal.
    fn shrink(&mut self) {
        if self.capacity > IDLE_MAX && self.entries.len() < self.capacity / FILL_MIN {
            self.entries.shrink_to(self.entries.len() * 2);
            self.capacity = self.entries.capacity();
        }
    }
}

impl<K, V, S> Deref for ShrinkingMap<K, V, S> {
    type Target = HashMap<K, V, S>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl<K, V, S> DerefMut for ShrinkingMap<K, V, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.entries
    }
}

/// Removes the first item of a queue. An emptied queue keeps no memory.
pub fn pop_front<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if first.is_none() {
        *queue = VecDeque::new();
    }
    first
}

/// Returns the capacity of a list's own allocation. 0 while the list is inline.
pub(crate) fn spilled<A: smallvec::Array>(list: &SmallVec<A>) -> usize {
    if list.spilled() { list.capacity() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shrinks_after_most_entries_are_removed() {
        let mut table = ShrinkingMap::<u32, u32>::default();
        let all = 7_000;
        table.extend((0..all).map(|n| (n, n)));
        let full = table.capacity();
        for n in 0..all {
            assert_eq!(table.remove(&n), Some(n));
            assert!(table.capacity() <= (table.len() * 2 * FILL_MIN).max(2 * IDLE_MAX), "{n}");
        }
        assert!(full >= 7_000 && table.capacity() <= IDLE_MAX, "{}", table.capacity());
        table.extend((0..all).map(|n| (n, n)));
        table.retain(|n, _| *n < 10);
        assert!(table.capacity() < 100 && table.len() == 10, "{}", table.capacity());
    }

    #[test]
    fn a_small_table_and_a_queue_in_use_keep_their_memory() {
        let mut table = ShrinkingMap::<u32, ()>::default();
        table.extend((0..500).map(|n| (n, ())));
        let full = table.capacity();
        table.retain(|_, ()| false);
        assert_eq!(table.capacity(), full);
        let mut queue: VecDeque<u32> = (0..500).collect();
        let full = queue.capacity();
        for n in 0..500 {
            assert_eq!((pop_front(&mut queue), queue.capacity()), (Some(n), full));
        }
        assert_eq!((pop_front(&mut queue), queue.capacity()), (None, 0));
    }
}
