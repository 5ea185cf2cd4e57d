//! The connection to the server: it publishes, asks and receives. It is replaced when it is lost or silent.

use super::Shared;
use super::jetstream::{META, Session};
use super::link::{self, Info, Link, Stream};
use super::outgoing::Written;
use super::parts::{Assembled, PART_BYTES_MAX};
use super::protocol::{self, Incoming, Op};
use super::records::QUESTION;
use crate::engine::redis::Backoff;
use crate::engine::{Channel, Event, PROBE_INTERVAL, SILENCE_MAX};
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stentor_hub::{Epoch, Position, Topic};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

/// Bytes that are written at once, beyond the last command.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// The connection's own subscriptions.
const INBOX: u64 = 1;
const PROBE: u64 = 2;
const RECORDS: u64 = 3;
/// What a stored message may have besides a part.
const HEADERS_BYTES_MAX: usize = 4_096;

/// Runs for as long as the engine. `first`: where the result of the first attempt is awaited.
pub(super) async fn run(shared: Arc<Shared>, mut first: Option<oneshot::Sender<Result<(), String>>>) {
    let hosts = shared.servers.hosts.len();
    let mut attempt = fastrand::usize(..hosts);
    let mut failures = 0;
    let mut backoff = Backoff::default();
    loop {
        let reason = match Link::connect(&shared.servers, attempt).await {
            Ok(link) => serve(&shared, link, &mut first).await,
            Err(reason) => reason,
        };
        attempt = attempt.wrapping_add(1);
        failures += 1;
        shared.calls.begin();
        if shared.session.send_replace(None).is_some() {
            backoff = Backoff::default();
            shared.events.send(Event::Disconnected { reason: (&*reason).into() });
        }
        if failures >= hosts
            && let Some(first) = first.take()
        {
            // The caller may have stopped waiting.
            let _ = first.send(Err(reason));
            return;
        }
        if shared.is_lost.swap(true, Ordering::Relaxed) {
            tracing::debug!(reason, "no connection to NATS");
        } else {
            tracing::warn!(reason, "the connection to NATS is lost");
        }
        backoff.wait().await;
    }
}

/// Bytes read at once, unless a larger message is awaited.
const READ_BYTES: usize = 16 << 10;

/// Uses a connection until it is lost. Returns why.
async fn serve(
    shared: &Arc<Shared>,
    link: Link,
    first: &mut Option<oneshot::Sender<Result<(), String>>>,
) -> String {
    let Link { info, stream, received } = link;
    shared.interest.begin();
    shared.outgoing.begin();
    shared.state().assembly.clear();
    shared.state().probed_at = Instant::now();
    let connection = shared.calls.begin();
    let part_bytes_max = info.max_payload.saturating_sub(HEADERS_BYTES_MAX).clamp(1, PART_BYTES_MAX);
    let own = [
        (format!("{}.*", shared.inbox), INBOX),
        (shared.probe.clone(), PROBE),
        (shared.names.records(), RECORDS),
    ];
    for (subject, sid) in own {
        shared.calls.command(format!("SUB {subject} {sid}\r\n"));
    }
    let (read, write) = tokio::io::split(stream);
    tokio::select! {
        reason = receive(shared, read, received) => reason,
        reason = transmit(shared, write, part_bytes_max) => reason,
        reason = probe(shared) => reason,
        never = shared.remove_released_terms() => match never {},
        reason = establish(shared, connection, &info, part_bytes_max, first) => reason,
    }
}

/// Subscribes to everything and makes what the node needs. Returns when something is wrong with the connection.
async fn establish(
    shared: &Arc<Shared>,
    connection: u64,
    info: &Info,
    part_bytes_max: usize,
    first: &mut Option<oneshot::Sender<Result<(), String>>>,
) -> String {
    let is_cluster = !info.cluster.is_empty();
    let session = Arc::new(Session {
        connection,
        // In a cluster, what was acknowledged survives a server.
        generation: if is_cluster { String::new() } else { info.server_id.clone() },
        part_bytes_max,
        established_at: Instant::now(),
        broken: Notify::new(),
    });
    // Made before interest is established, which may take longer.
    match timeout(SILENCE_MAX, shared.make_streams(&session, is_cluster)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return format!("JetStream can't be used: {error}"),
        Err(_) => return "JetStream doesn't answer".into(),
    }
    shared.publish_record(QUESTION);
    let established = shared.calls.ping(connection);
    shared.wake.notify_one();
    if established.await.is_err() {
        return "the connection was lost".into();
    }
    shared.session.send_replace(Some(session.clone()));
    if shared.is_lost.swap(false, Ordering::Relaxed) {
        tracing::info!("the connection to NATS is back");
    }
    shared.events.send(Event::Connected);
    shared.wake.notify_one();
    if let Some(first) = first.take() {
        let _ = first.send(Ok(()));
    }
    session.broken.notified().await;
    "JetStream isn't available, or a stream is gone".into()
}

