//! Feeds of a cluster: one node fetches a key, all nodes that have subscribers follow. Sans-I/O.
//!
//! A node with subscribers reads what the engine keeps of the feed, then tries to acquire the key's lease. Who holds it is told to
//! fetch; each version is stored in the engine, which publishes it to the followers, and is delivered to the node's own
//! subscribers when it is stored. So no node ever shows a version that another holder could replace.
//!
//! ```text
//!              wanted             log read              acquired
//!   unknown ──────────► loading ──────────► following ──────────► holding
//!                          ▲                    │  ▲                  │
//!                          └──── a gap ─────────┘  └─── lost ─────────┘
//! ```
//!
//! **Invariants.** Versions are delivered in the order of their positions. A holder stores nothing after its lease has nearly ended by
//! its own clock. A version that doesn't follow the one that this node has is not applied: the log is read again.

mod answer;
mod feed;

use crate::NodeId;
use crate::engine::{EngineError, Lease, Request};
use crate::frame::{FeedStateChange, FeedVersion};
pub(crate) use answer::Answer;
use answer::DecodedLog;
use bytes::Bytes;
use feed::{Feed, Newest, Role};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_edge::{FeedUpdate, Wanted};
use stentor_hub::{Epoch, FeedState, Key, Position};

/// How long a lease lasts without renewal.
const LEASE_TTL: Duration = Duration::from_secs(6);
/// How often a holder renews its lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// A holder ceases to store so long before its lease ends.
const LEASE_MARGIN: Duration = Duration::from_secs(1);
/// How often a follower tries to acquire the lease.
const ACQUIRE_INTERVAL: Duration = Duration::from_secs(3);
/// Delay before a request that failed is made again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The log of a feed begins anew after this number of changes,
const CHANGES_MAX: usize = 64;

/// What the machine wants done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A request to the engine, to be answered with [`Feeds::handle_reply`].
    Request(Ticket, FeedRequest),
    /// A change of state for the followers.
    Publish(Key, FeedStateChange),
    /// Whether the control plane is to fetch a key.
    Control(Wanted),
    /// News for the node's own subscribers.
    Plane(Key, FeedUpdate),
}

/// A request about a feed, whose frames the caller encodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FeedRequest {
    Load(Key),
    Acquire { key: Key, term_seen: u64 },
    Renew { key: Key, lease: Lease },
    Release { key: Key, lease: Lease },
    Store(Box<Store>),
}

/// A version to store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Store {
    key: Key,
    lease: Lease,
    position: Position,
    change: FeedVersion,
    /// If the log is to begin anew.
    base: Option<FeedVersion>,
}

impl FeedRequest {
    /// The feed.
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Load(key)
            | Self::Acquire { key, .. }
            | Self::Renew { key, .. }
            | Self::Release { key, .. } => key,
            Self::Store(store) => &store.key,
        }
    }

    /// For the engine. `encode` makes the frame of a version.
    pub(crate) fn encode(self, encode: impl Fn(&Key, FeedVersion) -> Bytes) -> Request {
        match self {
            Self::Load(key) => Request::LoadFeed { key },
            Self::Acquire { key, term_seen } => Request::AcquireLease { key, term_seen, ttl: LEASE_TTL },
            Self::Renew { key, lease } => Request::RenewLease { key, lease, ttl: LEASE_TTL },
            Self::Release { key, lease } => Request::ReleaseLease { key, lease },
            Self::Store(store) => {
                let Store { key, lease, position, change, base } = *store;
                let change = encode(&key, change);
                let base = base.map(|base| encode(&key, base));
                let version = crate::engine::Version { position, change, base };
                Request::StoreVersion { key, lease, version }
            }
        }
    }
}

/// Names a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Load,
    Acquire,
    Renew,
    Release,
    Store,
}

/// A request without an answer.
struct Asked {
    key: Key,
    /// Which incarnation of the feed asked.
    incarnation: u64,
    purpose: Purpose,
    /// Of the lease that it is about.
    term: u64,
    at: Instant,
}

/// Figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedStats {
    pub(crate) leases: usize,
    pub(crate) followed: usize,
    pub(crate) resyncs: u64,
    pub(crate) lost_leases: u64,
}

/// The feeds of one node.
pub(crate) struct Feeds {
    feeds: HashMap<Key, Feed>,
    asked: HashMap<Ticket, Asked>,
    drawn: u64,
    due: BTreeSet<(Instant, Key)>,
    outputs: VecDeque<Output>,
    random: fastrand::Rng,
    resyncs: u64,
    lost_leases: u64,
}

