//! Ids of publications: unique in the process without communication between cores. An id from before a
//! restart, or of another node, almost never matches. A message has the same id on all nodes: the id that its
//! publisher drew, or one derived from its position.
//!
//! An id mixes the core's number and a counter with a key of the process. The mixing is one-to-one
//! (SplitMix64's finalizer), so different cores and counters give different ids. The hashes of names depend
//! on the process's seed, which clients must not learn from ids. So the key is only a hash of the seed.

use crate::dispatch::{CORES_MAX, CoreId};
use crate::publication::Position;
use crate::topic::Room;
use crate::topics::Seeded;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

/// Number of bits for the core; the other bits are the counter.
const CORE_BITS: u32 = CORES_MAX.ilog2();

/// Draws the ids of one core's publications.
pub(crate) struct Ids {
    keys: [u64; 2],
    next: u64,
}

impl Ids {
    pub(crate) fn new(core: CoreId, seed: [u64; 2]) -> Self {
        let keys = [0, 1].map(|n| Seeded(seed).hash_one(("publication ids", n)));
        Self { keys, next: (core as u64) << (u64::BITS - CORE_BITS) }
    }

    /// Returns a new id, never 0.
    pub(crate) fn draw(&mut self) -> u64 {
        loop {
            let mut id = self.next ^ self.keys[0];
            self.next += 1;
            id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            id = id ^ (id >> 31) ^ self.keys[1];
            if id != 0 {
                return id;
            }
        }
    }
}

/// Returns the id of a room's message at a position. It is the same on all nodes.
pub(crate) fn id_at(room: &Room, position: Position) -> Option<NonZeroU64> {
    // Unkeyed hash, because nodes have no key in common.
    let mut hasher = DefaultHasher::new();
    (room.namespace(), room.name(), position.epoch.0, position.offset).hash(&mut hasher);
    NonZeroU64::new(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_between_cores_and_processes() {
        let mut seen = HashSet::new();
        for seed in [[0, 0], [1, 0], [0, 1]] {
            for core in [0, 1, CORES_MAX - 1] {
                let mut ids = Ids::new(core, seed);
                seen.extend((0..1000).map(|_| ids.draw()));
            }
        }
        assert_eq!(seen.len(), 9000);
        assert!(!seen.contains(&0));
    }

    #[test]
    fn the_id_zero_is_never_drawn() {
        let mut ids = Ids::new(0, [0, 0]);
        // The number whose mixed value is 0.
        ids.keys = [ids.next, 0];
        assert_ne!(ids.draw(), 0);
    }
}
