//! Feeds of a cluster: one node fetches a key, and all nodes with subscribers follow. Sans-I/O.
//!
//! A node with subscribers reads the log of the feed in the engine, then tries to acquire the key's lease. The holder of the lease
//! fetches the key. Each version is stored in the engine, which publishes it to the followers, and is delivered to the node's own
//! subscribers when it is stored. So no node ever shows a version that another holder could replace.
//!
//! [`phase`] has the phases of a feed and their transitions. [`log`] has the node's copy of the log.
//!
//! The log has the feed's state as well. A holder stores it first, so that the log's newest entry names the holder. Followers ask
//! for the lease if the holder's node is silent ([`holders`]), has released it, or is unknown.
//!
//! Versions of two epochs can't be compared. So a client that names another epoch than its node's waits until the log is read anew
//! ([`Feeds::handle_confirm`]): it may come from a node that knows a newer version, and this node may be cut off.
//!
//! An epoch that this node has seen replaced is never accepted again, as when Sentinel returns to a former primary. The node then acquires
//! the lease, also from a holder with a lesser term. The first document that it fetches then, or the newest one that was pushed, is stored
//! in a further epoch.
//!
//! Versions that the engine has lost are stored again at their positions, with their terms, and marked as restored: the next version begins
//! a new epoch. So does the version after a log that a lagging replica may have truncated. Until then, clients of other epochs wait
//! ([`LOST_WAIT_MAX`]). A holder whose connection was lost acquires a greater term: another server may have been the primary meanwhile.
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
mod log;
mod phase;
mod push;
mod replies;
mod requests;
mod subscribers;

use crate::NodeId;
use crate::engine::{Channel, Request, Version};
use crate::frame::{Frame, FrameError, Frames, LogEntry};
use crate::replaced::Replaced;
use bytes::Bytes;
pub(crate) use cold::ColdKeys;
pub(crate) use driver::{FeedDriver, Surroundings};
use feed::{Feed, PushAnswer, Refresh, Step, Waiting};
use holders::Holders;
use leaving::delay_after_release;
use log::Entries;
use phase::{Holding, Next, Phase};
use requests::{Asked, Purpose, Requests, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Document, Epoch, FeedState, Key, Position, ShrinkingMap, pop_front};
use stentor_ports::{FeedSource, FeedUpdate, KeyInterest};

/// Duration of a lease without renewal.
const LEASE_TTL: Duration = Duration::from_secs(6);
/// Interval at which a holder renews its lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// Time before the end of a lease from which its holder stores nothing.
const LEASE_MARGIN: Duration = Duration::from_secs(1);
/// Interval at which a follower tries to acquire the lease of a node that is silent or unknown.
const ACQUIRE_INTERVAL: Duration = Duration::from_secs(3);
/// The same interval for the lease of a node that is alive.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before a request that failed is made again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before a node with a pushed document asks for the lease again.
const PUSH_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Delay before the log is read for clients of another epoch, so that clients that resume at the same time wait for one
/// read.
const CONFIRM_DELAY: Duration = Duration::from_millis(20);
/// Maximum time for which these clients wait for the next version if the log has lost versions. If the holder has died,
/// another node fetches by then.
const LOST_WAIT_MAX: Duration = Duration::from_secs(10);
/// The reason why a feed is stale whose holder is silent.
const HOLDER_SILENT: &str = "the node that fetched this has gone; another one takes over";
/// Interval at which a pushed document with subscribers is stored again, because the engine keeps it for a day.
const REFRESH_INTERVAL: Duration = Duration::from_secs(6 * 3_600);
/// The log of a feed begins anew after this number of entries.
const CHANGES_MAX: usize = 64;
/// Maximum number of requests without an answer. Others wait.
const REQUESTS_MAX: usize = 512;

/// Memory of a feed without its document: its state and its places in the tables.
const FEED_BYTES: usize = size_of::<Feed>() + 256;

/// An output of the machine.
#[derive(Debug)]
pub(crate) enum Output {
    /// A request to the engine, to be answered with [`Feeds::handle_reply`].
    Request(Ticket, Request),
    /// An encoded frame for other nodes.
    Publish(Channel, Bytes),
    /// A key that the control plane must fetch, or must no longer fetch.
    Control(KeyInterest),
    /// An update for the node's own subscribers.
    Plane(Key, FeedUpdate),
    /// The answer to a push.
    Pushed(u64, PushAnswer),
    /// A frame of the log was refused, for this reason.
    Refused(FrameError),
}