impl Feeds {
    /// No feeds yet. Epochs and delays are drawn from `seed`.
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            feeds: HashMap::new(),
            asked: HashMap::new(),
            drawn: 0,
            due: BTreeSet::new(),
            outputs: VecDeque::new(),
            random: fastrand::Rng::with_seed(node.0),
            resyncs: 0,
            lost_leases: 0,
        }
    }

    /// What is to be done next.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Feeds::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(crate) fn stats(&self) -> FeedStats {
        let leases = self.feeds.values().filter(|feed| feed.lease().is_some()).count();
        let followed = self.feeds.len() - leases;
        FeedStats { leases, followed, resyncs: self.resyncs, lost_leases: self.lost_leases }
    }

    /// The node has subscribers of a key, or none any more.
    pub(crate) fn handle_wanted(&mut self, now: Instant, wanted: Wanted) {
        let Wanted { key, wanted: is_wanted, requesters } = wanted;
        if !is_wanted {
            return self.release(now, &key);
        }
        if let Some(feed) = self.feeds.get_mut(&key) {
            feed.add_requesters(requesters);
            if feed.lease().is_some() {
                let requesters = std::mem::take(&mut feed.requesters);
                self.outputs.push_back(Output::Control(Wanted { key, wanted: true, requesters }));
            }
            return;
        }
        self.drawn += 1;
        let mut feed = Feed::new(self.drawn);
        feed.add_requesters(requesters);
        self.feeds.insert(key.clone(), feed);
        self.load(now, &key);
    }

    /// The control plane has news of a key. Returns the news if the node's own subscribers are to have it as it is: the key
    /// isn't one that this node fetches for the cluster.
    pub(crate) fn handle_update(
        &mut self,
        now: Instant,
        key: &Key,
        update: FeedUpdate,
    ) -> Option<FeedUpdate> {
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| feed.lease().is_some()) else {
            return Some(update);
        };
        match update {
            FeedUpdate::Document(document) => feed.next = Some((document, None)),
            FeedUpdate::Patched(document, patch) => feed.next = Some((document, Some(patch))),
            FeedUpdate::State { state, reason } => {
                let term = feed.term_seen;
                if state == FeedState::NotFound {
                    feed.newest = None;
                }
                feed.state = state;
                let change = FeedStateChange { term, state, reason: reason.clone() };
                self.outputs.push_back(Output::Publish(key.clone(), change));
                return Some(FeedUpdate::State { state, reason });
            }
            FeedUpdate::At { .. } | FeedUpdate::Forget | FeedUpdate::Refuse(_) => return Some(update),
        }
        self.store(now, key);
        None
    }

    /// A version of a feed arrived from another node.
    pub(crate) fn handle_version(
        &mut self,
        now: Instant,
        key: &Key,
        position: Position,
        version: &FeedVersion,
    ) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if version.term < feed.term_seen || feed.is_loading {
            // Of a holder that has lost its lease; or the log will have it.
            feed.missed |= feed.is_loading;
            return;
        }
        if version.term > feed.term_seen {
            feed.term_seen = version.term;
            if feed.lease().is_some() {
                self.lose(now, key);
            }
        }
        match self.feeds.get_mut(key).map(|feed| feed.apply(position, version)) {
            Some(Ok(Some(update))) => self.outputs.push_back(Output::Plane(key.clone(), update)),
            Some(Err(_)) => {
                self.resyncs += 1;
                self.load(now, key);
            }
            Some(Ok(None)) | None => {}
        }
    }

    /// A version arrived that this node has no memory for. It is read later.
    pub(crate) fn handle_deferred(&mut self, now: Instant, key: &Key) {
        if let Some(feed) = self.feeds.get_mut(key) {
            feed.missed = true;
            self.schedule(key, now + RETRY_DELAY);
        }
    }

    /// Another node has noticed a change of a feed's state.
    pub(crate) fn handle_state(&mut self, key: &Key, change: FeedStateChange) {
        let FeedStateChange { term, state, reason } = change;
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if term < feed.term_seen || feed.lease().is_some() {
            return;
        }
        feed.term_seen = term;
        feed.state = state;
        if state == FeedState::NotFound {
            feed.newest = None;
        }
        self.outputs.push_back(Output::Plane(key.clone(), FeedUpdate::State { state, reason }));
    }

    /// The engine is connected again: messages may have been missed.
    pub(crate) fn handle_connected(&mut self, now: Instant) {
        let keys: Vec<Key> = self.feeds.keys().cloned().collect();
        for key in keys {
            if let Some(feed) = self.feeds.get_mut(&key) {
                feed.begin_log_anew();
                if feed.lease().is_none() {
                    self.load(now, &key);
                }
            }
        }
    }

    /// The engine has answered.
    pub(crate) fn handle_reply(&mut self, now: Instant, ticket: Ticket, answer: Answer) {
        let Some(Asked { key, incarnation, purpose, term, at }) = self.asked.remove(&ticket) else { return };
        let Some(feed) = self.feeds.get_mut(&key).filter(|feed| feed.incarnation == incarnation) else {
            // Nobody needs the lease any more.
            if let (Purpose::Acquire, Answer::Lease(Some(lease))) = (purpose, answer) {
                self.request(now, Purpose::Release, 0, FeedRequest::Release { key, lease });
            }
            return;
        };
        let is_expected = match purpose {
            Purpose::Load | Purpose::Release => true,
            Purpose::Acquire => matches!(feed.role, Role::Acquiring),
            // Of the lease that it holds, not of an earlier one.
            Purpose::Renew => feed.lease().is_some_and(|lease| lease.term == term),
            Purpose::Store => feed.storing.is_some() && feed.lease().is_some_and(|lease| lease.term == term),
        };
        if !is_expected {
            return;
        }
        match (purpose, answer) {
            (Purpose::Load, Answer::Log(log)) => self.handle_log(now, &key, log),
            (Purpose::Load, _) => {
                feed.is_loading = false;
                feed.missed = true;
                self.schedule(&key, now + RETRY_DELAY);
            }
            (Purpose::Acquire, Answer::Lease(Some(lease))) => {
                feed.term_seen = feed.term_seen.max(lease.term);
                feed.role = Role::Holding {
                    lease,
                    renew_at: at + RENEW_INTERVAL,
                    ends_at: at + LEASE_TTL - LEASE_MARGIN,
                };
                let requesters = std::mem::take(&mut feed.requesters);
                self.outputs.push_back(Output::Control(Wanted {
                    key: key.clone(),
                    wanted: true,
                    requesters,
                }));
                self.schedule(&key, at + RENEW_INTERVAL);
            }
            (Purpose::Acquire, _) => {
                let delay = ACQUIRE_INTERVAL.mul_f64(0.75 + 0.5 * self.random.f64());
                feed.role = Role::Following { acquire_at: now + delay };
                self.schedule(&key, now + delay);
            }
            (Purpose::Renew, Answer::Lease(Some(_))) => {
                if let Role::Holding { renew_at, ends_at, .. } = &mut feed.role {
                    (*renew_at, *ends_at) = (at + RENEW_INTERVAL, at + LEASE_TTL - LEASE_MARGIN);
                    self.schedule(&key, at + RENEW_INTERVAL);
                }
            }
            (Purpose::Renew, Answer::Lease(None)) => self.lose(now, &key),
            (Purpose::Renew, _) => {
                if let Role::Holding { renew_at, ends_at, .. } = &mut feed.role {
                    *renew_at = now + RETRY_DELAY;
                    let due = (*renew_at).min(*ends_at);
                    self.schedule(&key, due);
                }
            }
            (Purpose::Store, Answer::Done) => self.handle_stored(now, &key),
            (Purpose::Store, Answer::Failed(EngineError::Fenced)) => self.lose(now, &key),
            (Purpose::Store, _) => {
                // Whether it was stored is unknown: the log knows. If it was not, it is stored again.
                let stored = feed.storing.take().map(|stored| (stored.newest.document, None));
                feed.next = feed.next.take().or(stored);
                feed.begin_log_anew();
                self.resyncs += 1;
                self.load(now, &key);
            }
            (Purpose::Release, _) => {}
        }
    }

    /// Something is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.first().cloned()
            && at <= now
        {
            self.due.pop_first();
            let Some(feed) = self.feeds.get_mut(&key) else { continue };
            if feed.due != Some(at) {
                continue;
            }
            feed.due = None;
            if feed.missed && !feed.is_loading {
                self.load(now, &key);
                continue;
            }
            let incarnation = feed.incarnation;
            match feed.role {
                Role::Holding { ends_at, .. } if now >= ends_at => {
                    self.lose(now, &key);
                    let reason = Arc::from("the cluster's engine doesn't answer");
                    let update = FeedUpdate::State { state: FeedState::Stale, reason };
                    self.outputs.push_back(Output::Plane(key, update));
                }
                Role::Holding { lease, ends_at, .. } => {
                    self.schedule(&key, ends_at);
                    self.request(now, Purpose::Renew, incarnation, FeedRequest::Renew { key, lease });
                }
                Role::Following { .. } => self.acquire(now, &key),
                Role::Acquiring | Role::Loading => {}
            }
        }
    }

    fn handle_log(&mut self, now: Instant, key: &Key, log: Option<DecodedLog>) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        feed.is_loading = false;
        let before = feed.newest.as_ref().map(|newest| newest.position);
        let patches = match log.map(|log| feed.replace(log)) {
            Some(Ok(patches)) => patches,
            // Broken, or there is none.
            Some(Err(_)) | None => {
                feed.begin_epoch();
                Vec::new()
            }
        };
        if let Some(newest) = feed.newest.as_ref().filter(|newest| Some(newest.position) != before) {
            let (position, document) = (newest.position, newest.document.clone());
            feed.state = FeedState::Live;
            let update = FeedUpdate::At { position, document, patches };
            self.outputs.push_back(Output::Plane(key.clone(), update));
        }
        // A version came while the log was read, which may be older than it.
        let again = std::mem::take(&mut feed.missed);
        match feed.role {
            Role::Loading => self.acquire(now, key),
            Role::Holding { lease, .. } if lease.term < feed.term_seen => self.lose(now, key),
            Role::Holding { renew_at, ends_at, .. } => {
                self.schedule(key, renew_at.min(ends_at));
                self.store(now, key);
            }
            Role::Following { acquire_at } => self.schedule(key, acquire_at),
            Role::Acquiring => {}
        }
        if again {
            self.load(now, key);
        }
    }

    fn handle_stored(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let Some(stored) = feed.storing.take() else { return };
        let Newest { position, document } = stored.newest;
        let patches = stored.patch.into_iter().collect();
        feed.newest = Some(Newest { position, document: document.clone() });
        feed.state = FeedState::Live;
        self.outputs.push_back(Output::Plane(key.clone(), FeedUpdate::At { position, document, patches }));
        self.store(now, key);
    }

    /// Stores the control plane's newest document, if the lease lasts and nothing else is being stored.
    fn store(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let Role::Holding { lease, ends_at, .. } = feed.role else { return };
        if now >= ends_at || feed.storing.is_some() || feed.is_loading {
            return;
        }
        let Some((document, patch)) = feed.next.take() else { return };
        if feed.newest.as_ref().is_some_and(|newest| newest.document == document) {
            if feed.state != FeedState::Live {
                feed.state = FeedState::Live;
                let (term, state, reason) = (feed.term_seen, FeedState::Live, Arc::from(""));
                let change = FeedStateChange { term, state, reason };
                let update = FeedUpdate::State { state, reason: change.reason.clone() };
                self.outputs.push_back(Output::Publish(key.clone(), change));
                self.outputs.push_back(Output::Plane(key.clone(), update));
            }
            return;
        }
        let epoch = Epoch(self.random.u64(1..1 << 53));
        let (position, change, base) = feed.version(lease.term, epoch, document, patch);
        let incarnation = feed.incarnation;
        let request = FeedRequest::Store(Box::new(Store { key: key.clone(), lease, position, change, base }));
        self.request(now, Purpose::Store, incarnation, request);
    }

    fn load(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if feed.is_loading {
            feed.missed = true;
            return;
        }
        feed.is_loading = true;
        feed.missed = false;
        let incarnation = feed.incarnation;
        self.request(now, Purpose::Load, incarnation, FeedRequest::Load(key.clone()));
    }

    fn acquire(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        feed.role = Role::Acquiring;
        let (term_seen, incarnation) = (feed.term_seen, feed.incarnation);
        let request = FeedRequest::Acquire { key: key.clone(), term_seen };
        self.request(now, Purpose::Acquire, incarnation, request);
    }

    /// The lease is lost: another node fetches, or will.
    fn lose(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        self.lost_leases += 1;
        feed.storing = None;
        feed.next = None;
        let acquire_at = now + RETRY_DELAY;
        feed.role = Role::Following { acquire_at };
        let wanted = Wanted { key: key.clone(), wanted: false, requesters: Vec::new() };
        self.outputs.push_back(Output::Control(wanted));
        self.schedule(key, acquire_at);
        self.load(now, key);
    }

    /// The node has no subscribers of a key any more.
    fn release(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.remove(key) else { return };
        if let Some(at) = feed.due {
            self.due.remove(&(at, key.clone()));
        }
        if let Some(lease) = feed.lease() {
            let wanted = Wanted { key: key.clone(), wanted: false, requesters: Vec::new() };
            self.outputs.push_back(Output::Control(wanted));
            self.request(now, Purpose::Release, 0, FeedRequest::Release { key: key.clone(), lease });
        }
        self.outputs.push_back(Output::Plane(key.clone(), FeedUpdate::Forget));
    }

    fn request(&mut self, now: Instant, purpose: Purpose, incarnation: u64, request: FeedRequest) {
        self.drawn += 1;
        let ticket = Ticket(self.drawn);
        let key = request.key().clone();
        let term = match &request {
            FeedRequest::Load(_) | FeedRequest::Acquire { .. } => 0,
            FeedRequest::Renew { lease, .. } | FeedRequest::Release { lease, .. } => lease.term,
            FeedRequest::Store(store) => store.lease.term,
        };
        self.asked.insert(ticket, Asked { key, incarnation, purpose, term, at: now });
        self.outputs.push_back(Output::Request(ticket, request));
    }

    fn schedule(&mut self, key: &Key, at: Instant) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if let Some(before) = feed.due.replace(at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key.clone()));
    }
}

#[cfg(test)]
mod tests;
