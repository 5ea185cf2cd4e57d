//! A bridge's connections to Redis: one that receives, one that publishes, each replaced on its own. For sharded channels on a
//! Redis Cluster, [`super::shards`] has one for both per primary.
//!
//! After each connect, all channels are subscribed. A probe over the receiving connection proves that messages arrive.

use super::inbox::{Arrived, Kind};
use super::shards::{Changes, Shard};
use super::{Adapter, Bridge};
use crate::engine::PROBE_INTERVAL;
use crate::engine::common::{Backoff, Probe};
use crate::engine::redis::link::Link;
use crate::metrics::count;
use redis::aio::{AsyncPushSender, SendError};
use redis::{Pipeline, PushInfo, PushKind, Value};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Receives the messages of one connection.
pub(super) struct Pushes {
    bridge: Arc<Bridge>,
    shard: Arc<Shard>,
    /// Late messages of a former connection are dropped.
    is_replaced: AtomicBool,
    probe: Probe,
}

impl Pushes {
    pub(super) fn new(bridge: Arc<Bridge>, shard: Arc<Shard>) -> Arc<Self> {
        let (is_replaced, probe) = (AtomicBool::new(false), Probe::new(bridge.probe.clone()));
        Arc::new(Self { bridge, shard, is_replaced, probe })
    }

    fn receive(&self, pattern: Option<&[u8]>, channel: &[u8], payload: Vec<u8>) {
        if channel == self.bridge.probe.as_bytes() {
            self.probe.handle_arrival();
            return;
        }
        let Some((namespace, kind)) = self.bridge.kind_of(pattern, channel, &payload) else { return };
        self.bridge.inbox.push(Arrived { namespace, kind, payload: payload.into() });
    }
}

