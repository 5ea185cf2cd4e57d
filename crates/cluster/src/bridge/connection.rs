//! A bridge's connections to Redis: one that receives, one that publishes, each replaced on its own.
//!
//! After each connect, all channels are subscribed. A probe over the receiving connection proves that messages arrive.

use super::inbox::{Arrived, Kind};
use super::{Adapter, Bridge};
use crate::engine::redis::link::{Backoff, Link};
use crate::engine::redis::publisher;
use crate::engine::{PROBE_INTERVAL, SILENCE_MAX};
use crate::metrics::count;
use bytes::Bytes;
use redis::aio::{AsyncPushSender, SendError};
use redis::{Pipeline, PushInfo, PushKind, Value};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// Takes what arrives on one connection.
pub(super) struct Pushes {
    bridge: Arc<Bridge>,
    /// What a former connection still delivers is dropped.
    is_replaced: AtomicBool,
    probed_at: Mutex<Instant>,
}

impl Pushes {
    pub(super) fn new(bridge: Arc<Bridge>) -> Arc<Self> {
        Arc::new(Self { bridge, is_replaced: AtomicBool::new(false), probed_at: Mutex::new(Instant::now()) })
    }

    fn silence(&self) -> std::time::Duration {
        self.probed_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn receive(&self, pattern: Option<&[u8]>, channel: &[u8], payload: Vec<u8>) {
        if channel == self.bridge.probe.as_bytes() {
            *self.probed_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
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
            _ => return Ok(()),
        };
        if let (Some(Some(channel)), Some(Some(payload))) = (parts.next(), parts.next()) {
            self.receive(pattern.as_deref(), &channel, payload);
        }
        Ok(())
    }
}

impl Bridge {
    /// What a message is. `None`: it concerns nobody here, or is this node's own.
    ///
    /// Whether a room has members is asked later: a request before the message may have sessions join it.
    fn kind_of(&self, pattern: Option<&[u8]>, channel: &[u8], payload: &[u8]) -> Option<(usize, Kind)> {
        let mut namespaces = self.namespaces.iter().enumerate();
        let found = namespaces.find_map(|(index, namespace)| {
            Some((index, namespace.protocol.kind_of(pattern, channel, payload)?))
        });
        // It is for others, if this node has asked nothing.
        found.filter(|(_, kind)| *kind != Kind::Response || self.pending.is_waiting())
    }

    /// A first connection that receives.
    pub(super) async fn open(self: &Arc<Self>) -> Result<(Link, Arc<Pushes>), String> {
        let pushes = Pushes::new(self.clone());
        let link = Link::connect(&self.server, Some(pushes.clone())).await?;
        Ok((link, pushes))
    }

