//! Counts of connections and sessions by address or user: a table of fixed size that all cores share.
//!
//! An entry has the count of one key, and the token bucket of its rate. The entries are in groups of eight, and a key can
//! use any entry of its group. An entry is free as soon as its count is 0 and its token bucket is full. A key whose group
//! is in use by eight other keys isn't counted (`stentor_limit_table_full_total`). This takes connections from very many
//! addresses. Limits by address don't help against these anyway; `limits.connections_max` bounds them. The node's seed
//! determines which keys share a group, so clients can't choose it.
//!
//! Cores change entries by compare-and-swap: once when a connection or session begins, and once when it ends. There is no lock,
//! and no cost per message. Cores that check the same key at the same moment can exceed its maximum, each by one.

use super::{LimitReached, Rate};
use crate::ledger::{Charge, Class, Ledger};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Entries of a group. A cache line has four.
const WAYS: usize = 8;
/// Time after which a client may retry when a count, not a rate, has reached its maximum.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The entry of a counted connection or session. It must be passed to `Counts::release` of the same table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(Option<NonZeroU32>);

impl Slot {
    /// No entry: the connection or session isn't counted.
    pub const NONE: Self = Self(None);
}

/// The limits of a table's keys, and their names in the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Maximum {
    /// Maximum count (0: no limit), and its key in the configuration.
    pub count: (u32, &'static str),
    /// Maximum rate per second (0: no limit), and its key in the configuration.
    pub(crate) per_second: (u32, &'static str),
}

#[derive(Default)]
struct Entry {
    /// The key's tag in the high bits, its count in the low bits. 0 if the entry was never used.
    state: AtomicU64,
    /// The time at which the token bucket of the rate is full, in nanoseconds since the first use of the table.
    full_at: AtomicU64,
}

const COUNT: u64 = u32::MAX as u64;

/// A table of counts.
pub struct Counts {
    entries: Box<[Entry]>,
    seed: [u64; 2],
    /// The time of the first use.
    begun: OnceLock<Instant>,
    /// Maximum count of a key. A reload changes this and the rate.
    count_max: AtomicU32,
    per_second: AtomicU32,
    /// The keys of both limits in the configuration.
    names: [&'static str; 2],
    overflows: AtomicU64,
    _charge: Charge,
}

impl Counts {
    /// Makes a table for about `keys_max` keys.
    pub fn new(keys_max: usize, maximum: Maximum, seed: [u64; 2], ledger: Arc<Ledger>) -> Self {
        let entries = keys_max.next_multiple_of(WAYS).max(WAYS);
        let charge = Charge::of(ledger, Class::Connections, entries * size_of::<Entry>());
        Self {
            entries: (0..entries).map(|_| Entry::default()).collect(),
            seed,
            begun: OnceLock::new(),
            count_max: AtomicU32::new(maximum.count.0),
            per_second: AtomicU32::new(maximum.per_second.0),
            names: [maximum.count.1, maximum.per_second.1],
            overflows: AtomicU64::new(0),
            _charge: charge,
        }
    }

    /// Changes the maximum count and rate. Existing counts stay.
    pub(crate) fn configure(&self, count_max: u32, per_second: u32) {
        self.count_max.store(count_max, Ordering::Relaxed);
        self.per_second.store(per_second, Ordering::Relaxed);
    }

    /// The number of times that a key found no free entry.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        let begun = *self.begun.get_or_init(|| now);
        u64::try_from(now.saturating_duration_since(begun).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The index of the first entry of the key's group, and the key's tag.
    fn place(&self, key: impl Hash) -> (usize, u64) {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        let hash = hasher.finish();
        let buckets = self.entries.len() / WAYS;
        ((hash as u32 as usize % buckets) * WAYS, (hash >> 32).max(1) << 32)
    }

    fn find(&self, first: usize, tag: u64) -> Option<usize> {
        (first..first + WAYS).find(|at| self.entries[*at].state.load(Ordering::Relaxed) & !COUNT == tag)
    }

    /// Adds `more` to the key's count, and returns the index of its entry. `None` if the key has no entry and none is free.
    fn enter(&self, (first, tag): (usize, u64), more: u64, now: u64) -> Option<usize> {
        // An attempt fails only if another core has changed the entry.
        for _ in 0..WAYS * 4 {
            let found = self.find(first, tag);
            let is_free = |at: &usize| {
                let entry = &self.entries[*at];
                entry.state.load(Ordering::Relaxed) & COUNT == 0
                    && entry.full_at.load(Ordering::Relaxed) <= now
            };
            let at = found.or_else(|| (first..first + WAYS).find(is_free))?;
            let state = &self.entries[at].state;
            let current = state.load(Ordering::Relaxed);
            let is_ours = current & !COUNT == tag;
            if !is_ours && (current & COUNT > 0 || found.is_some()) {
                continue;
            }
            let next = tag | ((current & COUNT) + more);
            if state.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Some(at);
            }
        }
        None
    }

    /// Checks whether the count of a key is below the maximum.
    ///
    /// # Errors
    /// The key has reached a limit.
    pub(crate) fn check_count(&self, key: impl Hash) -> Result<(), LimitReached> {
        let max = self.count_max.load(Ordering::Relaxed);
        if max == 0 {
            return Ok(());
        }
        let (first, tag) = self.place(key);
        let held = self.find(first, tag).map(|at| self.entries[at].state.load(Ordering::Relaxed) & COUNT);
        if held.unwrap_or(0) < u64::from(max) {
            return Ok(());
        }
        Err(LimitReached { key: self.names[0], retry_after: RETRY_AFTER })
    }

    /// Checks whether a key may add one now. If so, takes a token of the key's rate; [`Self::hold`] changes the count.
    ///
    /// # Errors
    /// The key has reached a limit.
    pub fn check(&self, key: impl Hash + Copy, now: Instant) -> Result<(), LimitReached> {
        self.check_count(key)?;
        let rate = Rate::new(self.per_second.load(Ordering::Relaxed), Duration::from_secs(1));
        let (Some(rate), now) = (rate, self.nanoseconds(now)) else { return Ok(()) };
        let Some(at) = self.enter(self.place(key), 0, now) else { return Ok(()) };
        take(rate, &self.entries[at].full_at, now)
            .map_err(|retry_after| LimitReached { key: self.names[1], retry_after })
    }

    /// Adds one to a key's count. [`Slot::NONE`] if the key's group is full.
    pub fn hold(&self, key: impl Hash, now: Instant) -> Slot {
        let entered = self.enter(self.place(key), 1, self.nanoseconds(now));
        if entered.is_none() {
            self.overflows.fetch_add(1, Ordering::Relaxed);
        }
        Slot(entered.and_then(|at| NonZeroU32::new(at as u32 + 1)))
    }

    /// Subtracts one from a key's count.
    pub fn release(&self, slot: Slot) {
        if let Slot(Some(slot)) = slot {
            self.entries[slot.get() as usize - 1].state.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Takes one token out of a bucket that cores share.
///
/// # Errors
/// The time after which a token is available.
pub(crate) fn take(rate: Rate, full_at: &AtomicU64, now: u64) -> Result<(), Duration> {
    loop {
        let before = full_at.load(Ordering::Relaxed);
        let after = rate.take(before, now, 1)?;
        if full_at.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys_max: usize, count: u32, per_second: u32) -> (Counts, Instant) {
        let now = Instant::now();
        let maximum = Maximum { count: (count, "max"), per_second: (per_second, "rate") };
        (Counts::new(keys_max, maximum, [1, 2], Arc::new(Ledger::new(1 << 30))), now)
    }

    #[test]
    fn a_key_has_a_maximum_count() {
        let (counts, now) = counts(64, 2, 0);
        let slots: Vec<_> = (0..2)
            .map(|_| {
                assert_eq!(counts.check(7_u64, now), Ok(()));
                counts.hold(7_u64, now)
            })
            .collect();
        let reached = LimitReached { key: "max", retry_after: RETRY_AFTER };
        assert_eq!(counts.check(7_u64, now), Err(reached));
        assert_eq!(counts.check(8_u64, now), Ok(()));
        counts.release(slots[0]);
        assert_eq!(counts.check(7_u64, now), Ok(()));
        counts.release(Slot::NONE);
        counts.release(slots[1]);
        assert!(counts.entries.iter().all(|entry| entry.state.load(Ordering::Relaxed) & COUNT == 0));
    }

    #[test]
    fn a_reload_changes_limits_and_not_counts() {
        let (counts, now) = counts(64, 2, 0);
        let _held = [counts.hold(7_u64, now), counts.hold(7_u64, now)];
        counts.configure(3, 1);
        assert_eq!(counts.check(7_u64, now), Ok(()));
        assert_eq!(counts.check(7_u64, now).unwrap_err().key, "rate");
        counts.configure(2, 0);
        assert_eq!(counts.check(7_u64, now).unwrap_err().key, "max");
        counts.configure(0, 0);
        assert_eq!(counts.check(7_u64, now), Ok(()));
    }

    #[test]
    fn a_key_has_a_maximum_rate() {
        let (counts, now) = counts(64, 0, 3);
        let tries = |now| (0..10).filter(|_| counts.check(7_u64, now).is_ok()).count();
        assert_eq!(tries(now), 3);
        let Err(reached) = counts.check(7_u64, now) else { panic!("the limit isn't reached") };
        assert_eq!((reached.key, reached.retry_after_seconds()), ("rate", 1));
        assert_eq!(tries(now + Duration::from_millis(400)), 1);
        assert_eq!(tries(now + Duration::from_secs(9)), 3);
        assert_eq!(counts.check(8_u64, now), Ok(()));
    }

    #[test]
    fn released_keys_free_their_entries_and_held_keys_stay_counted() {
        let (counts, now) = counts(8_192, 2, 1_000);
        let held: Vec<_> = (0..200_u64).map(|key| counts.hold(key, now)).collect();
        // In 10 s, many more keys than the table has entries are held and released.
        for key in 1_000..101_000_u64 {
            let at = now + Duration::from_micros(100 * (key - 1_000));
            let _ = counts.check(key, at);
            counts.release(counts.hold(key, at));
        }
        assert_eq!(counts.overflows(), 0);
        let later = now + Duration::from_secs(60);
        for (key, slot) in (0..200_u64).zip(held) {
            counts.hold(key, later);
            assert!(counts.check(key, later).is_err(), "{key} is counted twice");
            counts.release(slot);
            assert_eq!(counts.check(key, later), Ok(()));
        }
    }

    #[test]
    fn a_full_table_neither_counts_nor_refuses_further_keys() {
        let (counts, now) = counts(WAYS, 1, 0);
        let held: Vec<_> = (0..100_u64).map(|key| counts.hold(key, now)).collect();
        assert_eq!(counts.overflows(), 100 - WAYS as u64);
        assert_eq!(counts.check(200_u64, now), Ok(()));
        assert!(counts.check(0_u64, now).is_err());
        held.into_iter().for_each(|slot| counts.release(slot));
        assert_ne!(counts.hold(200_u64, now), Slot::NONE);
    }

    #[test]
    fn concurrent_holds_and_releases_add_up_to_zero() {
        let (counts, now) = counts(64, 0, 0);
        std::thread::scope(|scope| {
            for core in 0..4 {
                let counts = &counts;
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let slot = counts.hold((round + core) % 100, now);
                        counts.release(slot);
                    }
                });
            }
        });
        assert!(counts.entries.iter().all(|entry| entry.state.load(Ordering::Relaxed) & COUNT == 0));
    }
}
