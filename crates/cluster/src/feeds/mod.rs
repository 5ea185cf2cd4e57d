//! Feeds of a cluster: one node fetches a key, all nodes that have subscribers follow. Sans-I/O.
//!
//! A node with subscribers reads what the engine keeps of the feed, then tries to acquire the key's lease. The holder
//! fetches the key. Each version is stored in the engine, which publishes it to the followers, and is delivered to the node's own
//! subscribers when it is stored. So no node ever shows a version that another holder could replace.
//!
//! ```text
//!              wanted             log read              acquired
//!   unknown ──────────► loading ──────────► following ──────────► holding
//!                          ▲                    │  ▲                  │
//!                          └──── a gap ─────────┘  └─── lost ─────────┘
//! ```
//!
//! The log also has the feed's state: the first thing that a holder stores, so that its newest entry names the holder. Followers ask
//! for the lease if the holder's node is silent ([`holders`]), has released it, or is unknown.
//!
//! Versions of two epochs can't be compared. So a client that names another epoch than its node's waits until the log is read anew
//! ([`Feeds::handle_confirm`]): it may come from a node that knows a newer version, and this node may be cut off.
//!
//! An epoch that this node has seen replaced is never accepted again, as when Sentinel returns to a former primary. The node then acquires
//! the lease, also from a holder with a lesser term. The first document that it fetches then, or the newest one that was pushed, is stored
//! in a further epoch.
//!
//! The lease of a feed whose documents are pushed is held only while a document is stored ([`push`]).
//!
//! **Invariants.** Versions are delivered in the order of their positions. A holder stores nothing before it has read the log under its
//! lease, nor after its lease has nearly ended by its own clock. A version that doesn't follow the one that this node has is not
//! applied: the log is read again.

mod cold;
mod driver;
mod feed;
mod holders;
mod leases;
mod leaving;
mod memory;
mod push;
mod replies;
mod request;
mod subscribers;

use crate::NodeId;
use crate::engine::Channel;
use crate::frame::{FeedStateChange, FeedVersion, Frame};
use crate::replaced::Replaced;
pub(crate) use cold::ColdKeys;
pub(crate) use driver::{FeedDriver, Surroundings};
use feed::{Feed, Role, Step};
use holders::Holders;
use leaving::delay_after_release;
use request::{Asked, FeedRequest, Output, Store, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Document, Epoch, FeedState, Key, Position, ShrinkingMap, pop_front};
use stentor_ports::{FeedSource, FeedUpdate, Wanted};

/// How long a lease lasts without renewal.
const LEASE_TTL: Duration = Duration::from_secs(6);
/// How often a holder renews its lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// A holder ceases to store so long before its lease ends.
const LEASE_MARGIN: Duration = Duration::from_secs(1);
/// How often a follower tries to acquire the lease of a node that is silent or unknown,
const ACQUIRE_INTERVAL: Duration = Duration::from_secs(3);
/// and of a node that is alive.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before a request that failed is made again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before a node with a pushed document asks for the lease again.
const PUSH_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Delay before the log is read for clients of another epoch, so that those that resume at the same time wait for one read.
const CONFIRM_DELAY: Duration = Duration::from_millis(20);
/// They wait for a log that has lost versions until the next version is stored, but no longer than this. Another node fetches by then if
/// the holder has died.
const LOST_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often a pushed document with subscribers is stored again, because the engine keeps it for a day.
const REFRESH_INTERVAL: Duration = Duration::from_secs(6 * 3_600);
/// The log of a feed begins anew after this number of entries.
const CHANGES_MAX: usize = 64;
/// Maximum number of requests without an answer. Others wait.
const REQUESTS_MAX: usize = 512;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Load,
    Acquire,
    Renew,
    Release,
    Store,
}

/// Figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedStats {
    pub(crate) leases: usize,
    pub(crate) followed: usize,
    pub(crate) resyncs: u64,
    pub(crate) lost_leases: u64,
    pub(crate) requests: u64,
    pub(crate) requests_waiting: usize,
    /// Cold keys in the engine because of this node, and leases of them that were released early.
    pub(crate) cold_keys: usize,
    pub(crate) cold_keys_released: u64,
}

/// Where the documents of a key come from.
pub type SourceOf = Arc<dyn Fn(&Key) -> FeedSource + Send + Sync>;

