//! The fetch scheduler: it decides when each key is fetched, and makes the updates for its subscribers.
//! Sans-I/O: time, outcomes and a seed go in; [`FetchJob`]s and [`FeedUpdate`]s come out.
//!
//! ```text
//!                  ┌────────────── success ──────────────┐
//!                  ▼                                     │
//!  Cold ──fresh──► Live ──error──► Stale ──error, back-off──┐
//!   │ │             │                ▲ └──────────────────►─┘
//!   │ └──error──────┼────────────────┘
//!   ├──404──────────┴─404 for long─► NotFound (fetched again, rarely, while wanted or asked for)
//!   └──410, complete_on► Complete (never fetched again)
//! ```
//!
//! A key is known from its first subscription until it has had no subscribers for `idle_ttl` (the linger
//! time). A key is fetched while it has subscribers, and during the linger time if it has a document.
//! Subscriptions never change the time at which a key is due, so a client that subscribes and unsubscribes in
//! a loop causes no fetch.
//!
//! **Contract with the home core.** The home core keeps the last document and state for as long as the
//! scheduler does, also without subscribers. A subscription within the linger time therefore doesn't send the
//! document again. `Forget` reports that the scheduler has dropped the key. It also follows a refusal at
//! once. The state of a key without a document is sent again for each subscription, because `NotFound` ends
//! subscriptions.
//!
//! The caller of the scheduler fetches, parses, compares and waits for the data plane. It polls no fetch
//! while updates are undelivered, so the fetches in flight bound the undelivered updates.
//!
//! Invariants: one fetch in flight per key; never more fetches in flight than the limits of the upstream and
//! of the process allow (the process always allows one per upstream), nor more per second than the upstream's
//! rate; after `poll_fetch(now)` returned `None`, `poll_timeout()` is later than `now`; the kept documents'
//! bytes are within `documents_bytes_max`; the number of keys is within `keys_max`; a key without subscribers
//! that was never fetched isn't kept.

mod lane;
mod list;
mod lost;
mod measured;
mod outage;
mod outcome;
mod queues;
mod rate;
mod results;
mod slots;
#[cfg(test)]
mod tests;

pub use outcome::{
    Counters, FAILURE_CLASSES, FailureClass, FetchJob, Freshness, LaneStats, Lifetime, Limit, Outcome, Stats,
    Validators, Version,
};

pub use list::{KeyList, KeysQuery, ListedKey};
pub use queues::share;

use crate::fair::Owner;
use crate::options::{DURATION_MAX, FeedsOptions, UpstreamOptions};
use crate::route::Routes;
use fastrand::Rng;
use list::LastFetches;
use queues::{QueueState, Queues};
use slots::FetchKind;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{FeedState, Key, Requester, ShrinkingMap, pop_front};
use stentor_ports::{FeedUpdate, REQUESTERS_MAX};

/// Number of common times of refreshes in an interval.
const COMMON_TIMES: u32 = 128;
/// Maximum time between two common times of refreshes.
const COMMON_TIMES_APART_MAX: Duration = Duration::from_millis(10);

/// The state of a key. `None` in [`Entry::state`] means cold.
struct Entry {
    upstream: usize,
    /// The session for which the key is fetched while it has no document.
    owner: Owner,
    wanted: bool,
    /// `true` if a client has requested the key since its last fetch, while the key was not found.
    asked: bool,
    state: Option<FeedState>,
    reason: Arc<str>,
    kept: Option<Arc<Version>>,
    /// Start of the last fetch, if it succeeded and the next one is due after `poll_interval`.
    fetched: Option<Instant>,
    last: LastFetches,
    /// Time of the next fetch. `None` during a fetch, and for a complete key.
    due: Option<Instant>,
    /// Time at which the key is forgotten. `Some` exactly while it has no subscribers.
    linger_end: Option<Instant>,
    queue_state: QueueState,
}

impl Entry {
    fn document_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.document.body.len())
    }

    /// Returns `true` if the key waits for its first fetch.
    fn is_cold(&self) -> bool {
        self.state.is_none() && !matches!(self.queue_state, QueueState::InFlight { .. })
    }

    /// Returns `true` if the key should be fetched: it has a document or waiting clients. Clients can't wait
    /// for a key that is not found, because subscriptions to it end at once. Their requests count instead
    /// (`asked`).
    fn is_active(&self) -> bool {
        self.wanted || self.asked || self.kept.is_some()
    }

    /// Returns `true` if the key is fetched regularly: it is active, and neither `NotFound` nor `Complete`.
    fn is_polled(&self) -> bool {
        let is_over = matches!(self.state, Some(FeedState::Complete | FeedState::NotFound));
        self.is_active() && !is_over
    }
}

