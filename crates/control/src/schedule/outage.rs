//! Outages of an upstream: fetches of several keys fail in a row, without a success in between. Each key has
//! its own growing delay before a retry, so that a key that fails alone costs little. During an outage the
//! upstream is also probed often, and the first success shows that the other keys needn't wait either.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// Number of failures in a row that are an outage. They must be of this many keys, if the upstream has as
/// many.
const FAILURES: usize = 3;

/// Maximum time between two fetches during an outage; also the minimum time between two occasions at which
/// all keys are fetched at once, so that an upstream that answers only some requests isn't asked faster and
/// faster.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Outage {
    /// Number of failures since the last success.
    failures: usize,
    /// The keys that failed since the last success.
    keys: BTreeSet<Key>,
    /// Time for fetching one of them; `Some` during an outage.
    probe: Option<Instant>,
    /// The upstream requests no fetches before this time. Applies during an outage.
    hold: Option<Instant>,
    /// End of the last outage, and the due time of its keys.
    ended: Option<(Instant, Instant)>,
}

impl Outage {
    /// Records a failed fetch. `keys` is the number of keys for which the upstream is polled.
    pub(super) fn fail(&mut self, now: Instant, key: &Key, keys: usize) {
        self.failures += 1;
        self.keys.insert(key.clone());
        if self.failures >= FAILURES && self.keys.len() >= FAILURES.min(keys) {
            self.probe.get_or_insert(now + PROBE_INTERVAL);
        }
    }

    /// Records a successful fetch. After an outage, returns the failed keys and their due time.
    pub(super) fn succeed(&mut self, now: Instant) -> Option<(Instant, BTreeSet<Key>)> {
        self.failures = 0;
        self.hold = None;
        let keys = std::mem::take(&mut self.keys);
        self.probe.take()?;
        let due = self.ended.map_or(now, |(_, due)| now.max(due + PROBE_INTERVAL));
        self.ended = Some((now, due));
        Some((due, keys))
    }

    /// Returns the due time of a key that failed in a fetch that began during the last outage.
    pub(super) fn due_if_begun_in(&self, started: Instant) -> Option<Instant> {
        self.ended.filter(|(ended, _)| started < *ended).map(|(_, due)| due)
    }

    /// Records that the upstream requests no fetches of this key before a time. Without any success, other
    /// keys aren't fetched either.
    pub(super) fn hold(&mut self, until: Instant) {
        self.hold = self.hold.max(Some(until));
    }

    /// Ends the hold.
    pub(super) fn release(&mut self) {
        self.hold = None;
    }

    /// Returns the time until which no key is fetched, during an outage.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.probe.and(self.hold)
    }

    /// Records the start of a fetch.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(probe) = &mut self.probe {
            *probe = now + PROBE_INTERVAL;
        }
    }

    /// Removes a key.
    pub(super) fn forget(&mut self, key: &Key) {
        self.keys.remove(key);
        if self.keys.is_empty() {
            (self.failures, self.probe, self.hold) = (0, None, None);
        }
    }

    /// Returns the time for fetching one of the keys, during an outage.
    pub(super) fn probe(&self) -> Option<Instant> {
        self.probe
    }

    /// Returns the keys that have failed since the last success.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }
}
