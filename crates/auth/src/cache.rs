//! A cache of verified tokens, by digest.
//!
//! The cache has two halves. When the newer half is full, the older half is dropped, and the newer one
//! becomes the older one. A token that is found in the older half moves to the newer one, so a token in use
//! stays in the cache. Each insertion costs the same, and entries needn't be ordered.

use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::mem;

/// The SHA-256 digest of a token. It is infeasible to find another token with the same digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of a token.
    pub fn of(token: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Returns the first eight bytes of the digest as a number.
    pub(crate) fn number(self) -> u64 {
        self.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Returns a number below `count`. The numbers of all tokens are evenly distributed.
    pub fn shard(self, count: usize) -> usize {
        usize::from(self.0[0]) % count.max(1)
    }
}

struct Entry<T> {
    value: T,
    expires_at: u64,
    bytes: usize,
}

/// A bounded map from tokens to the results of their verification.
pub struct TokenCache<T> {
    newer: HashMap<Digest, Entry<T>>,
    older: HashMap<Digest, Entry<T>>,
    newer_bytes: usize,
    older_bytes: usize,
    /// Maximum size of each half in bytes.
    half_bytes_max: usize,
}

impl<T: Clone> TokenCache<T> {
    /// Makes a cache with at most `bytes_max` bytes of entries.
    pub fn new(bytes_max: usize) -> Self {
        let (newer, older) = (HashMap::new(), HashMap::new());
        Self { newer, older, newer_bytes: 0, older_bytes: 0, half_bytes_max: bytes_max / 2 }
    }

    /// Returns the value of a token, if it is in the cache and hasn't expired at `now` (seconds since 1970).
    pub fn find(&mut self, token: Digest, now: u64) -> Option<T> {
        if let Some(entry) = self.newer.get(&token) {
            return (now < entry.expires_at).then(|| entry.value.clone());
        }
        let entry = self.older.remove(&token)?;
        self.older_bytes -= entry.bytes;
        if now >= entry.expires_at {
            return None;
        }
        let value = entry.value.clone();
        self.put(token, entry);
        Some(value)
    }

    /// Stores the value of a token, which counts as `bytes`, until `expires_at` at the latest. A value that
    /// is larger than half the limit isn't stored.
    pub fn insert(&mut self, token: Digest, value: T, bytes: usize, expires_at: u64) {
        self.put(token, Entry { value, expires_at, bytes });
    }

    fn put(&mut self, token: Digest, entry: Entry<T>) {
        if entry.bytes > self.half_bytes_max {
            return;
        }
        if self.newer_bytes + entry.bytes > self.half_bytes_max {
            self.older = mem::take(&mut self.newer);
            self.older_bytes = mem::take(&mut self.newer_bytes);
        }
        self.newer_bytes += entry.bytes;
        if let Some(before) = self.newer.insert(token, entry) {
            self.newer_bytes -= before.bytes;
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::new(self.half_bytes_max * 2);
    }

    /// Returns the size of all entries in bytes.
    pub fn bytes(&self) -> usize {
        self.newer_bytes + self.older_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_use_stay_and_the_size_is_bounded() {
        let mut cache = TokenCache::new(100);
        let token = |n: usize| Digest::of(&n.to_string());
        cache.insert(token(0), 0, 10, 1000);
        for n in 1..1000 {
            cache.insert(token(n), n, 10, 1000);
            assert_eq!(cache.find(token(0), 0), Some(0), "{n}");
            assert!(cache.bytes() <= 100);
        }
        assert_eq!(cache.find(token(1), 0), None);
        assert_eq!(cache.find(token(999), 999), Some(999));
        assert_eq!(cache.find(token(999), 1000), None);
        // An entry that is too large isn't stored and evicts no other entry.
        cache.insert(token(1000), 1000, 51, 1000);
        assert_eq!((cache.find(token(1000), 0), cache.find(token(0), 0)), (None, Some(0)));
        // The size of an entry that is replaced repeatedly counts only once.
        cache.clear();
        (0..5).for_each(|_| cache.insert(token(1), 1, 50, 1000));
        assert!(cache.bytes() <= 100);
        // After `clear`, the limit is still the same.
        assert_eq!(cache.find(token(1), 0), Some(1));
        cache.clear();
        assert_eq!((cache.bytes(), cache.find(token(1), 0)), (0, None));
    }
}
