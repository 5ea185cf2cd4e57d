//! The connection that receives messages. After each connect, it subscribes to all channels of the node's interest.

use super::link::Link;
use super::values::explain;
use super::{Role, Shared};
use crate::engine::common::{Backoff, Change};
use crate::engine::{Event, PROBE_INTERVAL};
use bytes::Bytes;
use redis::aio::{AsyncPushSender, SendError};
use redis::{Pipeline, PushInfo, PushKind, Value};
use std::sync::Arc;
use stentor_hub::{Epoch, Position};
use tokio::time::Instant;

/// Maximum number of channels in one command. The server answers for each channel before it does anything else.
const BATCH_MAX: usize = 1_000;

/// Receives messages of one connection.
pub(super) struct Inbox {
    shared: Arc<Shared>,
    connection: u64,
}

impl Inbox {
    pub(super) fn begin(shared: Arc<Shared>) -> Arc<Self> {
        let connection = shared.interest.begin();
        shared.probe.reset();
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
        if !self.shared.interest.is_current(self.connection) {
            return Err(SendError);
        }
        if name == self.shared.probe.channel.as_bytes() {
            self.shared.probe.handle_arrival();
            return Ok(());
        }
        let name = str::from_utf8(&name).ok().and_then(|name| self.shared.names.parse(name));
        let Some(channel) = name.and_then(|name| self.shared.interest.channel(name)) else { return Ok(()) };
        // A message that no node sent becomes an empty one, which the node counts among refused frames.
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

/// Receives for as long as the engine runs. `first` is an open connection, if there is one.
pub(super) async fn run(shared: Arc<Shared>, mut first: Option<Link>) {
    let mut backoff = Backoff::default();
    loop {
        let mut link = match first.take() {
            Some(link) => link,
            None => shared.connect(Role::Subscribe, None, Some(&shared)).await,
        };
        let (opened_at, mut is_connected) = (Instant::now(), false);
        let reason = serve(&shared, &mut link, &mut is_connected).await;
        // Drops late messages of the connection.
        shared.interest.begin();
        drop(link);
        if is_connected {
            shared.events.send(Event::Disconnected { reason: (&*reason).into() });
        }
        shared.outages.begin((Role::Subscribe, None), &reason);
        backoff.wait_after(opened_at.elapsed()).await;
    }
}

/// Subscribes to the node's probe channel, and sends the first probe: a user may lack the permission for either.
pub(super) async fn begin(link: &Link, shared: &Shared) -> Result<(), String> {
    link.subscribe(std::slice::from_ref(&shared.probe.channel), true).await?;
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
        loop {
            let (mut names, mut ids, mut begins) = (Vec::new(), Vec::new(), None);
            shared.interest.take(|Change { channel, id, is_wanted }| {
                let fits = names.len() < BATCH_MAX && *begins.get_or_insert(is_wanted) == is_wanted;
                if fits {
                    names.push(shared.names.channel(channel).into());
                    ids.push(id);
                }
                fits
            });
            let Some(begins) = begins else { break };
            if let Err(reason) = link.subscribe(&names, begins).await {
                return reason;
            }
            if begins {
                shared.interest.confirm(&ids);
            }
        }
        if !*is_connected {
            *is_connected = true;
            shared.events.send(Event::Connected);
        }
        tokio::select! {
            () = shared.interest.changed() => {}
            reason = link.closed() => return reason,
            _ = probe.tick() => {
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

/// Sends this node a message over the connection that delivers it, and checks that the server is still a primary.
async fn send_probe(link: &Link, shared: &Shared) -> Result<(), String> {
    shared.probe.begin()?;
    let mut pipeline = Pipeline::new();
    pipeline.cmd("PUBLISH").arg(&*shared.probe.channel).arg("");
    if let Some(Value::ServerError(error)) = link.send(&pipeline).await?.pop() {
        return Err(explain(error));
    }
    link.check().await
}
