//! Receives messages: keeps the set of channels, and subscribes to all of it after each connect.

use super::connection::explain;
use super::link::Link;
use super::{Role, Shared};
use crate::engine::{Channel, Event, PROBE_INTERVAL, SILENCE_MAX};
use bytes::Bytes;
use redis::aio::{AsyncPushSender, SendError};
use redis::{Pipeline, PushInfo, PushKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_hub::{Epoch, Position};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Channels of one command. The server answers each before it does anything else.
const BATCH_MAX: usize = 1_000;

struct Entry {
    channel: Channel,
    is_wanted: bool,
    /// As the server has confirmed on the connection that there is.
    is_subscribed: bool,
    /// Whether it is in [`Channels::changed`].
    is_changed: bool,
}

#[derive(Default)]
struct Channels {
    entries: HashMap<Arc<str>, Entry>,
    /// Where the two may differ.
    changed: Vec<Arc<str>>,
    probed_at: Option<Instant>,
    /// Counts connections, so that what a former one still delivers is dropped.
    connection: u64,
}

/// What the node wants to receive, and what it does.
pub(super) struct Interest {
    channels: Mutex<Channels>,
    changed: Notify,
    /// Changes whenever the server has confirmed something.
    confirmed: watch::Sender<()>,
}

impl Default for Interest {
    fn default() -> Self {
        Self { channels: Mutex::default(), changed: Notify::new(), confirmed: watch::Sender::new(()) }
    }
}

impl Interest {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, name: String, channel: Channel, is_wanted: bool) {
        let Channels { entries, changed, .. } = &mut *self.channels();
        if let Some(entry) = entries.get_mut(&*name) {
            entry.is_wanted = is_wanted;
            if !entry.is_changed {
                entry.is_changed = true;
                changed.push(name.into());
            }
        } else if is_wanted {
            let name: Arc<str> = name.into();
            entries
                .insert(name.clone(), Entry { channel, is_wanted, is_subscribed: false, is_changed: true });
            changed.push(name);
        } else {
            return;
        }
        self.changed.notify_one();
    }

    /// Waits until the server has confirmed the interest in a channel, if there is any.
    pub(super) async fn established(&self, name: &str) {
        let mut confirmed = self.confirmed.subscribe();
        while self.channels().entries.get(name).is_some_and(|entry| entry.is_wanted && !entry.is_subscribed) {
            // The sender lives as long as `self`.
            let _ = confirmed.changed().await;
        }
    }

    /// A connection is opened: nothing is subscribed to on it.
    fn begin(&self) -> u64 {
        let channels = &mut *self.channels();
        channels.entries.retain(|_, entry| {
            entry.is_subscribed = false;
            entry.is_changed = entry.is_wanted;
            entry.is_wanted
        });
        channels.changed = channels.entries.keys().cloned().collect();
        channels.probed_at = None;
        channels.connection += 1;
        channels.connection
    }

    /// Channels to subscribe to (`true`) or to unsubscribe from, some of them.
    fn take(&self) -> Option<(bool, Vec<Arc<str>>)> {
        let Channels { entries, changed, .. } = &mut *self.channels();
        let mut batch = (true, Vec::new());
        while let Some(name) = changed.last() {
            let Some(entry) = entries.get_mut(name) else {
                changed.pop();
                continue;
            };
            let is_needed = entry.is_wanted != entry.is_subscribed;
            if is_needed && !batch.1.is_empty() && (batch.0 != entry.is_wanted || batch.1.len() == BATCH_MAX)
            {
                break;
            }
            entry.is_changed = false;
            let (is_wanted, is_gone) = (entry.is_wanted, !entry.is_wanted && !entry.is_subscribed);
            let Some(name) = changed.pop() else { break };
            if is_gone {
                entries.remove(&name);
            } else if is_needed {
                batch.0 = is_wanted;
                batch.1.push(name);
            }
        }
        (!batch.1.is_empty()).then_some(batch)
    }

    fn confirm(&self, names: &[Arc<str>], is_subscribed: bool) {
        let Channels { entries, changed, .. } = &mut *self.channels();
        for name in names {
            let Some(entry) = entries.get_mut(name) else { continue };
            entry.is_subscribed = is_subscribed;
            if !entry.is_changed && !entry.is_wanted && !is_subscribed {
                entries.remove(name);
            } else if !entry.is_changed && entry.is_wanted != is_subscribed {
                entry.is_changed = true;
                changed.push(name.clone());
            }
        }
        self.confirmed.send_replace(());
    }
}

/// Takes what arrives on one connection.
pub(super) struct Inbox {
    shared: Arc<Shared>,
    connection: u64,
}