/// Values for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedStats {
    pub(crate) leases: usize,
    pub(crate) followed: usize,
    pub(crate) resyncs: u64,
    pub(crate) lost_leases: u64,
    pub(crate) refused_entries: u64,
    pub(crate) requests: u64,
    pub(crate) requests_waiting: usize,
    /// Number of cold keys in the engine because of this node, and of their leases that were released early.
    pub(crate) cold_keys: usize,
    pub(crate) cold_keys_released: u64,
}

/// Returns the source of a key's documents.
pub type SourceOf = Arc<dyn Fn(&Key) -> FeedSource + Send + Sync>;

/// The feeds of one node.
pub(crate) struct Feeds {
    frames: Frames,
    source_of: SourceOf,
    feeds: ShrinkingMap<Key, Box<Feed>>,
    /// Number of leases that this node holds.
    leases: usize,
    cold: ColdKeys,
    holders: Holders,
    /// Epochs of feeds that this node has seen replaced.
    replaced: Replaced,
    requests: Requests,
    due: BTreeSet<(Instant, Key)>,
    outputs: VecDeque<Output>,
    /// Time for which a feed without subscribers is fetched.
    idle_ttl: Duration,
    random: fastrand::Rng,
    /// The last request before the node last began to leave. `None` if it doesn't leave.
    left_at: Option<Ticket>,
    resyncs: u64,
    lost_leases: u64,
}

impl Feeds {
    /// Creates the machine of the node that writes `frames`, without feeds. Epochs and delays are drawn from the node's id. A feed without
    /// subscribers is fetched for `idle_ttl`.
    pub(crate) fn new(frames: Frames, source_of: SourceOf, idle_ttl: Duration, cold: ColdKeys) -> Self {
        let random = fastrand::Rng::with_seed(frames.node().0);
        Self {
            frames,
            source_of,
            feeds: ShrinkingMap::default(),
            leases: 0,
            cold,
            holders: Holders::default(),
            replaced: Replaced::default(),
            requests: Requests::default(),
            due: BTreeSet::new(),
            outputs: VecDeque::new(),
            idle_ttl,
            random,
            left_at: None,
            resyncs: 0,
            lost_leases: 0,
        }
    }

