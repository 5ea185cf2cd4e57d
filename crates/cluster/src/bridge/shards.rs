//! Sharded channels on a Redis Cluster. Each channel belongs to the primary that has its slot, and is subscribed and published
//! there.
//!
//! Slots are read again every 10 to 28 s, when a primary reports that one has moved, and when a connection is lost; every 2 s while a slot
//! has no primary. A primary refuses subscriptions and messages for a slot that has moved, and ends its existing subscriptions. Messages of
//! several channels may overtake each other.

use super::Bridge;
use super::protocol::Published;
use crate::engine::common::Endpoint;
use crate::engine::redis::link::Sender;
use crate::engine::redis::publications::{Publications, take_batch};
use crate::engine::redis::slots::{self, Owners};
use parking_lot::{Mutex, MutexGuard};
use redis::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Delay before the primary of a moved slot is looked up again.
const MOVED_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of times that a message is published again until its primary is found.
const REDIRECTIONS_MAX: usize = 20;

/// A server to which a bridge is connected.
#[derive(Default)]
pub(super) struct Shard {
    /// The primary's address. `None` without a Redis Cluster.
    pub(super) endpoint: Option<Endpoint>,
    state: Mutex<State>,
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    /// The sender, from the subscription of its channels until the connection is lost.
    sender: Option<Sender>,
    /// The subscribed sharded channels.
    subscribed: HashSet<Arc<str>>,
    /// Pending changes: `true` to subscribe to a channel, `false` to unsubscribe. Empty without a connection.
    changes: HashMap<Arc<str>, bool>,
    takes_changes: bool,
    /// `true` if the set of its channels must be computed again.
    is_stale: bool,
    /// `true` if all of its channels are subscribed.
    is_complete: bool,
}

/// Changes since the last call.
pub(super) enum Changes {
    /// Any channel may have changed.
    All,
    /// Changes of channels: `true` to subscribe, `false` to unsubscribe.
    Some(HashMap<Arc<str>, bool>),
}

impl Shard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Resets the state because a connection has begun (`true`) or is lost. No channel is subscribed then.
    pub(super) fn reset(&self, has_begun: bool) {
        *self.state() = State { takes_changes: has_begun, is_stale: has_begun, ..State::default() };
    }

    pub(super) fn connected(&self, sender: Sender) {
        self.state().sender = Some(sender);
    }

    pub(super) fn sender(&self) -> Option<Sender> {
        self.state().sender.clone()
    }

    /// Records that the slots have changed.
    fn set_stale(&self) {
        let state = &mut *self.state();
        (state.is_stale, state.is_complete) = (true, false);
        self.changed.notify_one();
    }

    /// Records that all channels are subscribed, unless more have changed in the meantime.
    pub(super) fn set_complete(&self) {
        let state = &mut *self.state();
        state.is_complete = !state.is_stale;
    }

    pub(super) fn take_changes(&self) -> Changes {
        let state = &mut *self.state();
        let changes = std::mem::take(&mut state.changes);
        if std::mem::take(&mut state.is_stale) { Changes::All } else { Changes::Some(changes) }
    }

    /// Returns the changed channels to subscribe to, and those to unsubscribe from. They count as subscribed or unsubscribed from
    /// now on.
    pub(super) fn apply(&self, changes: HashMap<Arc<str>, bool>) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let State { subscribed, .. } = &mut *self.state();
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for (channel, is_wanted) in changes {
            if is_wanted && subscribed.insert(channel.clone()) {
                added.push(channel);
            } else if !is_wanted && subscribed.remove(&channel) {
                removed.push(channel);
            }
        }
        (added, removed)
    }

    /// Returns the changes after which the subscribed channels are exactly the `wanted` ones.
    pub(super) fn changes_to(&self, wanted: impl Iterator<Item = Arc<str>>) -> HashMap<Arc<str>, bool> {
        let subscribed = self.state().subscribed.clone();
        let mut changes: HashMap<_, _> = subscribed.into_iter().map(|channel| (channel, false)).collect();
        changes.extend(wanted.map(|channel| (channel, true)));
        changes
    }

    /// Records that a channel that should be subscribed isn't. Returns `true` if it counted as subscribed.
    pub(super) fn lost(&self, channel: &str) -> bool {
        let state = &mut *self.state();
        let was_subscribed = state.subscribed.remove(channel);
        if was_subscribed {
            // The state holds until the slots are known again.
            (state.is_stale, state.is_complete) = (true, false);
        }
        was_subscribed
    }
}

