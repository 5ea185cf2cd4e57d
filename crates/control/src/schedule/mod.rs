//! The fetch scheduler: when each key is fetched, and the updates for its subscribers. Sans-I/O: time, answers and a
//! seed come in; [`FetchJob`]s and [`FeedUpdate`]s come out.
//!
//! ```text
//!                  ┌────────────── success ──────────────┐
//!                  ▼                                     │
//!  Cold ──fresh──► Live ──error──► Stale ──error, back-off──┐
//!   │ │             │                ▲ └──────────────────►─┘
//!   │ └──error──────┼────────────────┘
//!   ├──404──────────┴──► NotFound (looked at again, rarely, while wanted or asked for)
//!   └──410, complete_on► Complete (never fetched again)
//! ```
//!
//! A key is known from its first subscription until it has had no subscribers for the linger time. It is fetched
//! while it has subscribers, or lingers with a document. Subscriptions never change the time at which a key is due,
//! so a client that subscribes and unsubscribes in a loop causes no fetch.
//!
//! **Contract with the home core.** The home core keeps the last document and state for as long as the scheduler
//! does, also without subscribers. A subscription within the linger time therefore doesn't send the document again.
//! `Forget` reports the end; it also follows a refusal at once. The state of a key without a document is sent again
//! for each subscription, because `NotFound` ends subscriptions.
//!
//! The scheduler doesn't fetch, parse, compare or wait for the data plane. Its caller does. The caller polls no fetch
//! while updates are undelivered, so the fetches in flight bound the undelivered updates.
//!
//! Invariants: one fetch in flight per key; never more fetches than the limits of process and upstream, nor more per
//! second than the upstream's rate; after `poll_fetch(now)` returned `None`, `poll_timeout()` is later than `now`;
//! the kept documents' bytes are within `documents_bytes_max`; the number of keys is within `keys_max`; a key without
//! subscribers that was never fetched isn't kept.

mod outcome;
mod queues;
#[cfg(test)]
mod tests;

pub use outcome::{
    Counters, FAILURE_CLASSES, FailureClass, FetchJob, Freshness, LaneStats, Lifetime, Outcome, Stats,
    Validators, Version,
};

use crate::fair::Owner;
use crate::options::{DURATION_MAX, FeedsOptions, UpstreamOptions};
use crate::route::Routes;
use fastrand::Rng;
use queues::{QueueState, Queues};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_edge::{FeedUpdate, REQUESTERS_MAX};
use stentor_hub::{FeedState, Key, Requester, ShrinkingMap, pop_front};

/// The minimum delay before a retry, whatever the random number.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// How a key is doing; `None` in [`Entry::state`] is cold.
struct Entry {
    upstream: usize,
    /// The session that the key is fetched for while it has no document.
    owner: Owner,
    wanted: bool,
    /// Somebody has asked for it while it was lost, since it was last fetched.
    asked: bool,
    state: Option<FeedState>,
    reason: Arc<str>,
    kept: Option<Arc<Version>>,
    failures: u32,
    /// How the last fetch failed.
    failing: Option<FailureClass>,
    /// When to fetch next; `None` if never (ended) or while in flight.
    due: Option<Instant>,
    /// When to forget the key; `Some` exactly while it isn't wanted.
    linger_end: Option<Instant>,
    queue_state: QueueState,
}

impl Entry {
    fn document_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.document.body.len())
    }

    /// Whether it waits for its first fetch.
    fn is_cold(&self) -> bool {
        self.state.is_none() && !matches!(self.queue_state, QueueState::InFlight { .. })
    }

    /// Whether it is worth a fetch: a key without a document that nobody waits for isn't. Of a lost key nobody can be
    /// seen to wait, because subscriptions to it end at once.
    fn is_active(&self) -> bool {
        self.wanted || self.asked || self.kept.is_some()
    }
}

/// See the module's documentation.
pub struct Scheduler {
    options: FeedsOptions,
    routes: Routes,
    entries: ShrinkingMap<Key, Entry>,
    queues: Queues,
    events: VecDeque<(Key, FeedUpdate)>,
    random: Rng,
    counters: Counters,
}