/// The feeds of one node.
pub(crate) struct Feeds {
    node: NodeId,
    source_of: SourceOf,
    feeds: ShrinkingMap<Key, Box<Feed>>,
    /// Leases that this node holds.
    leases: usize,
    cold: ColdKeys,
    holders: Holders,
    /// Epochs of feeds that this node has seen replaced.
    replaced: Replaced,
    asked: ShrinkingMap<Ticket, Asked>,
    drawn: u64,
    /// The last of them before the engine was connected again.
    drawn_before: u64,
    due: BTreeSet<(Instant, Key)>,
    outputs: VecDeque<Output>,
    /// Requests that wait until others are answered.
    requests: VecDeque<(Ticket, FeedRequest)>,
    /// How long a feed without subscribers is fetched.
    idle_ttl: Duration,
    random: fastrand::Rng,
    is_leaving: bool,
    resyncs: u64,
    lost_leases: u64,
    requested: u64,
}

impl Feeds {
    /// No feeds yet. Epochs and delays are drawn from the node's id. One without subscribers is fetched for `idle_ttl`.
    pub(crate) fn new(node: NodeId, source_of: SourceOf, idle_ttl: Duration, cold: ColdKeys) -> Self {
        Self {
            node,
            source_of,
            feeds: ShrinkingMap::default(),
            leases: 0,
            cold,
            holders: Holders::default(),
            replaced: Replaced::default(),
            asked: ShrinkingMap::default(),
            drawn: 0,
            drawn_before: 0,
            due: BTreeSet::new(),
            outputs: VecDeque::new(),
            requests: VecDeque::new(),
            idle_ttl,
            random: fastrand::Rng::with_seed(node.0),
            is_leaving: false,
            resyncs: 0,
            lost_leases: 0,
            requested: 0,
        }
    }