/// The servers of a bridge.
pub(super) struct Shards {
    owners: Mutex<Owners<Shard>>,
    /// Notified when slots have moved.
    pub(super) moved: Notify,
}

impl Shards {
    /// Makes the servers. `is_spread`: there are none before the slots of a cluster are known.
    pub(super) fn new(is_spread: bool) -> Self {
        let owners = if is_spread { Owners::default() } else { Owners::only(Shard::default()) };
        Self { owners: Mutex::new(owners), moved: Notify::new() }
    }

    fn owners(&self) -> MutexGuard<'_, Owners<Shard>> {
        self.owners.lock()
    }

    /// The server of a sharded channel, if a primary has its slot.
    pub(super) fn of(&self, channel: &str) -> Option<Arc<Shard>> {
        self.owners().of(channel).cloned()
    }

    pub(super) fn has(&self, shard: &Arc<Shard>, channel: &str) -> bool {
        self.owners().of(channel).is_some_and(|owner| Arc::ptr_eq(owner, shard))
    }

    /// All servers. A server with several ranges of slots appears several times.
    pub(super) fn all(&self) -> Vec<Arc<Shard>> {
        self.owners().iter().cloned().collect()
    }

    pub(super) fn are_up(&self) -> bool {
        let shards = self.all();
        !shards.is_empty() && shards.iter().all(|shard| shard.state().is_complete)
    }
}

impl Bridge {
    /// Passes changes of subscriptions to the shards, for as long as the node runs.
    pub(super) async fn pass_interest(self: Arc<Self>) {
        loop {
            self.interest_changed.notified().await;
            for (channel, is_wanted) in
                self.namespaces.iter().flat_map(|namespace| namespace.changed_channels())
            {
                let Some(shard) = self.shards.of(&channel) else { continue };
                let mut state = shard.state();
                // A shard that doesn't take changes yet subscribes to all of its channels when it is connected.
                if state.takes_changes {
                    state.changes.insert(channel, is_wanted);
                    shard.changed.notify_one();
                }
            }
        }
    }

    /// Connects to the primaries of a Redis Cluster and follows its slots, for as long as the node runs.
    pub(super) async fn follow_slots(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut handles: HashMap<Endpoint, AbortHandle> = HashMap::new();
        let (mut ranges, mut has_moved, mut is_reported) = (Vec::new(), false, false);
        loop {
            match self.server.ranges(Duration::ZERO).await {
                Ok(now) => {
                    is_reported = false;
                    if now != ranges || has_moved {
                        if !ranges.is_empty() && now != ranges {
                            tracing::info!(
                                prefix = self.options.prefix,
                                "slots of the Redis Cluster have moved"
                            );
                        }
                        ranges.clone_from(&now);
                        let begin = |endpoint: &Endpoint| Shard {
                            endpoint: Some(endpoint.clone()),
                            ..Shard::default()
                        };
                        let (begun, ended) = self.shards.owners().assign(now, begin);
                        for shard in begun {
                            let task = tasks.spawn(self.clone().subscribe(shard.clone(), None));
                            handles.extend(shard.endpoint.clone().map(|endpoint| (endpoint, task)));
                        }
                        for endpoint in ended {
                            handles.remove(&endpoint).inspect(AbortHandle::abort);
                        }
                        self.shards.all().iter().for_each(|shard| shard.set_stale());
                    }
                    has_moved = false;
                }
                Err(reason) if !std::mem::replace(&mut is_reported, true) => {
                    tracing::warn!(
                        prefix = self.options.prefix,
                        reason,
                        "the slots of the Redis Cluster aren't known"
                    );
                }
                Err(_) => {}
            }
            // Removes tasks that have ended.
            while tasks.try_join_next().is_some() {}
            let is_settled = !is_reported && slots::are_covered(&ranges) && self.shards.are_up();
            let interval = slots::interval(is_settled);
            has_moved |= timeout(interval, self.shards.moved.notified()).await.is_ok();
            sleep(MOVED_DELAY).await;
        }
    }

