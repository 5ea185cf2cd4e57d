//! Cold keys: the feeds without a document. Of these, the engine stores only the lease and its term.
//!
//! A client can subscribe to any key, so the number of cold keys that a node causes in the engine is bounded. A cold key counts while
//! this node holds its lease or asks for it, and until the engine has forgotten its term. From half of the maximum on, a new key
//! releases the oldest lease without subscribers. At the maximum, it waits for its lease.
//!
//! Half of the maximum is the number of keys that the control plane fetches. If more have subscribers, the control plane refuses keys,
//! by address and session, before others have to wait here.

use super::feed::Cold;
use super::requests::{Purpose, Ticket};
use super::{Feeds, LEASE_TTL, RETRY_DELAY};
use crate::engine::{Lease, Request, TERM_TTL};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::Key;
use stentor_ports::{Charge, Class, Ledger};

/// Number of a node's cold keys in the engine for each key that its control plane may fetch.
const COLD_KEYS_PER_KEY: usize = 2;
/// Time for which the engine keeps a term if it already keeps many. A later term is greater by the clock in this case
/// too.
const SHORT_TERM_TTL: Duration = Duration::from_secs(1);
/// Memory for a cold key besides its feed and its text: its places in the tables here, half filled.
const COLD_KEY_BYTES: usize = 128;

/// The cold keys of a node.
pub(crate) struct ColdKeys {
    max: usize,
    /// Requests for leases of feeds without a log.
    asked: HashSet<Ticket>,
    /// Number of leases held.
    held: usize,
    /// Held leases without subscribers, by the time of their release.
    idle: BTreeSet<(Instant, Key)>,
    /// Times at which the engine forgets released terms: those kept for [`TERM_TTL`], and those kept for
    /// [`SHORT_TERM_TTL`].
    released: [VecDeque<Instant>; 2],
    released_early: u64,
    charge: Charge,
    ledger: Arc<Ledger>,
}

impl ColdKeys {
    /// Creates the empty set of a node whose control plane fetches at most `keys_max` keys.
    pub(crate) fn new(keys_max: usize, ledger: Arc<Ledger>) -> Self {
        Self {
            max: keys_max.saturating_mul(COLD_KEYS_PER_KEY),
            asked: HashSet::new(),
            held: 0,
            idle: BTreeSet::new(),
            released: Default::default(),
            released_early: 0,
            charge: Charge::new(ledger.clone(), Class::Cluster),
            ledger,
        }
    }

    /// Number of counted keys.
    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.held + self.released.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Number of leases released before their time because of the maximum.
    pub(super) fn released_early(&self) -> u64 {
        self.released_early
    }

    /// Handles the engine's answer to a request.
    pub(super) fn handle_answer(&mut self, ticket: Ticket, key: &Key) {
        if self.asked.remove(&ticket) {
            self.charge.subtract(COLD_KEY_BYTES + key.as_str().len());
        }
    }

    /// Time at which the engine has forgotten all released terms.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.released.iter().filter_map(VecDeque::back).max().copied()
    }

    /// Drops the terms that the engine has forgotten by now.
    pub(super) fn expire(&mut self, now: Instant) {
        for released in &mut self.released {
            while released.front().is_some_and(|at| *at <= now) {
                released.pop_front();
                self.charge.subtract(size_of::<Instant>());
            }
        }
    }

    /// Adds a released lease. Returns the time for which the engine must keep its term.
    fn release(&mut self, now: Instant) -> Duration {
        self.expire(now);
        let is_short = self.is_full() || self.released[0].len() >= self.max / 4;
        let ttl = if is_short { SHORT_TERM_TTL } else { TERM_TTL };
        self.released[usize::from(is_short)].push_back(now + ttl);
        self.charge.add(size_of::<Instant>());
        ttl
    }

    /// Returns `true` if leases without subscribers are released for new keys.
    fn is_half_full(&self) -> bool {
        self.asked.len() + self.held >= self.max / 2 || !self.ledger.has_room(0)
    }

    /// Returns `true` if a further key must wait.
    fn is_full(&self) -> bool {
        self.len() >= self.max
    }
}

impl Feeds {
    /// Asks for the lease of a feed. If there are too many cold keys, the feed waits.
    pub(super) fn acquire(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let is_cold = feed.has_no_log();
        if is_cold && !self.make_room_for_cold(now) {
            let delay = RETRY_DELAY.mul_f64(0.75 + 0.5 * self.random.f64());
            if let Some(feed) = self.feeds.get_mut(key) {
                feed.phase.acquire_at(now + delay);
            }
            return;
        }
        let Some(feed) = self.feeds.get_mut(key) else { return };
        feed.phase.acquire();
        let term_seen = feed.log.term_seen;
        let request = Request::AcquireLease { key: key.clone(), term_seen, ttl: LEASE_TTL };
        let ticket = self.request(now, key, Purpose::Acquire, request);
        if is_cold {
            self.cold.asked.insert(ticket);
            self.cold.charge.add(COLD_KEY_BYTES + key.as_str().len());
        }
    }

    /// Releases the oldest lease without subscribers if there are many. Returns `true` if there is room for another
    /// key.
    fn make_room_for_cold(&mut self, now: Instant) -> bool {
        self.cold.expire(now);
        if self.cold.is_half_full()
            && let Some((_, oldest)) = self.cold.idle.first().cloned()
        {
            self.cold.released_early += 1;
            self.release(now, &oldest);
            self.remove_unused(&oldest);
            self.reschedule(&oldest);
        }
        !self.cold.is_full()
    }

    /// Releases a lease in the engine.
    pub(super) fn request_release(&mut self, now: Instant, key: &Key, lease: Lease) {
        let has_log = self.feeds.get(key).is_some_and(|feed| !feed.has_no_log());
        let term_ttl = if has_log { TERM_TTL } else { self.cold.release(now) };
        let release = Request::ReleaseLease { key: key.clone(), lease, term_ttl };
        self.request(now, key, Purpose::Release(lease.term), release);
    }

    /// Adds a feed to the cold keys, or removes it.
    pub(super) fn count_cold(&mut self, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let cold = feed.coldness();
        let before = std::mem::replace(&mut feed.cold, cold);
        self.change_cold(key, before, cold);
    }

    /// Handles a change of a feed's place among the cold keys.
    pub(super) fn change_cold(&mut self, key: &Key, before: Cold, after: Cold) {
        if before == after {
            return;
        }
        let ColdKeys { held, idle, charge, .. } = &mut self.cold;
        let bytes = COLD_KEY_BYTES + key.as_str().len();
        if before != Cold::No {
            *held -= 1;
            charge.subtract(bytes);
        }
        if after != Cold::No {
            *held += 1;
            charge.add(bytes);
        }
        if let Cold::Idle(at) = before {
            idle.remove(&(at, key.clone()));
        }
        if let Cold::Idle(at) = after {
            idle.insert((at, key.clone()));
        }
    }
}
