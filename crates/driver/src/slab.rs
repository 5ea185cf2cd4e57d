//! Storage for connections and timers: stable small indices, generations, O(1) everywhere.
//!
//! It grows by fixed chunks, so that the hundred-thousandth connection doesn't copy the others and memory
//! doesn't peak at three times its use. A removed entry's index is reused (last in, first out, while it is
//! still in the cache) with another generation, so a stale key finds no entry.
//!
//! Invariants: `len` entries are occupied; every other slot is on the free list exactly once.

pub(crate) use stentor_frame::Key;

/// Number of entries per chunk: 256 of 64 bytes are four pages.
const CHUNK: usize = 256;

/// The end of the free list.
const NONE: u32 = u32::MAX;

/// Indices from this one on are never assigned: drivers use them to mark file descriptors other than
/// connections.
pub(crate) const INDEX_MAX: u32 = u32::MAX - 16;

struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// The storage; see the module's documentation.
pub(crate) struct Slab<T> {
    chunks: Vec<Box<[Slot<T>]>>,
    free: u32,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let slot = self.slot_mut(index);
        let next_free = slot.next_free;
        slot.value = Some(value);
        let generation = slot.generation;
        self.free = next_free;
        self.len += 1;
        Key { index, generation }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let free = self.free;
        let slot = self.chunks.get_mut(key.index as usize / CHUNK)?.get_mut(key.index as usize % CHUNK)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = free;
        self.free = key.index;
        self.len -= 1;
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.chunks.get(key.index as usize / CHUNK)?.get(key.index as usize % CHUNK)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.chunks.get_mut(key.index as usize / CHUNK)?.get_mut(key.index as usize % CHUNK)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// Removes all entries.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        std::mem::replace(self, Self::new())
            .chunks
            .into_iter()
            .flat_map(|chunk| chunk.into_vec().into_iter().filter_map(|slot| slot.value))
    }

    /// Returns the key of the entry at `index`, which must be occupied.
    pub(crate) fn key_at(&self, index: u32) -> Key {
        Key { index, generation: self.slot(index).generation }
    }

    /// Returns the entry at `index`, if there is one, and its key.
    #[inline]
    pub(crate) fn entry_at(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let slot = self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)?;
        Some((Key { index, generation: slot.generation }, slot.value.as_mut()?))
    }

    /// Returns the entry at `index`, which must be occupied: for lists threaded through the entries.
    pub(crate) fn at(&self, index: u32) -> &T {
        self.slot(index).value.as_ref().unwrap_or_else(|| panic!("slab: index {index} is vacant"))
    }

    /// Like [`Slab::at`], mutable.
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        self.slot_mut(index).value.as_mut().unwrap_or_else(|| panic!("slab: index {index} is vacant"))
    }

    fn slot(&self, index: u32) -> &Slot<T> {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK;
        assert!(first + CHUNK <= INDEX_MAX as usize, "slab: out of indices");
        let first = first as u32;
        let last = first + CHUNK as u32 - 1;
        self.chunks.push(
            (first..=last)
                .map(|index| Slot {
                    generation: 0,
                    next_free: if index == last { NONE } else { index + 1 },
                    value: None,
                })
                .collect(),
        );
        self.free = first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use std::collections::HashMap;

    #[test]
    fn stale_keys_find_nothing_and_indices_are_reused() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        let b = slab.insert("b");
        assert_eq!(slab.remove(a), Some("a"));
        assert_eq!(slab.remove(a), None);
        let c = slab.insert("c");
        assert_eq!(c.index, a.index);
        assert_ne!(c, a);
        assert_eq!((slab.get(a), slab.get(b), slab.get(c)), (None, Some(&"b"), Some(&"c")));
        assert_eq!(slab.len(), 2);
        assert_eq!(slab.get(Key { index: 5_000_000, generation: 0 }), None);
    }

    #[test]
    fn the_slab_behaves_like_a_map() {
        let mut random = Rng::with_seed(7);
        let (mut slab, mut model, mut dead) = (Slab::new(), HashMap::new(), Vec::new());
        for step in 0..if cfg!(miri) { 1_001 } else { 20_000 } {
            if random.usize(..5) < 3 || model.is_empty() {
                let key = slab.insert(step);
                assert!(model.insert(key, step).is_none());
            } else {
                let key = *model.keys().nth(random.usize(..model.len())).unwrap();
                assert_eq!(slab.remove(key), model.remove(&key));
                dead.push(key);
            }
            assert_eq!(slab.len(), model.len());
            if step % 1000 == 0 {
                assert!(model.iter().all(|(key, value)| slab.get(*key) == Some(value)));
                assert!(dead.iter().all(|key| slab.get(*key).is_none()));
            }
        }
    }
}