    /// Publishes to the primaries of a Redis Cluster, for as long as the node runs.
    pub(super) async fn publish_sharded(self: Arc<Self>) {
        self.publisher.set_connected(true);
        let mut is_reported = false;
        loop {
            let Some((mut batch, permit)) = take_batch(&self.publisher.messages.outgoing) else {
                self.publisher.messages.outgoing.added().await;
                continue;
            };
            let mut not_sent = 0;
            for attempt in 0..REDIRECTIONS_MAX {
                let (moved, failed) = self.publish_batch(batch).await;
                batch = moved;
                not_sent += failed.len();
                if let Some(reason) = failed.first()
                    && !std::mem::replace(&mut is_reported, true)
                {
                    tracing::warn!(
                        prefix = self.options.prefix,
                        reason,
                        "a primary of the Redis Cluster takes no messages"
                    );
                }
                if batch.is_empty() {
                    break;
                }
                self.shards.moved.notify_one();
                // A short delay suffices if the slots are already known.
                sleep(if attempt == 0 { MOVED_DELAY / 10 } else { MOVED_DELAY }).await;
            }
            not_sent += batch.len();
            if not_sent == 0 {
                is_reported = false;
            }
            self.counters.not_sent.fetch_add(not_sent as u64, Ordering::Relaxed);
            drop(permit);
        }
    }

    /// Publishes messages once. Returns the messages whose slot has moved, and the errors of others.
    async fn publish_batch(&self, batch: Vec<Published>) -> (Vec<Published>, Vec<String>) {
        let (mut moved, mut failed) = (Vec::new(), Vec::new());
        let mut parts: Vec<(Arc<Shard>, Vec<Published>)> = Vec::new();
        for (channel, payload) in batch {
            let Some(shard) = self.shards.of(&channel) else {
                failed.push("no primary of the Redis Cluster has the slot".into());
                continue;
            };
            match parts.iter_mut().find(|(of, _)| Arc::ptr_eq(of, &shard)) {
                Some((_, messages)) => messages.push((channel, payload)),
                None => parts.push((shard, vec![(channel, payload)])),
            }
        }
        let mut sent = JoinSet::new();
        for (shard, messages) in parts {
            let Some(sender) = shard.sender() else {
                failed.extend(messages.iter().map(|_| "it isn't connected".to_owned()));
                continue;
            };
            let mut publications = Publications::default();
            for (channel, payload) in &messages {
                self.publisher.messages.publish.add(&mut publications, channel, payload);
            }
            sent.spawn(async move { (sender.publish(publications).await, messages) });
        }
        while let Some(Ok((result, messages))) = sent.join_next().await {
            match result {
                Ok(replies) => {
                    for (reply, message) in replies.into_iter().zip(messages) {
                        match reply {
                            Value::ServerError(error) if error.code() == "MOVED" => moved.push(message),
                            Value::ServerError(error) => failed.push(error.to_string()),
                            _ => {}
                        }
                    }
                }
                // Some of these messages may have been published.
                Err(reason) => failed.extend(messages.iter().map(|_| reason.clone())),
            }
        }
        (moved, failed)
    }
}