    /// Receives, for as long as the node runs.
    pub(super) async fn subscribe(self: Arc<Self>, mut first: Option<(Link, Arc<Pushes>)>) {
        let mut backoff = Backoff::default();
        let mut is_reported = false;
        loop {
            let opened = match first.take() {
                Some(opened) => Ok(opened),
                None => self.open().await,
            };
            let reason = match opened {
                Ok((mut link, pushes)) => {
                    let reason = self.receive(&mut link, &pushes, &mut is_reported, &mut backoff).await;
                    pushes.is_replaced.store(true, Ordering::Relaxed);
                    reason
                }
                Err(reason) => reason,
            };
            *self.link.lock().unwrap_or_else(PoisonError::into_inner) = None;
            if self.counters.is_connected.swap(0, Ordering::Relaxed) == 1 {
                count(&self.counters.connection_losses);
            }
            if !std::mem::replace(&mut is_reported, true) {
                tracing::warn!(
                    prefix = self.prefix,
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
        is_reported: &mut bool,
        backoff: &mut Backoff,
    ) -> String {
        let mut subscribed = HashSet::new();
        if let Err(reason) = self.subscribe_all(link, &mut subscribed).await {
            return reason;
        }
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.sender());
        self.counters.is_connected.store(1, Ordering::Relaxed);
        *backoff = Backoff::default();
        if std::mem::take(is_reported) {
            tracing::info!(prefix = self.prefix, "the connection to Redis is back");
        }
        let mut probe = tokio::time::interval(PROBE_INTERVAL);
        loop {
            tokio::select! {
                reason = link.closed() => return reason,
                () = self.interest_changed.notified() => {
                    let changed: Vec<_> =
                        self.namespaces.iter().flat_map(|namespace| namespace.changed_channels()).collect();
                    if let Err(reason) = subscribe_changed(link, changed, &mut subscribed).await {
                        return reason;
                    }
                }
                _ = probe.tick() => {
                    if pushes.silence() > SILENCE_MAX {
                        return format!("nothing arrived for {} s", SILENCE_MAX.as_secs());
                    }
                    let mut pipeline = Pipeline::new();
                    pipeline.cmd("PUBLISH").arg(&*self.probe).arg("");
                    let sent = async {
                        link.send(&pipeline).await?;
                        link.check().await
                    };
                    if let Err(reason) = sent.await {
                        return reason;
                    }
                }
            }
        }
    }

    /// Subscribes to all channels. `subscribed` are those of rooms.
    async fn subscribe_all(&self, link: &Link, subscribed: &mut HashSet<Arc<str>>) -> Result<(), String> {
        link.subscribe(std::slice::from_ref(&self.probe), true).await?;
        let own: HashSet<_> =
            self.namespaces.iter().flat_map(|namespace| namespace.protocol.channels()).collect();
        let own: Vec<_> = own.into_iter().collect();
        match self.adapter {
            Adapter::Sharded => {
                subscribe_sharded(link, &own, true).await?;
                let rooms = self.namespaces.iter().flat_map(|namespace| namespace.room_channels());
                subscribe_changed(link, rooms.map(|channel| (channel, true)).collect(), subscribed).await
            }
            Adapter::Classic | Adapter::Python => {
                link.subscribe(&own, true).await?;
                let patterns = self.namespaces.iter().filter_map(|namespace| namespace.protocol.pattern());
                let patterns: Vec<String> = patterns.map(Into::into).collect();
                if patterns.is_empty() { Ok(()) } else { link.subscribe_patterns(&patterns).await }
            }
        }
    }

    /// Publishes, for as long as the node runs.
    pub(super) async fn publish_all(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            match Link::connect(&self.server, None).await {
                Ok(mut link) => {
                    backoff = Backoff::default();
                    self.publishes.store(true, Ordering::Relaxed);
                    let reason = publisher::serve(&self.outgoing, &mut link).await;
                    self.publishes.store(false, Ordering::Relaxed);
                    tracing::debug!(
                        prefix = self.prefix,
                        reason,
                        "the publishing connection to Redis is lost"
                    );
                }
                // The other connection reports it.
                Err(reason) => tracing::debug!(prefix = self.prefix, reason, "no connection to Redis"),
            }
            backoff.wait().await;
        }
    }

    /// Publishes a payload, as soon as there is a connection. Returns whether there is room.
    pub(super) fn send(&self, channel: String, payload: Bytes) -> bool {
        self.outgoing.push(&self.limits, channel, payload).is_ok()
    }
}

/// Channels of one batch.
const BATCH_MAX: usize = 500;

/// Subscribes to channels of rooms, or not any more.
async fn subscribe_changed(
    link: &Link,
    changed: Vec<(Arc<str>, bool)>,
    subscribed: &mut HashSet<Arc<str>>,
) -> Result<(), String> {
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for (channel, is_wanted) in changed {
        if is_wanted && subscribed.insert(channel.clone()) {
            added.push(channel);
        } else if !is_wanted && subscribed.remove(&channel) {
            removed.push(channel);
        }
    }
    subscribe_sharded(link, &added, true).await?;
    subscribe_sharded(link, &removed, false).await
}

async fn subscribe_sharded(link: &Link, channels: &[Arc<str>], is_wanted: bool) -> Result<(), String> {
    for batch in channels.chunks(BATCH_MAX) {
        let mut pipeline = Pipeline::new();
        for channel in batch {
            pipeline.cmd(if is_wanted { "SSUBSCRIBE" } else { "SUNSUBSCRIBE" }).arg(&**channel);
        }
        let replies = link.send(&pipeline).await?;
        if let Some(Value::ServerError(error)) =
            replies.into_iter().find(|reply| matches!(reply, Value::ServerError(_)))
        {
            return Err(format!("sharded channels, which need Redis 7: {error}"));
        }
    }
    Ok(())
}