async fn receive(
    shared: &Arc<Shared>,
    mut read: ReadHalf<Box<dyn Stream>>,
    mut received: BytesMut,
) -> String {
    loop {
        loop {
            match protocol::parse(&mut received) {
                Ok(Some(Op::Message(message))) => handle_message(shared, message),
                Ok(Some(Op::Ping)) => {
                    shared.calls.command("PONG\r\n");
                    shared.wake.notify_one();
                }
                Ok(Some(Op::Pong)) => shared.calls.handle_pong(),
                // Of other servers, or that this one is about to stop.
                Ok(Some(Op::Info(_))) => {}
                Ok(Some(Op::Error(error))) => {
                    match error.to_ascii_lowercase().contains("permissions violation") {
                        // The connection goes on.
                        true => tracing::warn!(error, "NATS refuses a subject"),
                        false => return link::explain(&error),
                    }
                }
                Ok(None) => break,
                Err(reason) => return reason.into(),
            }
        }
        if received.is_empty() {
            // It may have been enlarged for a large message.
            received = BytesMut::with_capacity(READ_BYTES);
        }
        match read.read_buf(&mut received).await {
            Ok(0) => return "the connection was closed".into(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
}

/// What a stored message says about itself, as far as followers need it.
#[derive(Deserialize)]
struct Meta {
    /// The position, if it is one of a room's history, or a version.
    e: Option<u64>,
    o: Option<u64>,
}

fn handle_message(shared: &Arc<Shared>, message: Incoming) {
    let now = Instant::now();
    match message.sid {
        INBOX => return shared.calls.handle_answer(message),
        PROBE => {
            shared.state().probed_at = now;
            return;
        }
        RECORDS => {
            if let Some(answer) = shared.records.handle(now, message.payload) {
                shared.answer_with_record(&answer);
            }
            return;
        }
        _ => {}
    }
    let Some(channel) = shared.interest.channel(message.sid) else { return };
    if let Channel::Topic(Topic::Feed(key)) = &channel
        && let Some(sequence) = message.header("Nats-Sequence").and_then(|sequence| sequence.parse().ok())
    {
        shared.note_seen(key, sequence);
    }
    let meta = message.header(META).map(|meta| serde_json::from_str::<Meta>(meta).ok());
    let position = match &meta {
        // Published, not stored.
        None => None,
        Some(Some(Meta { e: Some(epoch), o: Some(offset) })) => {
            Some(Position { epoch: Epoch(*epoch), offset: *offset })
        }
        // A lease was renewed.
        Some(Some(_)) => return,
        Some(None) => return shared.events.send(foreign(channel)),
    };
    let reason = match shared.state().assembly.add(now, message.payload) {
        Assembled::Content(payload) => {
            return shared.events.send(Event::Message { channel, position, payload });
        }
        Assembled::Foreign => return shared.events.send(foreign(channel)),
        Assembled::Nothing => return,
        // Interest began in the middle of it: who isn't subscribed receives nothing.
        Assembled::Incomplete if position.is_none() => return,
        Assembled::Incomplete => "a part of a message is missing",
        Assembled::Overflow => "too many large messages arrive at a time; they were dropped",
    };
    shared.events.send(Event::Disconnected { reason: reason.into() });
    if shared.session.borrow().is_some() {
        shared.events.send(Event::Connected);
    }
}

/// A message that no node sent: the node counts an empty one among those that it refuses.
fn foreign(channel: Channel) -> Event {
    Event::Message { channel, position: None, payload: Bytes::new() }
}

async fn transmit(
    shared: &Arc<Shared>,
    mut write: WriteHalf<Box<dyn Stream>>,
    part_bytes_max: usize,
) -> String {
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let mut written = Written::default();
        // What is asked or published takes effect after the interest that was set before.
        if shared.interest.take(&shared.names, &mut batch, BATCH_BYTES_MAX) {
            shared.calls.take(&mut batch, BATCH_BYTES_MAX);
            // Not before the node knows that it receives again.
            if shared.session.borrow().is_some() {
                written = shared.outgoing.take(&mut batch, BATCH_BYTES_MAX, part_bytes_max);
            }
        }
        if batch.is_empty() {
            shared.wake.notified().await;
            continue;
        }
        let result = async {
            write.write_all(&batch).await?;
            write.flush().await
        };
        let result = result.await;
        shared.outgoing.done(written);
        if let Err(error) = result {
            return error.to_string();
        }
        if batch.capacity() > 4 * BATCH_BYTES_MAX {
            batch = Vec::new();
        }
    }
}

/// Sends this node messages over the connection that is to deliver them.
async fn probe(shared: &Arc<Shared>) -> String {
    let mut interval = tokio::time::interval(PROBE_INTERVAL);
    loop {
        interval.tick().await;
        if shared.state().probed_at.elapsed() > SILENCE_MAX {
            return format!("nothing arrived for {} s", SILENCE_MAX.as_secs());
        }
        let mut probe = Vec::new();
        protocol::publish(&mut probe, &shared.probe, "", "", &[]);
        shared.calls.command(probe);
        shared.wake.notify_one();
    }
}