impl Scheduler {
    /// Starts with no keys. `seed` feeds the jitter of retries.
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
        }
    }

    /// Other options apply from now on. If the upstreams differ, fetches in flight are taken back: no
    /// [`Self::handle_result`] may follow for them. Keys keep their documents: those of an upstream that stayed the same
    /// also keep their times, those of another are fetched at once. Keys that no upstream serves any more are refused.
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
        // In the order of the keys, so that a run depends on nothing but its inputs.
        let mut entries: Vec<(Key, Entry)> = self.entries.drain().collect();
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

    /// Sets whether `key` has subscribers. Repeating a call changes nothing, except that the state of a key without a
    /// document is sent again. `requesters` are the sessions that have asked for the key since the last call, if it
    /// is new to the data plane. The list is empty if they are unknown.
    pub fn handle_wanted(&mut self, now: Instant, key: &Key, wanted: bool, requesters: &[Requester]) {
        let Some(entry) = self.entries.get_mut(key) else {
            if wanted {
                self.admit(now, key, requesters);
            }
            return;
        };
        if !wanted && entry.is_cold() {
            // It has neither a state nor a fetch in flight.
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
            // The key belongs to the requester that waits for the fewest keys, so that nobody can hide it behind
            // thousands of others. A known requester precedes an unknown one.
            for owner in requesters.iter().map(Owner::from) {
                if entry.owner.is_nobody() || self.queues.sooner(entry.upstream, owner, entry.owner).is_lt() {
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
        let mut entry = Entry {
            upstream,
            owner: owner.unwrap_or_default(),
            wanted: true,
            asked: false,
            state: None,
            reason: "".into(),
            kept: None,
            failures: 0,
            failing: None,
            due: Some(now),
            linger_end: None,
            queue_state: QueueState::Parked,
        };
        self.queues.attach(key, &mut entry);
        self.queues.enqueue(key, &mut entry);
        self.entries.insert(key.clone(), entry);
        if self.entries.len() > self.options.keys_max {
            self.make_room(key, requesters);
        }
    }

    /// The never-fetched key `newest` exceeds the maximum. One key is removed, in this order of preference: a key
    /// without subscribers (one with a document only while never-fetched keys fill less than half of the table); a
    /// key of a requester that waits for far more keys (not for slightly more, or two floods would replace each
    /// other's keys forever); `newest` itself.
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
        if let Some(mut entry) = self.entries.remove(evicted) {
            self.queues.detach(evicted, &mut entry);
        }
        if last.is_none() && self.refuse_requesters(newest, requesters) {
            return;
        }
        self.refuse(evicted, "the maximum of keys is reached (feeds_limits.keys_max); try again later");
    }

    /// Whether the owner of one key waits for at least twice as many keys as the owner of another: counted by
    /// address, or by session if both have the same address.
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

    /// Refuses a new key to its requesters. Returns false if not all of them are known.
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

    /// Drops all that is known of a key.
    fn forget(&mut self, key: &Key) {
        let Some(mut entry) = self.entries.remove(key) else { return };
        self.queues.detach(key, &mut entry);
        if entry.state.is_some() {
            self.events.push_back((key.clone(), FeedUpdate::Forget));
        }
    }

    /// The next fetch to start, if one is due and a worker is free.
    pub fn poll_fetch(&mut self, now: Instant) -> Option<FetchJob> {
        while let Some(key) = self.queues.first_lingering(Some(now)) {
            self.forget(&key);
        }
        while let Some(key) = self.queues.first_due(now) {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            self.queues.enqueue(&key, entry);
        }
        let key = self.queues.next_ready(now)?;
        let entry = self.entries.get_mut(&key)?;
        self.queues.detach(&key, entry);
        if let Some(due) = entry.due.take().filter(|_| entry.kept.is_some()) {
            self.queues.record_delay(entry.upstream, now.saturating_duration_since(due));
        }
        entry.asked = false;
        entry.queue_state = QueueState::InFlight { started: now, first: entry.kept.is_none() };
        self.queues.attach(&key, entry);
        Some(FetchJob { upstream: entry.upstream, kept: entry.kept.clone(), key })
    }

    /// Takes the outcome of a fetch. Without such a fetch in flight, nothing happens.
    pub fn handle_result(&mut self, now: Instant, key: &Key, outcome: Outcome) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let QueueState::InFlight { started, .. } = entry.queue_state else { return };
        self.queues.detach(key, entry);
        entry.queue_state = QueueState::Parked;
        let over = entry.linger_end.is_some_and(|end| end <= now);
        self.queues.attach(key, entry);
        if over {
            self.forget(key);
            return;
        }
        let outcome = self.enforce_limits(key, outcome);
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.queues.detach(key, entry);
        let mut tell = |update| self.events.push_back((key.clone(), update));
        match outcome {
            Outcome::Fresh { version, patch, freshness } => {
                let document = version.document.clone();
                tell(match patch {
                    Some(patch) => FeedUpdate::Patched(document, patch),
                    None => FeedUpdate::Document(document),
                });
                entry.kept = Some(Arc::new(version));
                entry.state = Some(FeedState::Live);
                succeed(&self.options, entry, started, now, freshness, &mut tell);
            }
            Outcome::Same { validators, freshness } => {
                if let (Some(kept), Some(validators)) = (&mut entry.kept, validators)
                    && kept.validators != validators
                {
                    Arc::make_mut(kept).validators = validators;
                }
                if entry.state != Some(FeedState::Live) {
                    entry.state = Some(FeedState::Live);
                    tell(state_update(FeedState::Live, &"the upstream answers again".into()));
                }
                succeed(&self.options, entry, started, now, freshness, &mut tell);
            }
            Outcome::Gone { reason } => end(entry, reason, &mut tell),
            Outcome::NotFound { reason } => {
                if entry.state != Some(FeedState::NotFound) {
                    tell(state_update(FeedState::NotFound, &reason));
                }
                entry.state = Some(FeedState::NotFound);
                entry.reason = reason;
                entry.kept = None;
                entry.failures = 0;
                entry.failing = None;
                entry.due = Some(later(now, self.options.not_found_retry_interval));
            }
            Outcome::Failed { class, reason, retry_after, pause } => {
                entry.failures = entry.failures.saturating_add(1);
                entry.failing = Some(class);
                let lost = entry.state == Some(FeedState::NotFound);
                entry.due = Some(if lost {
                    later(now, self.options.not_found_retry_interval)
                } else {
                    let wait = backoff(&self.options, entry.failures, &mut self.random);
                    later(now, wait.max(retry_after.unwrap_or_default().min(self.options.backoff_max)))
                });
                if let (true, Some(due)) = (pause, entry.due) {
                    self.queues.pause(entry.upstream, due);
                }
                if !lost {
                    if entry.state != Some(FeedState::Stale) || entry.reason != reason {
                        tell(state_update(FeedState::Stale, &reason));
                    }
                    entry.state = Some(FeedState::Stale);
                    entry.reason = reason;
                }
            }
        }
        self.queues.attach(key, entry);
    }

    /// Turns what can't be kept into a failure. Evicts keys without subscribers to make room.
    fn enforce_limits(&mut self, key: &Key, outcome: Outcome) -> Outcome {
        let Some(entry) = self.entries.get(key) else { return outcome };
        match &outcome {
            Outcome::Fresh { version, .. } => {
                let (new, old) = (version.document.body.len(), entry.document_bytes());
                let most = self.options.documents_bytes_max;
                let fits = |queues: &Queues| {
                    let others = queues.documents_bytes() - old;
                    others.checked_add(new).is_some_and(|sum| sum <= most)
                };
                if fits(&self.queues) {
                    return outcome;
                }
                while let Some(oldest) = self.queues.first_lingering(None).filter(|oldest| oldest != key) {
                    self.counters.evicted_keys += 1;
                    self.forget(&oldest);
                    if fits(&self.queues) {
                        return outcome;
                    }
                }
                self.counters.refused_documents += 1;
                let reason = "there is no room for the new version (feeds_limits.documents_bytes_max)";
                Outcome::failed(FailureClass::NoSpace, reason)
            }
            Outcome::Same { .. } if entry.kept.is_none() => {
                let reason = "the upstream says that nothing changed since nothing";
                Outcome::failed(FailureClass::Status, reason)
            }
            _ => outcome,
        }
    }

    /// The next update for the data plane, in order.
    pub fn poll_event(&mut self) -> Option<(Key, FeedUpdate)> {
        pop_front(&mut self.events)
    }

    /// Whether [`Self::poll_event`] has something.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The options.
    pub(crate) fn options(&self) -> &FeedsOptions {
        &self.options
    }

    /// The upstreams, as configured.
    pub fn upstreams(&self) -> &Vec<UpstreamOptions> {
        &self.options.upstreams
    }

    /// Figures of the upstreams, in the order of [`FeedsOptions::upstreams`].
    pub fn lanes(&self) -> impl Iterator<Item = LaneStats> {
        self.queues.lanes()
    }

    /// When to call [`Self::poll_fetch`] again, if nothing else happens. While all workers are busy, keys that are
    /// due don't count: a result comes first.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.queues.next_timeout()
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        Stats { counters: self.counters, ..self.queues.stats() }
    }
}