/// The fetch scheduler (see the module's documentation).
pub struct Scheduler {
    options: FeedsOptions,
    routes: Routes,
    /// Boxed, because a table has up to twice as much space as entries.
    entries: ShrinkingMap<Key, Box<Entry>>,
    queues: Queues,
    events: VecDeque<(Key, FeedUpdate)>,
    random: Rng,
    counters: Counters,
    /// The start of the first successful fetch, from which the common times of refreshes count.
    first_refreshed: Option<Instant>,
}

impl Scheduler {
    /// Makes a scheduler without keys. `seed` seeds the jitter of retries.
    pub fn new(options: FeedsOptions, seed: u64) -> Self {
        let queues = Queues::new(options.fetches_max, &options.upstreams);
        Self {
            routes: Routes::new(&options.upstreams),
            options,
            entries: ShrinkingMap::default(),
            queues,
            events: VecDeque::new(),
            random: Rng::with_seed(seed),
            counters: Counters::default(),
            first_refreshed: None,
        }
    }

    /// Applies new options. If the upstreams differ, fetches in flight are cancelled: the caller must not
    /// call [`Self::handle_result`] for them. Keys keep their documents. Keys of an unchanged upstream also
    /// keep their due times, and keys of a changed one are fetched at once. Keys that no upstream serves any
    /// longer are refused.
    pub fn configure(&mut self, now: Instant, options: FeedsOptions) {
        let before = std::mem::replace(&mut self.options, options);
        self.queues.set_fetches_max(self.options.fetches_max);
        if before.upstreams == self.options.upstreams {
            return;
        }
        self.routes = Routes::new(&self.options.upstreams);
        let lanes = &before.upstreams;
        let mut queues = Queues::new(self.options.fetches_max, &self.options.upstreams);
        queues.take_over(&mut self.queues, |upstream| {
            lanes.iter().position(|before| before.name == self.options.upstreams[upstream].name)
        });
        self.queues = queues;
        // Sorted by key, so that a run depends only on its inputs.
        let mut entries: Vec<(Key, Box<Entry>)> = self.entries.drain().collect();
        entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (key, mut entry) in entries {
            let Some(upstream) = self.routes.find(&key) else {
                self.refuse(&key, "no feed is configured for this key any more");
                continue;
            };
            let is_same = before.upstreams[entry.upstream] == self.options.upstreams[upstream];
            entry.upstream = upstream;
            if let QueueState::InFlight { started, .. } = entry.queue_state {
                entry.due = Some(started);
            }
            entry.queue_state = QueueState::Parked;
            if !is_same {
                entry.due = Some(now);
                if let Some(kept) = &mut entry.kept {
                    Arc::make_mut(kept).validators = Validators::default();
                }
            }
            self.queues.attach(&key, &mut entry);
            self.entries.insert(key, entry);
        }
    }

    /// Sets whether `key` has subscribers. Repeating a call has no effect, except that the state of a key
    /// without a document is sent again. If the key is new to the data plane, `requesters` are the sessions
    /// that have requested it since the last call. Unknown requesters aren't in the list.
    pub fn handle_wanted(&mut self, now: Instant, key: &Key, wanted: bool, requesters: &[Requester]) {
        let Some(entry) = self.entries.get_mut(key) else {
            if wanted {
                self.admit(now, key, requesters);
            }
            return;
        };
        if !wanted && entry.is_cold() {
            // A key without a state and without a fetch in flight needs no linger time.
            self.forget(key);
            return;
        }
        self.queues.detach(key, entry);
        if wanted {
            entry.linger_end = None;
            entry.asked |= entry.state == Some(FeedState::NotFound);
            if let (Some(state), None) = (entry.state, &entry.kept) {
                self.events.push_back((key.clone(), state_update(state, &entry.reason)));
            }
            // The key's owner is the requester that waits for the fewest keys, so that no client can delay
            // the key behind thousands of others. A known requester precedes an unknown one.
            for owner in requesters.iter().map(Owner::from) {
                if entry.owner.is_unknown() || self.queues.sooner(entry.upstream, owner, entry.owner).is_lt()
                {
                    entry.owner = owner;
                }
            }
        } else if entry.wanted {
            entry.linger_end = Some(later(now, self.options.idle_ttl));
        }
        entry.wanted = wanted;
        self.queues.attach(key, entry);
    }