impl Inbox {
    pub(super) fn begin(shared: Arc<Shared>) -> Arc<Self> {
        let connection = shared.interest.begin();
        Arc::new(Self { shared, connection })
    }
}

impl AsyncPushSender for Inbox {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        if push.kind != PushKind::Message {
            return Ok(());
        }
        let Ok([Value::BulkString(name), Value::BulkString(content)]) = <[Value; 2]>::try_from(push.data)
        else {
            return Ok(());
        };
        let mut channels = self.shared.interest.channels();
        if channels.connection != self.connection {
            return Err(SendError);
        }
        if name == self.shared.probe.as_bytes() {
            channels.probed_at = Some(Instant::now());
            return Ok(());
        }
        let entry = str::from_utf8(&name).ok().and_then(|name| channels.entries.get(name));
        let Some(channel) = entry.filter(|entry| entry.is_wanted).map(|entry| entry.channel.clone()) else {
            return Ok(());
        };
        drop(channels);
        match parse(content.into()) {
            Some((position, payload)) => {
                self.shared.events.send(Event::Message { channel, position, payload });
            }
            None => tracing::debug!(?channel, "a message that no node sent"),
        }
        Ok(())
    }
}

/// Parses `:PAYLOAD` or `EPOCH:OFFSET:PAYLOAD`.
pub(super) fn parse(content: Bytes) -> Option<(Option<Position>, Bytes)> {
    if content.first() == Some(&b':') {
        return Some((None, content.slice(1..)));
    }
    let (epoch, content) = number(&content)?;
    let (offset, payload) = number(&content)?;
    Some((Some(Position { epoch: Epoch(epoch), offset }), payload))
}

/// Parses `NUMBER:REST`.
pub(super) fn number(content: &Bytes) -> Option<(u64, Bytes)> {
    let end = content.iter().take(21).position(|byte| *byte == b':')?;
    let number = str::from_utf8(&content[..end]).ok()?.parse().ok()?;
    Some((number, content.slice(end + 1..)))
}

/// Runs for as long as the engine. `first` is a connection that there is already.
pub(super) async fn run(shared: Arc<Shared>, mut first: Option<Link>) {
    loop {
        let mut link = match first.take() {
            Some(link) => link,
            None => shared.connect(Role::Subscribe, None, Some(&shared)).await,
        };
        let mut is_connected = false;
        let reason = serve(&shared, &mut link, &mut is_connected).await;
        // Nothing that it still delivers may follow.
        shared.interest.begin();
        drop(link);
        if is_connected {
            shared.events.send(Event::Disconnected { reason: (&*reason).into() });
        }
        shared.lost(Role::Subscribe, None, &reason);
    }
}

/// Subscribes to the node's own messages, and sends the first one: both may be forbidden.
pub(super) async fn begin(link: &Link, probe: &Arc<str>) -> Result<(), String> {
    link.subscribe(std::slice::from_ref(probe), true).await?;
    send_probe(link, probe).await
}

async fn serve(shared: &Arc<Shared>, link: &mut Link, is_connected: &mut bool) -> String {
    if let Err(reason) = begin(link, &shared.probe).await {
        return reason;
    }
    let opened_at = Instant::now();
    let links = match link.incoming_links().await {
        Ok(links) => links,
        Err(reason) => return reason,
    };
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    loop {
        while let Some((is_wanted, names)) = shared.interest.take() {
            if let Err(reason) = link.subscribe(&names, is_wanted).await {
                return reason;
            }
            shared.interest.confirm(&names, is_wanted);
        }
        if !*is_connected {
            *is_connected = true;
            shared.events.send(Event::Connected);
        }
        tokio::select! {
            () = shared.interest.changed.notified() => {}
            reason = link.closed() => return reason,
            _ = probe.tick() => {
                let probed_at = shared.interest.channels().probed_at.unwrap_or(opened_at);
                if probed_at.elapsed() > SILENCE_MAX {
                    return format!("nothing arrived for {} s", SILENCE_MAX.as_secs());
                }
                if let Err(reason) = send_probe(link, &shared.probe).await {
                    return reason;
                }
                match link.incoming_links().await {
                    Ok(now) if now == links => {}
                    Ok(_) => return "the links between the nodes of the Redis Cluster have changed".into(),
                    Err(reason) => return reason,
                }
            }
        }
    }
}

/// A message to this node over the connection that is to deliver it, and whether the server is still a primary.
async fn send_probe(link: &Link, channel: &str) -> Result<(), String> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("PUBLISH").arg(channel).arg("");
    if let Some(Value::ServerError(error)) = link.send(&pipeline).await?.pop() {
        return Err(explain(error.into()));
    }
    link.check().await
}
