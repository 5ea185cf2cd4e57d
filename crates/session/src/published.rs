//! Idempotency keys of clients' publications: a client that doesn't know whether a publication has arrived repeats it with the
//! same key, and the message is published once.
//!
//! The cores of a node share the keys, because a client reconnects to any core. A key counts per user and room, for [`TTL`]. Rooms
//! that the engine of a cluster orders have no entries here: the engine knows their keys, on all nodes.
//!
//! **Bounds.** `limits.idempotency_keys_max` keys, charged to the ledger. No key is forgotten early: above the limit, publications
//! with a key are refused.

use crate::identity::SidHasher;
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::Principal;
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stentor_hub::Room;

/// Time for which a key is kept, as for keys of the admin API and of engines.
const TTL: Duration = Duration::from_secs(300);
/// Approximate size of a key, in bytes.
const KEY_BYTES: usize = 80;

/// State of a publication's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The key is new, and is known from now on. The caller publishes the message.
    New,
    /// A message with this key has been published.
    Published,
    /// Another node, or an earlier process of this one, may have published the message.
    Unknown,
    /// There are too many keys.
    Full,
}

#[derive(Default)]
struct Keys {
    all: HashSet<u128, BuildHasherDefault<SidHasher>>,
    /// The keys with the times at which they were recorded, oldest first.
    by_age: VecDeque<(Instant, u128)>,
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

    fn hash(&self, half: u64, user: Option<&Principal>, room: &Room, key: &str) -> u128 {
        let mut hasher = DefaultHasher::new();
        for word in [self.seed[0], self.seed[1], half, u64::from(user.is_some())] {
            hasher.write_u64(word);
        }
        let (issuer, subject) = user.map_or(("", ""), |user| (&*user.issuer, &*user.subject));
        for text in [issuer, subject, room.namespace(), room.name(), key] {
            hasher.write_usize(text.len());
            hasher.write(text.as_bytes());
        }
        u128::from(hasher.finish())
    }

    /// Records a publication of a user, or of an anonymous client, that is about to be published, unless its key is known.
    /// `is_foreign`: the client first sent it to another node or process.
    pub(crate) fn record(
        &self,
        now: Instant,
        (user, room, key): (Option<&Principal>, &Room, &str),
        is_foreign: bool,
    ) -> Recorded {
        let hash = self.hash(0, user, room, key) << 64 | self.hash(1, user, room, key);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let Keys { all, by_age } = &mut *keys;
        while let Some((at, oldest)) = by_age.front()
            && now.saturating_duration_since(*at) >= TTL
        {
            all.remove(oldest);
            by_age.pop_front();
            self.charge.subtract(KEY_BYTES);
        }
        if all.contains(&hash) {
            return Recorded::Published;
        }
        if is_foreign {
            return Recorded::Unknown;
        }
        if all.len() >= self.keys_max.load(Ordering::Relaxed) {
            return Recorded::Full;
        }
        all.insert(hash);
        by_age.push_back((now, hash));
        self.charge.add(KEY_BYTES);
        Recorded::New
    }
}

#[cfg(test)]
mod tests;