impl AsyncPushSender for Pushes {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        if self.is_replaced.load(Ordering::Relaxed) {
            return Err(SendError);
        }
        let bytes = |value| if let Value::BulkString(bytes) = value { Some(bytes) } else { None };
        let mut parts = push.data.into_iter().map(bytes);
        let pattern = match push.kind {
            PushKind::Message | PushKind::SMessage => None,
            PushKind::PMessage => parts.next().flatten(),
            PushKind::SUnsubscribe => {
                let channel = parts.next().flatten().and_then(|channel| String::from_utf8(channel).ok());
                if channel.is_some_and(|channel| self.shard.lost(&channel)) {
                    self.bridge.shards.moved.notify_one();
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        if let (Some(Some(channel)), Some(Some(payload))) = (parts.next(), parts.next()) {
            self.receive(pattern.as_deref(), &channel, payload);
        }
        Ok(())
    }
}

impl Bridge {
    /// Returns the kind of a message. `None` if no session of this node needs it, or this node sent it.
    ///
    /// The members of its room are checked later, because an earlier request may make sessions join it.
    fn kind_of(&self, pattern: Option<&[u8]>, channel: &[u8], payload: &[u8]) -> Option<(usize, Kind)> {
        let mut namespaces = self.namespaces.iter().enumerate();
        let found = namespaces.find_map(|(index, namespace)| {
            Some((index, namespace.protocol.kind_of(pattern, channel, payload)?))
        });
        // A response is for another server if this node has asked no question.
        found.filter(|(_, kind)| *kind != Kind::Response || self.pending.is_waiting())
    }

    /// Opens a connection that receives.
    pub(super) async fn open(self: &Arc<Self>, shard: &Arc<Shard>) -> Result<(Link, Arc<Pushes>), String> {
        let pushes = Pushes::new(self.clone(), shard.clone());
        let link = match &shard.endpoint {
            Some(endpoint) => Link::to(&self.server, endpoint.clone(), Some(pushes.clone())).await?,
            None => Link::connect(&self.server, Some(pushes.clone())).await?,
        };
        Ok((link, pushes))
    }

    /// Receives, for as long as the node runs, or the shard has slots.
    pub(super) async fn subscribe(
        self: Arc<Self>,
        shard: Arc<Shard>,
        mut first: Option<(Link, Arc<Pushes>)>,
    ) {
        let mut backoff = Backoff::default();
        let mut is_reported = false;
        loop {
            let opened = match first.take() {
                Some(opened) => Ok(opened),
                None => self.open(&shard).await,
            };
            let reason = match opened {
                Ok((mut link, pushes)) => {
                    let reason =
                        self.receive(&mut link, &pushes, &shard, &mut is_reported, &mut backoff).await;
                    pushes.is_replaced.store(true, Ordering::Relaxed);
                    reason
                }
                Err(reason) => reason,
            };
            if shard.sender().is_some() {
                count(&self.counters.connection_losses);
            }
            shard.reset(false);
            self.shards.moved.notify_one();
            if !std::mem::replace(&mut is_reported, true) {
                tracing::warn!(
                    prefix = self.options.prefix,
                    reason,
                    "the connection to Redis is lost; clients of Socket.IO's servers and of this node don't receive each other's \
                     messages until it is back"
                );
            }
            backoff.wait().await;
        }
    }

    async fn receive(
        &self,
        link: &mut Link,
        pushes: &Pushes,
        shard: &Arc<Shard>,
        is_reported: &mut bool,
        backoff: &mut Backoff,
    ) -> String {
        shard.reset(true);
        if let Err(reason) = self.subscribe_all(link, shard).await {
            return reason;
        }
        shard.connected(link.sender());
        *backoff = Backoff::default();
        if std::mem::take(is_reported) {
            tracing::info!(prefix = self.options.prefix, "the connection to Redis is back");
        }
        let mut probe = tokio::time::interval(PROBE_INTERVAL);
        let mut cluster_seen = None;
        loop {
            tokio::select! {
                reason = link.closed() => return reason,
                () = shard.changed.notified() => {
                    if let Err(reason) = self.subscribe_changed(link, shard).await {
                        return reason;
                    }
                }
                _ = probe.tick() => {
                    let sent = async {
                        // A message to an unsharded channel would go to all nodes of a cluster.
                        if shard.endpoint.is_none() {
                            pushes.probe.begin()?;
                            let mut pipeline = Pipeline::new();
                            pipeline.cmd("PUBLISH").arg(&*self.probe).arg("");
                            link.send(&pipeline).await?;
                        } else {
                            // For unsharded channels, the publisher watches the cluster.
                            link.watch_cluster(&mut cluster_seen).await?;
                        }
                        link.check().await
                    };
                    if let Err(reason) = sent.await {
                        return reason;
                    }
                }
            }
        }
    }

    /// Subscribes to all channels.
    async fn subscribe_all(&self, link: &Link, shard: &Arc<Shard>) -> Result<(), String> {
        if shard.endpoint.is_none() {
            link.subscribe(std::slice::from_ref(&self.probe), true).await?;
        }
        if self.options.adapter != Adapter::Sharded {
            let own: HashSet<_> =
                self.namespaces.iter().flat_map(|namespace| namespace.protocol.channels()).collect();
            link.subscribe(&own.into_iter().collect::<Vec<_>>(), true).await?;
            let patterns = self.namespaces.iter().filter_map(|namespace| namespace.protocol.pattern());
            let patterns: Vec<String> = patterns.map(Into::into).collect();
            if !patterns.is_empty() {
                link.subscribe_patterns(&patterns).await?;
            }
        }
        self.subscribe_changed(link, shard).await
    }

    /// Subscribes to, or unsubscribes from, the changed sharded channels of a shard.
    async fn subscribe_changed(&self, link: &Link, shard: &Arc<Shard>) -> Result<(), String> {
        if self.options.adapter != Adapter::Sharded {
            shard.take_changes();
            shard.set_complete();
            return Ok(());
        }
        let changes = match shard.take_changes() {
            Changes::Some(changes) => changes,
            Changes::All => {
                let channels = self.namespaces.iter().flat_map(|namespace| {
                    [namespace.protocol.channels(), namespace.room_channels()].concat()
                });
                shard.changes_to(channels.filter(|channel| self.shards.has(shard, channel)))
            }
        };
        let (added, removed) = shard.apply(changes);
        for batch in added.chunks(BATCH_MAX) {
            let replies = link.subscribe_sharded(batch, true).await?;
            for (channel, reply) in batch.iter().zip(replies) {
                let Value::ServerError(error) = reply else { continue };
                if shard.endpoint.is_none() || !matches!(error.code(), "MOVED" | "CLUSTERDOWN") {
                    return Err(format!("sharded channels, which need Redis 7: {error}"));
                }
                shard.lost(channel);
                self.shards.moved.notify_one();
            }
        }
        for batch in removed.chunks(BATCH_MAX) {
            link.subscribe_sharded(batch, false).await?;
        }
        shard.set_complete();
        Ok(())
    }

    /// Publishes, for as long as the node runs.
    pub(super) async fn publish_all(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            match Link::connect(&self.server, None).await {
                Ok(mut link) => {
                    backoff = Backoff::default();
                    let reason = self.publisher.serve(&mut link).await;
                    tracing::debug!(
                        prefix = self.options.prefix,
                        reason,
                        "the publishing connection to Redis is lost"
                    );
                }
                // The receiving connection reports the same failure to the operator.
                Err(reason) => {
                    tracing::debug!(prefix = self.options.prefix, reason, "no connection to Redis")
                }
            }
            backoff.wait().await;
        }
    }
}

/// Maximum number of channels per batch.
const BATCH_MAX: usize = 500;