    fn admit(&mut self, now: Instant, key: &Key, requesters: &[Requester]) {
        let Some(upstream) = self.routes.find(key) else {
            self.counters.unknown_keys += 1;
            self.refuse(key, "no feed is configured for this key");
            return;
        };
        let allowed = |requester: &&Requester| {
            let owner = Owner::from(*requester);
            let is_below = |max: usize, count: usize| max == 0 || count < max;
            is_below(self.options.cold_keys_max, self.queues.cold_keys_of(owner))
                && is_below(self.options.cold_keys_per_address_max, self.queues.cold_keys_of_address(owner))
        };
        let owners = requesters.iter().filter(allowed).map(Owner::from);
        let owner = owners.min_by(|one, other| self.queues.sooner(upstream, *one, *other));
        if owner.is_none() && self.refuse_requesters(key, requesters) {
            self.counters.refused_cold_keys += 1;
            return;
        }
        let mut entry = Box::new(Entry {
            upstream,
            owner: owner.unwrap_or_default(),
            wanted: true,
            asked: false,
            state: None,
            reason: Arc::default(),
            kept: None,
            fetched: None,
            last: LastFetches::default(),
            due: Some(now),
            linger_end: None,
            queue_state: QueueState::Parked,
        });
        self.queues.attach(key, &mut entry);
        self.queues.enqueue(key, &mut entry);
        self.entries.insert(key.clone(), entry);
        if self.entries.len() > self.options.keys_max {
            self.make_room(key, requesters);
        }
    }

    /// Removes one key because the never-fetched key `newest` exceeds the maximum. The order of preference: a
    /// key without subscribers (a key with a document only while never-fetched keys fill at most half of the
    /// table); a key of a requester that waits for far more keys (if slightly more were enough, two floods
    /// would replace each other's keys forever); `newest` itself.
    fn make_room(&mut self, newest: &Key, requesters: &[Requester]) {
        let displaces_documents = self.queues.stats().cold <= self.options.keys_max.div_ceil(2);
        let spare = self.queues.first_empty_lingering();
        let spare = spare.or_else(|| self.queues.first_lingering(None).filter(|_| displaces_documents));
        if let Some(oldest) = spare {
            self.counters.evicted_keys += 1;
            self.forget(&oldest);
            return;
        }
        self.counters.refused_keys += 1;
        let last = self.queues.last_of_longest().filter(|last| self.waits_for_far_more(last, newest));
        let evicted = last.as_ref().unwrap_or(newest);
        self.remove(evicted);
        if last.is_none() && self.refuse_requesters(newest, requesters) {
            return;
        }
        self.refuse(evicted, "the maximum of keys is reached (feeds_limits.keys_max); try again later");
    }

    /// Returns `true` if the owner of `one` waits for at least twice as many keys as the owner of `other`.
    /// Counts the keys of their addresses or, for owners of the same address, those of their sessions.
    fn waits_for_far_more(&self, one: &Key, other: &Key) -> bool {
        let (Some(one), Some(other)) = (self.entries.get(one), self.entries.get(other)) else { return false };
        let waiting = |entry: &Entry| self.queues.waiting_of(entry.upstream, entry.owner);
        let ((address, session), (other_address, other_session)) = (waiting(one), waiting(other));
        if one.owner.is_of_address(other.owner) {
            session >= other_session.saturating_mul(2)
        } else {
            address >= other_address.saturating_mul(2)
        }
    }

    /// Refuses a new key to its requesters. Returns `false` if some requesters may be unknown.
    fn refuse_requesters(&mut self, key: &Key, requesters: &[Requester]) -> bool {
        if requesters.is_empty() || requesters.len() >= REQUESTERS_MAX {
            return false;
        }
        let refuse = |requester: &Requester| (key.clone(), FeedUpdate::Refuse(*requester));
        self.events.extend(requesters.iter().map(refuse));
        true
    }

    fn refuse(&mut self, key: &Key, reason: &str) {
        self.events.push_back((key.clone(), state_update(FeedState::NotFound, &reason.into())));
        self.events.push_back((key.clone(), FeedUpdate::Forget));
    }

