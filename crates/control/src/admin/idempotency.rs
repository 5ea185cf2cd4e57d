//! Idempotency keys of published messages, so that a repeated request publishes a message once.
//!
//! Each key is kept for five minutes, as a hash. Keys for rooms that a cluster's engine orders are kept by
//! the engine instead.

use super::{Refusal, reason};
use parking_lot::Mutex;
use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;
use stentor_hub::Room;
use tokio::time::Instant;

/// Time for which a key is kept.
const TTL: Duration = Duration::from_secs(300);
/// Maximum number of keys. One takes about 80 bytes.
const KEYS_MAX: usize = 200_000;

/// A key whose message is being published. Dropping it without success removes the key.
#[derive(Debug)]
pub(super) struct UsedKey<'a> {
    keys: &'a IdempotencyKeys,
    hash: u128,
    pub(super) is_published: bool,
}

impl Drop for UsedKey<'_> {
    fn drop(&mut self) {
        self.keys.end(self.hash, self.is_published);
    }
}

#[derive(Debug, Default)]
struct Keys {
    /// The hashes of the keys. `true` if the key's message has been published.
    all: HashMap<u128, bool>,
    /// The hashes with the times at which their keys were first used, oldest first.
    by_age: VecDeque<(Instant, u128)>,
}

/// The keys of the last five minutes.
#[derive(Debug, Default)]
pub(crate) struct IdempotencyKeys {
    keys: Mutex<Keys>,
    hashers: [RandomState; 2],
}

impl IdempotencyKeys {
    fn hash(&self, room: &Room, key: &str) -> u128 {
        let [high, low] =
            self.hashers.each_ref().map(|hasher| hasher.hash_one((room.namespace(), room.name(), key)));
        u128::from(high) << 64 | u128::from(low)
    }

    /// Starts using a key. Returns `None` if a message with this key has already been published.
    pub(super) fn begin(&self, now: Instant, room: &Room, key: &str) -> Result<Option<UsedKey<'_>>, Refusal> {
        let hash = self.hash(room, key);
        let Keys { all, by_age } = &mut *self.keys.lock();
        while let Some((at, oldest)) = by_age.front()
            && now.saturating_duration_since(*at) >= TTL
        {
            all.remove(oldest);
            by_age.pop_front();
        }
        let is_full = all.len() >= KEYS_MAX;
        match all.entry(hash) {
            Entry::Occupied(entry) if *entry.get() => Ok(None),
            Entry::Occupied(_) => {
                let message = "a message with this idempotency key is being published; try again later";
                Err(Refusal::new(reason::IN_PROGRESS, message))
            }
            Entry::Vacant(_) if is_full => {
                let message = "too many messages with idempotency keys were published; try again later";
                Err(Refusal::new(reason::TOO_MANY_IDEMPOTENCY_KEYS, message))
            }
            Entry::Vacant(entry) => {
                entry.insert(false);
                by_age.push_back((now, hash));
                Ok(Some(UsedKey { keys: self, hash, is_published: false }))
            }
        }
    }

    fn end(&self, hash: u128, is_published: bool) {
        let Keys { all, by_age } = &mut *self.keys.lock();
        if is_published {
            all.entry(hash).and_modify(|published| *published = true);
        } else if all.remove(&hash).is_some() {
            // A failed publication is rare, and its key is usually the newest one.
            if let Some(index) = by_age.iter().rposition(|(_, other)| *other == hash) {
                by_age.remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Publishes a message. Returns the result as text.
    fn publish(keys: &IdempotencyKeys, now: Instant, room: &Room, key: &str, succeeds: bool) -> &'static str {
        match keys.begin(now, room, key) {
            Ok(Some(mut used)) => {
                used.is_published = succeeds;
                "new"
            }
            Ok(None) => "published",
            Err(refusal) => refusal.reason.code,
        }
    }

    #[test]
    fn a_key_counts_per_room_for_five_minutes() {
        let (keys, now) = (IdempotencyKeys::default(), Instant::now());
        let (room, other) = (Room::plain("a").unwrap(), Room::plain("b").unwrap());
        let used = keys.begin(now, &room, "k").unwrap();
        assert_eq!(publish(&keys, now, &room, "k", true), "in_progress");
        drop(used);
        assert_eq!(publish(&keys, now, &room, "k", true), "new", "it wasn't published");
        assert_eq!(publish(&keys, now, &room, "k", true), "published");
        assert_eq!(publish(&keys, now, &other, "k", true), "new");
        let later = now + TTL - Duration::from_millis(1);
        assert_eq!(publish(&keys, later, &room, "k", true), "published");
        assert_eq!(publish(&keys, now + TTL, &room, "k", true), "new");
    }

    #[test]
    fn keys_are_bounded() {
        let (keys, now) = (IdempotencyKeys::default(), Instant::now());
        let room = Room::plain("a").unwrap();
        for n in 0..KEYS_MAX {
            assert_eq!(publish(&keys, now, &room, &n.to_string(), true), "new");
        }
        assert_eq!(publish(&keys, now, &room, "one more", true), "too_many_idempotency_keys");
        assert_eq!(publish(&keys, now + TTL, &room, "one more", false), "new");
        let left = keys.keys.lock();
        assert_eq!((left.all.len(), left.by_age.len()), (0, 0));
    }
}