    /// The next output.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        let request = self.requests.poll().map(|(ticket, request)| Output::Request(ticket, request));
        request.or_else(|| pop_front(&mut self.outputs))
    }

    /// The time at which [`Feeds::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.first().map(|(at, _)| *at);
        let report = self.holders.poll_timeout().filter(|_| self.leases > 0);
        [due, report, self.cold.poll_timeout()].into_iter().flatten().min()
    }

    /// Returns the bytes of all feeds, requests and replaced epochs.
    pub(crate) fn held_bytes(&self) -> usize {
        let leases = self.leases * size_of::<Holding>();
        self.feeds.len() * FEED_BYTES + leases + self.requests.held_bytes() + self.replaced.held_bytes()
    }

    pub(crate) fn stats(&self) -> FeedStats {
        FeedStats {
            leases: self.leases,
            followed: self.feeds.len() - self.leases,
            resyncs: self.resyncs,
            lost_leases: self.lost_leases,
            refused_entries: self.requests.refused,
            requests: self.requests.sent,
            requests_waiting: self.requests.waiting.len(),
            cold_keys: self.cold.len(),
            cold_keys_released: self.cold.released_early(),
        }
    }

    /// Returns the newest document of a key with subscribers that this node knows.
    pub(crate) fn document(&self, key: &Key) -> Option<Arc<Document>> {
        let feed = self.feeds.get(key).filter(|feed| feed.local.is_wanted() && feed.phase.is_current())?;
        feed.log.newest.as_ref().map(|newest| newest.document.clone())
    }

    /// Called when the node has subscribers of a key, or when the last one has left.
    pub(crate) fn handle_wanted(&mut self, now: Instant, wanted: KeyInterest) {
        let KeyInterest { key, wanted: is_wanted, requesters } = wanted;
        if !is_wanted {
            return self.handle_unwanted(now, &key);
        }
        if !self.feeds.contains_key(&key) {
            self.insert(now, &key, true);
            self.request(now, &key, Purpose::Load, Request::LoadFeed { key: key.clone() });
        }
        let Some(feed) = self.feeds.get_mut(&key) else { return };
        let was_wanted = feed.local.want(requesters);
        if feed.is_fetched() && feed.phase.holding().is_some() {
            self.fetch(&key);
            if !was_wanted {
                // The core has forgotten the version.
                self.show_newest(&key, Vec::new());
            }
        } else if !was_wanted {
            // The subscription begins now, so later versions arrive. A lease may have been lost since the last
            // subscriber left.
            self.load(now, &key);
        } else if !feed.phase.is_reading() && feed.log.newest.is_none() {
            self.show_absence(&key);
        }
        self.reschedule(&key);
    }

    /// Number of requests so far.
    pub(crate) fn requests_drawn(&self) -> u64 {
        self.requests.drawn()
    }

    /// Handles clients that wait until the node's copy of a feed is confirmed. [`FeedUpdate::Confirmed`] follows with
    /// the number of a request after this call. An unknown feed is about to be read for the first time, or has no subscribers
    /// left.
    pub(crate) fn handle_confirm(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        // If the log is being read, or must be read again, it is read once more afterwards.
        let read_at = feed.phase.is_current().then_some(now + CONFIRM_DELAY);
        feed.waiting = Some(Waiting { asked: self.requests.drawn(), read_at: feed.confirm_at().or(read_at) });
        self.reschedule(key);
    }

    /// Handles news of a key from the control plane. Returns the news if the node's own subscribers receive them
    /// unchanged. Without the lease, a version has no effect: its position would be this node's own.
    pub(crate) fn handle_update(
        &mut self,
        now: Instant,
        key: &Key,
        update: FeedUpdate,
    ) -> Option<FeedUpdate> {
        let is_known = self.feeds.contains_key(key);
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| feed.phase.holding().is_some()) else {
            return match update {
                FeedUpdate::Changed(_) => None,
                FeedUpdate::State { .. } if is_known => None,
                _ => Some(update),
            };
        };
        let (next, own) = match update {
            FeedUpdate::Changed(change) => (Some(change), None),
            FeedUpdate::State { state, ref reason } => {
                feed.set_state((state, reason.clone()));
                (None, Some(update))
            }
            FeedUpdate::At { .. } | FeedUpdate::Forget | FeedUpdate::Refuse(_) | FeedUpdate::Confirmed(_) => {
                return Some(update);
            }
        };
        if let (Some(change), Some(holding)) = (next, feed.phase.holding_mut()) {
            holding.is_informed = true;
            holding.next = Some(Next { change, state: None });
        }
        self.store(now, key);
        own
    }

    /// Handles an entry that another node has stored, or a state that no log has.
    pub(crate) fn handle_entry(
        &mut self,
        now: Instant,
        sender: NodeId,
        key: &Key,
        position: Option<Position>,
        entry: &LogEntry,
    ) {
        if (entry.version.is_some() && position.is_none()) || !self.handle_term(now, sender, key, entry.term)
        {
            return;
        }
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        match feed.log.apply(position, entry, &mut self.replaced) {
            Ok(Some(FeedUpdate::State { .. })) => self.show_state(key),
            Ok(Some(update)) => {
                if feed.refresh != Refresh::Due {
                    feed.plan_refresh(now, random, false);
                }
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

    /// Handles an entry for which this node has no memory: the log is read later.
    pub(crate) fn handle_deferred(&mut self, now: Instant, key: &Key) {
        if let Some(feed) = self.feeds.get_mut(key) {
            feed.phase.read_at_or_next(now + RETRY_DELAY);
            self.reschedule(key);
        }
    }

    /// Called when `sender` holds a lease with this term. Returns `false` if its entry has no effect.
    fn handle_term(&mut self, now: Instant, sender: NodeId, key: &Key, term: u64) -> bool {
        let Some(feed) = self.feeds.get_mut(key) else { return false };
        if feed.phase.is_reading() {
            // The pending read may return the log without this entry, so another read follows it.
            feed.phase.begin_read();
            return false;
        }
        if term < feed.log.term_seen {
            // The sender has lost its lease.
            return false;
        }
        self.holders.handle_alive(now, sender);
        feed.log.holder = Some(sender);
        let is_new = term > feed.log.term_seen;
        feed.log.term_seen = term;
        let is_lost = is_new && feed.phase.holding().is_some();
        if is_lost {
            self.lose(now, key);
        }
        !is_lost
    }

    /// Called when a holder has released its lease.
    pub(crate) fn handle_released(&mut self, now: Instant, key: &Key, term: u64) {
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| term >= feed.log.term_seen) else { return };
        feed.log.holder = None;
        let delay = delay_after_release(feed.is_fetched(), self.left_at.is_some(), random);
        feed.phase.acquire_at(now + delay);
        self.reschedule(key);
    }

    /// Handles a report that a node that fetches feeds is alive.
    pub(crate) fn handle_alive(&mut self, now: Instant, sender: NodeId) {
        self.holders.handle_alive(now, sender);
    }

    /// Handles timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.cold.expire(now);
        if self.leases > 0 && self.holders.take_report(now) {
            self.publish(Channel::Nodes, &Frame::Alive);
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
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(feed.phase.read_at()) || is_due(feed.confirm_at()) {
            feed.begin_confirm();
            self.load(now, key);
        }
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if is_due(feed.local.until()) {
            return self.release(now, key);
        }
        let is_fetched = feed.is_fetched();
        match &mut feed.phase {
            Phase::Holding(holding) if now >= holding.ends_at => {
                if is_fetched {
                    feed.log.state = (FeedState::Stale, "the cluster's engine doesn't answer".into());
                    self.show_state(key);
                }
                self.lose(now, key);
            }
            Phase::Holding(holding) if now >= holding.renew_at => {
                // The lease isn't renewed again before the engine answers.
                holding.renew_at = holding.ends_at;
                let lease = holding.lease;
                let renew = Request::RenewLease { key: key.clone(), lease, ttl: LEASE_TTL };
                self.request(now, key, Purpose::Renew(lease.term), renew);
            }
            Phase::Following { acquire_at, .. } => {
                let acquire_at = *acquire_at;
                self.follow_up(now, key, acquire_at, random);
            }
            Phase::Holding(_) | Phase::Acquiring { .. } | Phase::Loading(_) => {}
        }
    }

    /// Lets a follower ask for the lease if it is time, unless the holder is alive.
    fn follow_up(&mut self, now: Instant, key: &Key, acquire_at: Instant, random: f64) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if matches!(feed.refresh, Refresh::At(at) if at <= now) {
            feed.refresh = Refresh::Due;
        }
        if acquire_at > now || !feed.needs_lease() {
            return;
        }
        let silent_at = feed.log.holder.and_then(|holder| self.holders.silent_at(holder));
        let is_silent = silent_at.is_some_and(|at| at <= now) && feed.is_fetched();
        match silent_at.filter(|at| feed.is_fetched() && *at > now && feed.check_at > now) {
            // A random delay keeps the followers from asking at the same time.
            Some(at) => feed.phase.acquire_at(at.min(feed.check_at) + ACQUIRE_INTERVAL.mul_f64(0.3 * random)),
            None => self.acquire(now, key),
        }
        self.mark_stale(now, key, is_silent);
    }

    /// Shows that a feed is stale, because its holder is silent. If the holder reports again, the log has the feed's state.
    fn mark_stale(&mut self, now: Instant, key: &Key, is_silent: bool) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if is_silent && feed.log.state.0 == FeedState::Live {
            feed.log.state = (FeedState::Stale, HOLDER_SILENT.into());
            self.show_state(key);
        } else if !is_silent && &*feed.log.state.1 == HOLDER_SILENT {
            self.load(now, key);
        }
    }

    /// Takes the holder's next steps, until it stores an entry or has none.
    fn store(&mut self, now: Instant, key: &Key) {
        loop {
            let epoch = Epoch(self.random.u64(1..1 << 53));
            let Some(feed) = self.feeds.get_mut(key) else { return };
            let Some(holding) = feed.phase.holding().filter(|holding| holding.is_ready(now)) else { return };
            let lease = holding.lease;
            match feed.next_step(epoch) {
                Step::Idle => return self.release_after_push(now, key),
                Step::Store(entries) => {
                    let Entries { position, entry, base } = *entries;
                    let channel = Channel::from(key.clone());
                    let encode = |entry| self.frames.encode(&channel, &Frame::Feed(entry));
                    let version = Version { position, change: encode(entry), base: base.map(encode) };
                    let store = Request::StoreVersion { key: key.clone(), lease, version };
                    self.request(now, key, Purpose::Store(lease.term), store);
                    return;
                }
                Step::Publish(entry) => self.publish(Channel::from(key.clone()), &Frame::Feed(entry)),
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
        let feed = Feed::new(now, self.requests.draw(), (self.source_of)(key), is_wanted);
        self.feeds.insert(key.clone(), Box::new(feed));
    }

    /// Reads the log, now or after the current work.
    fn load(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if feed.phase.begin_read() {
            feed.begin_confirm();
            self.request(now, key, Purpose::Load, Request::LoadFeed { key: key.clone() });
        }
    }

    /// Makes a request about a feed.
    fn request(&mut self, now: Instant, key: &Key, purpose: Purpose, request: Request) -> Ticket {
        let incarnation = self.feeds.get(key).map_or(0, |feed| feed.incarnation);
        self.requests.push(Asked { key: key.clone(), incarnation, purpose, at: now }, request)
    }

    fn publish(&mut self, channel: Channel, frame: &Frame) {
        let payload = self.frames.encode(&channel, frame);
        self.outputs.push_back(Output::Publish(channel, payload));
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