    /// Drops all state of a key, here and in the data plane.
    fn forget(&mut self, key: &Key) {
        if self.remove(key).is_some_and(|entry| entry.state.is_some()) {
            self.events.push_back((key.clone(), FeedUpdate::Forget));
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Box<Entry>> {
        let mut entry = self.entries.remove(key)?;
        self.queues.detach(key, &mut entry);
        self.queues.lane_mut(entry.upstream).outage.forget(key);
        Some(entry)
    }

    /// Returns the next fetch to start, if one is due and a worker is free.
    pub fn poll_fetch(&mut self, now: Instant) -> Option<FetchJob> {
        while let Some(key) = self.queues.first_lingering(Some(now)) {
            self.forget(&key);
        }
        while let Some(upstream) = self.queues.first_probe(now) {
            self.probe(now, upstream);
        }
        while let Some(key) = self.queues.first_due(now) {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            self.queues.enqueue(&key, entry);
        }
        let key = self.queues.next_ready(now)?;
        let entry = self.entries.get_mut(&key)?;
        self.queues.detach(&key, entry);
        if let Some(due) = entry.due.take() {
            let late = now.saturating_duration_since(due);
            let measured = &mut self.queues.lane_mut(entry.upstream).measured;
            match FetchKind::of(entry) {
                FetchKind::Refresh => {
                    let interval = entry.fetched.take().map(|before| now.saturating_duration_since(before));
                    measured.record_refresh(late, interval);
                }
                FetchKind::First => measured.record_first(late),
                FetchKind::Lost => {}
            }
        }
        entry.asked = false;
        entry.queue_state = QueueState::InFlight { started: now, kind: FetchKind::of(entry) };
        self.queues.attach(&key, entry);
        Some(FetchJob { upstream: entry.upstream, kept: entry.kept.clone(), key })
    }

    /// Records the size of a received body after the fetch of a key, and the time that the fetch waited for
    /// memory.
    pub fn record_body(&mut self, key: &Key, bytes: usize, waited: Duration) {
        if let Some(entry) = self.entries.get(key) {
            self.queues.lane_mut(entry.upstream).measured.record_body(bytes, waited);
        }
    }

    /// Returns the kind of failure of a key's last fetch.
    pub fn failing(&self, key: &Key) -> Option<FailureClass> {
        self.entries.get(key)?.last.failing()
    }

    /// Takes the next update for the data plane, in order.
    pub fn poll_event(&mut self) -> Option<(Key, FeedUpdate)> {
        pop_front(&mut self.events)
    }

    /// Returns `true` if [`Self::poll_event`] has an update.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the options.
    pub(crate) fn options(&self) -> &FeedsOptions {
        &self.options
    }

    /// Returns the configured upstreams.
    pub fn upstreams(&self) -> &Vec<UpstreamOptions> {
        &self.options.upstreams
    }

    /// Returns statistics of the upstreams, in the order of [`FeedsOptions::upstreams`].
    pub fn lanes(&self) -> impl Iterator<Item = LaneStats> {
        self.queues.lanes()
    }

    /// Returns the time for the next call of [`Self::poll_fetch`] if no other event comes before. While all
    /// workers are busy, due keys don't count, because they wait for a result.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.queues.next_timeout()
    }

    /// Returns statistics.
    pub fn stats(&self) -> Stats {
        Stats { counters: self.counters, ..self.queues.stats() }
    }
}

fn state_update(state: FeedState, reason: &Arc<str>) -> FeedUpdate {
    FeedUpdate::State { state, reason: reason.clone() }
}

/// Returns the latest common time of refreshes that isn't after `due`. Common times are a 128th of the interval apart,
/// counted from `origin`. Keys that are due together share the threads' wake-ups.
fn common_time(origin: Instant, due: Instant, interval: Duration) -> Instant {
    let between = (interval / COMMON_TIMES).min(COMMON_TIMES_APART_MAX).as_nanos().max(1);
    let after = due.saturating_duration_since(origin).as_nanos() % between;
    // Below 10 ms, so the number fits.
    due - Duration::from_nanos(after as u64)
}

/// Returns `now + wait`. `wait` is limited to [`DURATION_MAX`].
fn later(now: Instant, wait: Duration) -> Instant {
    now + wait.min(DURATION_MAX)
}
