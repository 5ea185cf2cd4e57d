//! Receives messages: keeps the set of channels, and subscribes to all of it after each connect.

use super::connection::explain;
use super::link::Link;
use super::names::ChannelName;
use super::{Role, Shared};
use crate::engine::{Channel, Event, PROBE_INTERVAL, SILENCE_MAX};
use bytes::Bytes;
use redis::aio::{AsyncPushSender, SendError};
use redis::{Pipeline, PushInfo, PushKind, Value};
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_hub::{Epoch, Position, ShrinkingMap};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Channels of one command. The server answers each before it does anything else.
const BATCH_MAX: usize = 1_000;

/// A channel, which is found by its name in a message as well: no name is kept beside it.
#[derive(Clone, PartialEq, Eq)]
struct Known(Channel);

impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ChannelName::from(&self.0).hash(state);
    }
}

/// What has the name of a channel.
trait Named {
    fn name(&self) -> ChannelName<'_>;
}

impl Named for Known {
    fn name(&self) -> ChannelName<'_> {
        (&self.0).into()
    }
}

impl Named for ChannelName<'_> {
    fn name(&self) -> ChannelName<'_> {
        *self
    }
}

impl<'a> Borrow<dyn Named + 'a> for Known {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl Hash for dyn Named + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Named + '_ {}

#[derive(Clone, Copy)]
struct Level {
    is_wanted: bool,
    /// As the server has confirmed on the connection that there is.
    is_subscribed: bool,
    /// Whether it is in [`Channels::changed`].
    is_changed: bool,
}

#[derive(Default)]
struct Channels {
    levels: ShrinkingMap<Known, Level>,
    /// Where the two may differ.
    changed: Vec<Known>,
    /// Since when a message to the node itself is awaited.
    unanswered_since: Option<Instant>,
    /// Counts connections, so that what a former one still delivers is dropped.
    connection: u64,
}

impl Channels {
    fn level(&self, name: ChannelName<'_>) -> Option<(&Known, &Level)> {
        self.levels.get_key_value(&name as &dyn Named)
    }
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

    pub(super) fn set(&self, channel: Channel, is_wanted: bool) {
        let Channels { levels, changed, .. } = &mut *self.channels();
        let channel = Known(channel);
        if let Some(level) = levels.get_mut(&channel) {
            level.is_wanted = is_wanted;
            if !level.is_changed {
                level.is_changed = true;
                changed.push(channel);
            }
        } else if is_wanted {
            levels.insert(channel.clone(), Level { is_wanted, is_subscribed: false, is_changed: true });
            changed.push(channel);
        } else {
            return;
        }
        self.changed.notify_one();
    }

    /// Waits until the server has confirmed the interest in a channel, if there is any.
    pub(super) async fn established(&self, channel: &Channel) {
        let mut confirmed = self.confirmed.subscribe();
        let is_missing = |(_, level): (&Known, &Level)| level.is_wanted && !level.is_subscribed;
        while self.channels().level(channel.into()).is_some_and(is_missing) {
            // The sender lives as long as `self`.
            let _ = confirmed.changed().await;
        }
    }

    /// A connection is opened: nothing is subscribed to on it.
    fn begin(&self) -> u64 {
        let channels = &mut *self.channels();
        channels.levels.retain(|_, level| {
            level.is_subscribed = false;
            level.is_changed = level.is_wanted;
            level.is_wanted
        });
        channels.changed = channels.levels.keys().cloned().collect();
        channels.unanswered_since = None;
        channels.connection += 1;
        channels.connection
    }

    /// Channels to subscribe to (`true`) or to unsubscribe from, some of them.
    fn take(&self) -> Option<(bool, Vec<Known>)> {
        let Channels { levels, changed, .. } = &mut *self.channels();
        let mut batch = (true, Vec::new());
        while let Some(channel) = changed.last() {
            let Some(level) = levels.get_mut(channel) else {
                changed.pop();
                continue;
            };
            let is_needed = level.is_wanted != level.is_subscribed;
            if is_needed && !batch.1.is_empty() && (batch.0 != level.is_wanted || batch.1.len() == BATCH_MAX)
            {
                break;
            }
            level.is_changed = false;
            let (is_wanted, is_gone) = (level.is_wanted, !level.is_wanted && !level.is_subscribed);
            let Some(channel) = changed.pop() else { break };
            if is_gone {
                levels.remove(&channel);
            } else if is_needed {
                batch.0 = is_wanted;
                batch.1.push(channel);
            }
        }
        if changed.is_empty() {
            // It has had room for all channels, after a connect.
            *changed = Vec::new();
        }
        (!batch.1.is_empty()).then_some(batch)
    }

    fn confirm(&self, batch: Vec<Known>, is_subscribed: bool) {
        let Channels { levels, changed, .. } = &mut *self.channels();
        for channel in batch {
            let Some(level) = levels.get_mut(&channel) else { continue };
            level.is_subscribed = is_subscribed;
            if !level.is_changed && !level.is_wanted && !is_subscribed {
                levels.remove(&channel);
            } else if !level.is_changed && level.is_wanted != is_subscribed {
                level.is_changed = true;
                changed.push(channel);
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
            channels.unanswered_since = None;
            return Ok(());
        }
        let name = str::from_utf8(&name).ok().and_then(|name| self.shared.names.parse(name));
        let known = name.and_then(|name| channels.level(name)).filter(|(_, level)| level.is_wanted);
        let Some(channel) = known.map(|(known, _)| known.0.clone()) else { return Ok(()) };
        drop(channels);
        // Of what no node sent, an empty message is left: the node counts it among those that it refuses.
        let (position, payload) = parse(content.into()).unwrap_or_default();
        self.shared.events.send(Event::Message { channel, position, payload });
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
pub(super) async fn begin(link: &Link, shared: &Shared) -> Result<(), String> {
    link.subscribe(std::slice::from_ref(&shared.probe), true).await?;
    send_probe(link, shared).await
}

async fn serve(shared: &Arc<Shared>, link: &mut Link, is_connected: &mut bool) -> String {
    if let Err(reason) = begin(link, shared).await {
        return reason;
    }
    let links = match link.incoming_links().await {
        Ok(links) => links,
        Err(reason) => return reason,
    };
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    loop {
        while let Some((is_wanted, batch)) = shared.interest.take() {
            let names: Vec<_> = batch.iter().map(|known| shared.names.channel(&known.0).into()).collect();
            if let Err(reason) = link.subscribe(&names, is_wanted).await {
                return reason;
            }
            shared.interest.confirm(batch, is_wanted);
        }
        if !*is_connected {
            *is_connected = true;
            shared.events.send(Event::Connected);
        }
        tokio::select! {
            () = shared.interest.changed.notified() => {}
            reason = link.closed() => return reason,
            _ = probe.tick() => {
                // Not since the last one arrived: what is done in between may take longer.
                let unanswered_since = shared.interest.channels().unanswered_since;
                if unanswered_since.is_some_and(|since| since.elapsed() > SILENCE_MAX) {
                    return format!("nothing arrived for {} s", SILENCE_MAX.as_secs());
                }
                if let Err(reason) = send_probe(link, shared).await {
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
async fn send_probe(link: &Link, shared: &Shared) -> Result<(), String> {
    shared.interest.channels().unanswered_since.get_or_insert_with(Instant::now);
    let mut pipeline = Pipeline::new();
    pipeline.cmd("PUBLISH").arg(&*shared.probe).arg("");
    if let Some(Value::ServerError(error)) = link.send(&pipeline).await?.pop() {
        return Err(explain(error.into()));
    }
    link.check().await
}