fn state_update(state: FeedState, reason: &Arc<str>) -> FeedUpdate {
    FeedUpdate::State { state, reason: reason.clone() }
}

/// The changes that follow every successful fetch.
fn succeed(
    options: &FeedsOptions,
    entry: &mut Entry,
    started: Instant,
    now: Instant,
    freshness: Freshness,
    tell: &mut impl FnMut(FeedUpdate),
) {
    entry.failures = 0;
    entry.failing = None;
    entry.reason = "".into();
    entry.due = match freshness {
        Freshness::For(age) => Some(later(now, options.bounded_max_age(entry.upstream, age))),
        // From begin to begin, so that a slow upstream's feed doesn't drift. Never in the past.
        Freshness::Unsaid => Some(later(started, options.upstreams[entry.upstream].poll_interval).max(now)),
        Freshness::Over => {
            end(entry, "the upstream said that this is the last version (max-age=0)".into(), tell);
            None
        }
    };
}

fn end(entry: &mut Entry, reason: Arc<str>, tell: &mut impl FnMut(FeedUpdate)) {
    tell(state_update(FeedState::Complete, &reason));
    entry.state = Some(FeedState::Complete);
    entry.reason = reason;
    entry.failures = 0;
    entry.failing = None;
    entry.due = None;
}

/// Exponential, with full jitter: anywhere between [`RETRY_MIN`] and the bound, which doubles with each failure.
fn backoff(options: &FeedsOptions, failures: u32, random: &mut Rng) -> Duration {
    let doubled = options
        .backoff_initial
        .saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let bound = doubled.min(options.backoff_max);
    let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random.u64(..=nanos)).max(RETRY_MIN)
}

/// `now + wait`, where no wait is longer than the options allow.
fn later(now: Instant, wait: Duration) -> Instant {
    now + wait.min(DURATION_MAX)
}
