//! Idempotency keys of clients' publications: a client that doesn't know whether a publication has arrived repeats it with the
//! same key, and the message is published once.
//!
//! The cores of a node share the keys, because a client reconnects to any core. A key counts per user and room, for [`TTL`]. Rooms
//! that the engine of a cluster orders have no entries here: the engine knows their keys, on all nodes.
//!
//! **Bounds.** `limits.idempotency_keys_max` keys, charged to the ledger. No key is forgotten early: publications with a key are refused
//! above the limit, and those of a source (a user, or the address of anonymous clients) that has as many keys as there are free. So one
//! source takes at most half of all keys, and there is always room for another one.

use crate::identity::SidHasher;
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::Principal;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stentor_hub::Room;

/// Time for which a key is kept, as for keys of the admin API and of engines.
const TTL: Duration = Duration::from_secs(300);
/// Approximate size of a key and of its source's count, in bytes.
const KEY_BYTES: usize = 144;

/// State of a publication's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The key is new, and is known from now on. The caller publishes the message.
    New,
    /// A message with this key has been published.
    Published,
    /// Another node, or an earlier process of this one, may have published the message.
    Unknown,
    /// There are too many keys, or too many of this source.
    Full,
}

#[derive(Default)]
struct Keys {
    all: HashSet<u128, BuildHasherDefault<SidHasher>>,
    /// The keys with their sources and the times at which they were recorded, oldest first.
    by_age: VecDeque<(Instant, u128, u64)>,
    /// Number of keys of each source, by its hash.
    by_source: HashMap<u64, usize, BuildHasherDefault<SidHasher>>,
}

/// The keys of the publications of the last five minutes.
pub(crate) struct PublishedKeys {
    keys: Mutex<Keys>,
    /// Maximum number of keys.
    keys_max: AtomicUsize,
    seed: [u64; 2],
    charge: Charge,
}

impl PublishedKeys {
    /// No keys. `seed` is secret, so that clients can't choose keys with the same hash.
    pub(crate) fn new(seed: [u64; 2], keys_max: usize, ledger: Arc<Ledger>) -> Self {
        let charge = Charge::new(ledger, Class::PublicationKeys);
        Self { keys: Mutex::default(), keys_max: AtomicUsize::new(keys_max), seed, charge }
    }

    /// Sets the maximum number of keys. Keys above a lower one stay until they are old.
    pub(crate) fn set_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Ordering::Relaxed);
    }

    /// The hash of a user's texts. Different numbers give different hashes.
    fn hash(&self, number: u64, user: Option<&Principal>, texts: &[&str]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for word in [self.seed[0], self.seed[1], number, u64::from(user.is_some())] {
            hasher.write_u64(word);
        }
        let (issuer, subject) = user.map_or(("", ""), |user| (&*user.issuer, &*user.subject));
        for text in [issuer, subject].iter().chain(texts) {
            hasher.write_usize(text.len());
            hasher.write(text.as_bytes());
        }
        hasher.finish()
    }

    /// Records a publication of a user, or of an anonymous client of an address, that is about to be published, unless its key is
    /// known. `is_foreign`: the client first sent it to another node or process.
    pub(crate) fn record(
        &self,
        now: Instant,
        (user, address): (Option<&Principal>, u64),
        (room, key): (&Room, &str),
        is_foreign: bool,
    ) -> Recorded {
        let texts = [room.namespace(), room.name(), key];
        let hash = u128::from(self.hash(0, user, &texts)) << 64 | u128::from(self.hash(1, user, &texts));
        let source = if user.is_some() { self.hash(2, user, &[]) } else { self.hash(address, None, &[]) };
        let mut keys = self.keys.lock();
        let Keys { all, by_age, by_source } = &mut *keys;
        while let Some((at, oldest, source)) = by_age.front()
            && now.saturating_duration_since(*at) >= TTL
        {
            all.remove(oldest);
            if let Entry::Occupied(mut count) = by_source.entry(*source) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
            by_age.pop_front();
            self.charge.subtract(KEY_BYTES);
        }
        if all.contains(&hash) {
            return Recorded::Published;
        }
        if is_foreign {
            return Recorded::Unknown;
        }
        let free = self.keys_max.load(Ordering::Relaxed).saturating_sub(all.len());
        let count = by_source.get(&source).copied().unwrap_or(0);
        if count >= free {
            return Recorded::Full;
        }
        all.insert(hash);
        by_age.push_back((now, hash, source));
        by_source.insert(source, count + 1);
        self.charge.add(KEY_BYTES);
        Recorded::New
    }
}

#[cfg(test)]
mod tests;
