//! Outages of an upstream: fetches of several keys fail in a row, and none succeeds meanwhile. Each key has its own growing
//! delay before a retry, so that a key that fails alone costs little. During an outage the upstream is also probed often, and
//! the first success shows that the other keys need not wait either.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// So many failures in a row are an outage, of so many keys if the upstream has as many.
const FAILURES: usize = 3;

/// Time between two fetches during an outage, at most. And at least so much later than before, all keys are fetched at
/// once again: an upstream that answers some requests only isn't asked faster and faster.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Outage {
    /// Failures since the last success, and the keys that failed.
    failures: usize,
    keys: BTreeSet<Key>,
    /// When to fetch one of them; `Some` during an outage.
    probe: Option<Instant>,
    /// The upstream asks for no requests until then. It applies during an outage.
    hold: Option<Instant>,
    /// When the last outage ended, and when its keys were due.
    ended: Option<(Instant, Instant)>,
}

impl Outage {
    /// A fetch has failed. `keys`: those that the upstream is polled for.
    pub(super) fn fail(&mut self, now: Instant, key: &Key, keys: usize) {
        self.failures += 1;
        self.keys.insert(key.clone());
        if self.failures >= FAILURES && self.keys.len() >= FAILURES.min(keys) {
            self.probe.get_or_insert(now + PROBE_INTERVAL);
        }
    }

    /// A fetch has succeeded. After an outage: the keys that failed, and when they are due.
    pub(super) fn succeed(&mut self, now: Instant) -> Option<(Instant, BTreeSet<Key>)> {
        self.failures = 0;
        self.hold = None;
        let keys = std::mem::take(&mut self.keys);
        self.probe.take()?;
        let due = self.ended.map_or(now, |(_, due)| now.max(due + PROBE_INTERVAL));
        self.ended = Some((now, due));
        Some((due, keys))
    }

    /// When a key is due that failed in a fetch that began during the last outage.
    pub(super) fn due_if_begun_in(&self, started: Instant) -> Option<Instant> {
        self.ended.filter(|(ended, _)| started < *ended).map(|(_, due)| due)
    }

    /// The upstream asks for no requests for this key until then. While nothing succeeds, it is asked for no other either.
    pub(super) fn hold(&mut self, until: Instant) {
        self.hold = self.hold.max(Some(until));
    }

    /// Ends the hold.
    pub(super) fn release(&mut self) {
        self.hold = None;
    }

    /// Until when nothing is fetched, if there is an outage.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.probe.and(self.hold)
    }

    /// A fetch begins.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(probe) = &mut self.probe {
            *probe = now + PROBE_INTERVAL;
        }
    }

    /// Leaves the key out.
    pub(super) fn forget(&mut self, key: &Key) {
        self.keys.remove(key);
        if self.keys.is_empty() {
            (self.failures, self.probe, self.hold) = (0, None, None);
        }
    }

    /// When to fetch one of the keys, if there is an outage.
    pub(super) fn probe(&self) -> Option<Instant> {
        self.probe
    }

    /// The keys that have failed since the last success.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }
}
