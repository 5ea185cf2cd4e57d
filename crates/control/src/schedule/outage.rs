//! Outages of an upstream: fetches of several keys fail in a row, without a success in between. Each key has
//! its own growing delay before a retry, so that a key that fails alone costs little. During an outage, the
//! upstream is also probed often, and the first success ends the delays of the other keys.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// An outage begins after this many failures in a row, of this many keys (of all keys, if the upstream has
/// fewer).
const FAILURES: usize = 3;

/// Maximum time between two fetches during an outage. Also the minimum time between two ends of outages at
/// which all failed keys are fetched at once, so that an upstream that answers only some requests doesn't get
/// more and more requests.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Outage {
    /// Number of failures since the last success.
    failures: usize,
    /// The keys that failed since the last success.
    keys: BTreeSet<Key>,
    /// Time of the next probe: a fetch of one of `keys`. `Some` exactly during an outage.
    probe: Option<Instant>,
    /// Time before which the upstream has asked for no fetches (`Retry-After`). Applies only during an
    /// outage.
    hold: Option<Instant>,
    /// End of the last outage, and the time at which its failed keys became due.
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

    /// Returns the due time of a key whose fetch began during the last outage and has failed after its end.
    pub(super) fn due_if_begun_in(&self, started: Instant) -> Option<Instant> {
        self.ended.filter(|(ended, _)| started < *ended).map(|(_, due)| due)
    }

    /// Records that the upstream asks for no fetches of a key before this time. During an outage, other keys
    /// aren't fetched either.
    pub(super) fn hold(&mut self, until: Instant) {
        self.hold = self.hold.max(Some(until));
    }

    /// Ends the hold.
    pub(super) fn release(&mut self) {
        self.hold = None;
    }

    /// Returns the time before which no key is fetched, during an outage.
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

    /// Returns the time of the next probe, during an outage.
    pub(super) fn probe(&self) -> Option<Instant> {
        self.probe
    }

    /// Returns the keys that have failed since the last success.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }
}