    /// What is to be done next.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        if self.asked.len() - self.requests.len() < REQUESTS_MAX
            && let Some((ticket, request)) = pop_front(&mut self.requests)
        {
            self.requested += 1;
            return Some(Output::Request(ticket, request));
        }
        pop_front(&mut self.outputs)
    }

    /// When [`Feeds::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.first().map(|(at, _)| *at);
        let report = self.holders.poll_timeout().filter(|_| self.leases > 0);
        [due, report, self.cold.poll_timeout()].into_iter().flatten().min()
    }

    pub(crate) fn stats(&self) -> FeedStats {
        FeedStats {
            leases: self.leases,
            followed: self.feeds.len() - self.leases,
            resyncs: self.resyncs,
            lost_leases: self.lost_leases,
            requests: self.requested,
            requests_waiting: self.requests.len(),
            cold_keys: self.cold.len(),
            cold_keys_released: self.cold.released_early(),
        }
    }

    /// The newest document of a key with subscribers, as far as this node knows.
    pub(crate) fn document(&self, key: &Key) -> Option<Document> {
        let feed = self.feeds.get(key).filter(|feed| feed.is_wanted && !feed.is_loading && !feed.missed)?;
        feed.newest.as_ref().map(|newest| newest.document.clone())
    }

    /// The node has subscribers of a key, or none any more.
    pub(crate) fn handle_wanted(&mut self, now: Instant, wanted: Wanted) {
        let Wanted { key, wanted: is_wanted, requesters } = wanted;
        if !is_wanted {
            return self.handle_unwanted(now, &key);
        }
        if !self.feeds.contains_key(&key) {
            self.insert(now, &key, true);
            self.load(now, &key);
        }
        let Some(feed) = self.feeds.get_mut(&key) else { return };
        feed.add_requesters(requesters);
        let was_wanted = std::mem::replace(&mut feed.is_wanted, true);
        feed.release_at = None;
        if feed.is_fetched() && feed.lease().is_some() {
            self.fetch(&key);
            if !was_wanted {
                // The core has forgotten it.
                self.show_newest(&key, Vec::new());
            }
        } else if !was_wanted {
            // Subscribed to now: versions from here on arrive. A lease may have been lost since the last subscriber left.
            self.load(now, &key);
        } else if !feed.is_loading && feed.newest.is_none() {
            self.show_absence(&key);
        }
        self.reschedule(&key);
    }

    /// Requests so far.
    pub(crate) fn requests_drawn(&self) -> u64 {
        self.drawn
    }

    /// Clients of this node wait to hear that a feed is as new as the engine's. [`FeedUpdate::Confirmed`] follows with the number of a
    /// request after this call. A feed that isn't known is about to be read for the first time, or has no subscribers any more.
    pub(crate) fn handle_confirm(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        feed.awaited = Some(self.drawn);
        // One that is being read, or to be read again, is read for them afterwards.
        if !feed.is_loading && !feed.missed {
            feed.confirm_at.get_or_insert(now + CONFIRM_DELAY);
            self.reschedule(key);
        }
    }

    /// The control plane has news of a key. Returns the news if the node's own subscribers are to have it as it is. A version has
    /// no effect without the lease: its position would be this node's own.
    pub(crate) fn handle_update(
        &mut self,
        now: Instant,
        key: &Key,
        update: FeedUpdate,
    ) -> Option<FeedUpdate> {
        let is_known = self.feeds.contains_key(key);
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| feed.lease().is_some()) else {
            return match update {
                FeedUpdate::Document(_) | FeedUpdate::Patched(..) => None,
                FeedUpdate::State { .. } if is_known => None,
                _ => Some(update),
            };
        };
        let own = match update {
            FeedUpdate::Document(document) => {
                feed.set_next(document, None);
                None
            }
            FeedUpdate::Patched(document, patch) => {
                feed.set_next(document, Some(patch));
                None
            }
            FeedUpdate::State { state, reason } => {
                feed.set_state((state, reason.clone()));
                Some(FeedUpdate::State { state, reason })
            }
            FeedUpdate::At { .. } | FeedUpdate::Forget | FeedUpdate::Refuse(_) | FeedUpdate::Confirmed(_) => {
                return Some(update);
            }
        };
        self.store(now, key);
        own
    }

    /// A version of a feed arrived from another node.
    pub(crate) fn handle_version(
        &mut self,
        now: Instant,
        sender: NodeId,
        key: &Key,
        position: Position,
        version: &FeedVersion,
    ) {
        if !self.handle_term(now, sender, key, version.term) {
            return;
        }
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        match feed.apply(position, version, &mut self.replaced) {
            Ok(Some(update)) => {
                feed.refresh_later(now, random);
                self.show(key, update);
            }
            Ok(None) => {}
            Err(_) => {
                self.resyncs += 1;
                self.load(now, key);
            }
        }
        self.reschedule(key);
    }

    /// A version arrived that this node has no memory for. It is read later.
    pub(crate) fn handle_deferred(&mut self, now: Instant, key: &Key) {
        if let Some(feed) = self.feeds.get_mut(key) {
            (feed.missed, feed.load_at) = (true, Some(now + RETRY_DELAY));
            self.reschedule(key);
        }
    }

    /// Another node has noticed a change of a feed's state, or begins to hold its lease.
    pub(crate) fn handle_state(
        &mut self,
        now: Instant,
        sender: NodeId,
        key: &Key,
        position: Option<Position>,
        change: &FeedStateChange,
    ) {
        if !self.handle_term(now, sender, key, change.term) {
            return;
        }
        match self.feeds.get_mut(key).map(|feed| feed.apply_state(position, change)) {
            Some(Ok(true)) => self.show_state(key),
            Some(Err(_)) => {
                self.resyncs += 1;
                self.load(now, key);
            }
            Some(Ok(false)) | None => {}
        }
        self.reschedule(key);
    }

    /// The holder with this term or a greater one is `sender`. Returns whether what it says counts.
    fn handle_term(&mut self, now: Instant, sender: NodeId, key: &Key, term: u64) -> bool {
        let Some(feed) = self.feeds.get_mut(key) else { return false };
        if term < feed.term_seen || feed.is_loading {
            // Of a holder that has lost its lease; or the log will have it.
            feed.missed |= feed.is_loading;
            return false;
        }
        self.holders.handle_alive(now, sender);
        feed.holder = Some(sender);
        if term > feed.term_seen {
            feed.term_seen = term;
            if feed.lease().is_some() {
                self.lose(now, key);
                return false;
            }
        }
        true
    }

    /// A holder has released its lease.
    pub(crate) fn handle_released(&mut self, now: Instant, key: &Key, term: u64) {
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| term >= feed.term_seen) else { return };
        feed.holder = None;
        let delay = delay_after_release(feed.is_fetched(), self.is_leaving, random);
        if let Role::Following { acquire_at } = &mut feed.role {
            *acquire_at = now + delay;
            self.reschedule(key);
        }
    }

    /// A node that fetches feeds is alive.
    pub(crate) fn handle_alive(&mut self, now: Instant, sender: NodeId) {
        self.holders.handle_alive(now, sender);
    }

    /// Something is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.cold.expire(now);
        if self.leases > 0 && self.holders.take_report(now) {
            self.outputs.push_back(Output::Publish(Channel::Nodes, Frame::Alive));
        }
        while let Some((at, key)) = self.due.first().cloned()
            && at <= now
        {
            self.due.pop_first();
            if let Some(feed) = self.feeds.get_mut(&key) {
                feed.due = None;
            }
            self.expire_pushes(now, &key);
            self.handle_due(now, &key);
            self.remove_unused(&key);
            self.reschedule(&key);
        }
    }

    fn handle_due(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if feed.load_at.take_if(|at| *at <= now).is_some() && feed.missed {
            self.load(now, key);
        }
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if feed.confirm_at.take_if(|at| *at <= now).is_some() {
            self.load(now, key);
        }
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if feed.release_at.take_if(|at| *at <= now).is_some() {
            return self.release(now, key);
        }
        match feed.role {
            Role::Holding { ends_at, .. } if now >= ends_at => {
                if feed.is_fetched() {
                    feed.state = (FeedState::Stale, "the cluster's engine doesn't answer".into());
                    self.show_state(key);
                }
                self.lose(now, key);
            }
            Role::Holding { lease, renew_at, ends_at } if now >= renew_at => {
                // It is due again when the engine has answered.
                feed.role = Role::Holding { lease, renew_at: ends_at, ends_at };
                let incarnation = feed.incarnation;
                let renew = FeedRequest::Renew { key: key.clone(), lease };
                self.request(now, Purpose::Renew, incarnation, renew);
            }
            Role::Following { acquire_at } => {
                if feed.needs_refresh(now) {
                    feed.refresh_later(now, random);
                    feed.must_store = true;
                }
                if acquire_at > now || !feed.needs_lease() {
                    return;
                }
                let silent_at = feed.holder.and_then(|holder| self.holders.silent_at(holder));
                match silent_at.filter(|at| feed.is_fetched() && *at > now && feed.check_at > now) {
                    // Not all followers at once.
                    Some(at) => {
                        let at = at.min(feed.check_at) + ACQUIRE_INTERVAL.mul_f64(0.3 * random);
                        feed.role = Role::Following { acquire_at: at };
                    }
                    None => self.acquire(now, key),
                }
            }
            Role::Holding { .. } | Role::Acquiring | Role::Loading => {}
        }
    }

    /// Stores what there is to store, if the lease lasts and nothing else is being stored.
    fn store(&mut self, now: Instant, key: &Key) {
        loop {
            let epoch = Epoch(self.random.u64(1..1 << 53));
            let Some(feed) = self.feeds.get_mut(key) else { return };
            let Role::Holding { lease, ends_at, .. } = feed.role else { return };
            if now >= ends_at || feed.storing.is_some() || feed.is_loading || feed.missed {
                return;
            }
            let incarnation = feed.incarnation;
            match feed.next_step(lease.term, epoch) {
                Step::Idle => return self.release_after_push(now, key),
                Step::Store(position, entries) => {
                    let (change, base) = *entries;
                    let store = Store { key: key.clone(), lease, position, change, base };
                    return self.request(
                        now,
                        Purpose::Store,
                        incarnation,
                        FeedRequest::Store(Box::new(store)),
                    );
                }
                Step::Publish(change) => {
                    let channel = Channel::from(key.clone());
                    self.outputs.push_back(Output::Publish(channel, Frame::State(change)));
                }
                Step::Show => self.show_state(key),
                Step::Answer(answer) => {
                    if let Some(push) = feed.pushes.pop_front() {
                        self.outputs.push_back(Output::Pushed(push.id, answer));
                    }
                }
            }
        }
    }

    fn insert(&mut self, now: Instant, key: &Key, is_wanted: bool) {
        self.drawn += 1;
        let feed = Feed::new(now, self.drawn, (self.source_of)(key), is_wanted);
        self.feeds.insert(key.clone(), Box::new(feed));
    }

    fn load(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        // What is being stored may be in the log or not.
        if feed.is_loading || feed.storing.is_some() {
            feed.missed = true;
            return;
        }
        feed.is_loading = true;
        (feed.missed, feed.load_at, feed.confirm_at) = (false, None, None);
        let incarnation = feed.incarnation;
        self.request(now, Purpose::Load, incarnation, FeedRequest::Load(key.clone()));
    }

    fn request(&mut self, now: Instant, purpose: Purpose, incarnation: u64, request: FeedRequest) {
        self.drawn += 1;
        let ticket = Ticket(self.drawn);
        let (key, term) = (request.key().clone(), request.term());
        self.asked.insert(ticket, Asked { key, incarnation, purpose, term, at: now });
        self.requests.push_back((ticket, request));
    }

    fn reschedule(&mut self, key: &Key) {
        self.count_cold(key);
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let due = feed.timeout();
        let before = std::mem::replace(&mut feed.due, due);
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
