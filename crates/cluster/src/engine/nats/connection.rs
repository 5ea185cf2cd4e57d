//! The connection to the NATS server: publishes, sends requests and receives messages. A lost or silent connection is replaced.

use super::Shared;
use super::jetstream::{META, Session};
use super::link::{self, Info, Link};
use super::parts::{self, Assembled, PART_BYTES_MAX};
use super::protocol::{self, Incoming, Op};
use super::records::QUESTION;
use crate::engine::common::{Backoff, Change, Outages, Permit, Stream, Taken};
use crate::engine::{Channel, Event, PROBE_INTERVAL, SILENCE_MAX};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use serde::Deserialize;
use std::io::Write;
use std::sync::Arc;
use stentor_hub::{Epoch, Position, Topic};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

/// Maximum number of bytes written at once, besides the last command.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// The ids of the connection's own subscriptions.
const INBOX: u64 = 1;
const PROBE: u64 = 2;
const RECORDS: u64 = 3;
/// Maximum size of a stored message besides its part.
const HEADERS_BYTES_MAX: usize = 4_096;

/// Keeps a connection for as long as the engine runs. `first` receives the result of the first attempt.
pub(super) async fn run(shared: Arc<Shared>, mut first: Option<oneshot::Sender<Result<(), String>>>) {
    let hosts = shared.servers.endpoints.len();
    let mut attempt = fastrand::usize(..hosts);
    let mut failures = 0;
    let mut backoff = Backoff::default();
    let outages = Outages::new("NATS");
    loop {
        let reason = match Link::connect(&shared.servers, attempt).await {
            Ok(link) => serve(&shared, link, &outages, &mut first).await,
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
        outages.begin((), &reason);
        backoff.wait().await;
    }
}

/// Bytes read at once, unless a larger message is awaited.
const READ_BYTES: usize = 16 << 10;

/// Uses a connection until it is lost. Returns the reason.
async fn serve(
    shared: &Arc<Shared>,
    link: Link,
    outages: &Outages<()>,
    first: &mut Option<oneshot::Sender<Result<(), String>>>,
) -> String {
    let Link { info, stream, received } = link;
    shared.interest.begin();
    shared.outgoing.restart();
    shared.state().assembly.clear();
    shared.probe.reset();
    let connection = shared.calls.begin();
    let part_bytes_max = info.max_payload.saturating_sub(HEADERS_BYTES_MAX).clamp(1, PART_BYTES_MAX);
    let own = [
        (format!("{}.*", shared.calls.inbox), INBOX),
        (shared.probe.channel.to_string(), PROBE),
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
        reason = establish(shared, connection, &info, part_bytes_max, outages, first) => reason,
    }
}

/// Subscribes to all channels, and creates the streams. Returns the reason when the connection fails.
async fn establish(
    shared: &Arc<Shared>,
    connection: u64,
    info: &Info,
    part_bytes_max: usize,
    outages: &Outages<()>,
    first: &mut Option<oneshot::Sender<Result<(), String>>>,
) -> String {
    let is_cluster = !info.cluster.is_empty();
    let session = Arc::new(Session {
        connection,
        // In a cluster, a lost server loses no acknowledged message.
        generation: if is_cluster { String::new() } else { info.server_id.clone() },
        part_bytes_max,
        established_at: Instant::now(),
        broken: Notify::new(),
        stream_limits: Mutex::default(),
        raising: tokio::sync::Mutex::default(),
    });
    // The streams are created before interest is established, which may take longer.
    match timeout(SILENCE_MAX, shared.make_streams(&session, is_cluster)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return format!("JetStream can't be used: {error}"),
        Err(_) => return "JetStream doesn't answer".into(),
    }
    shared.publish_record(QUESTION);
    if shared.calls.ping(connection).await.is_err() {
        return "the connection was lost".into();
    }
    shared.session.send_replace(Some(session.clone()));
    outages.end(&());
    shared.events.send(Event::Connected);
    // Messages have waited until now.
    shared.calls.added.notify_one();
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
                Ok(Some(Op::Ping)) => shared.calls.command("PONG\r\n"),
                Ok(Some(Op::Pong)) => shared.calls.handle_pong(),
                // `INFO` reports other servers, or that this one is about to stop.
                Ok(Some(Op::Info(_))) => {}
                Ok(Some(Op::Error(error))) => {
                    match error.to_ascii_lowercase().contains("permissions violation") {
                        // The connection continues.
                        true => tracing::warn!(error, "NATS refuses a subject"),
                        false => return link::explain(&error),
                    }
                }
                Ok(None) => break,
                Err(reason) => return reason.into(),
            }
        }
        if received.is_empty() {
            // The buffer may have grown for a large message.
            received = BytesMut::with_capacity(READ_BYTES);
        }
        match read.read_buf(&mut received).await {
            Ok(0) => return "the connection was closed".into(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
}

/// The fields of a stored message's header that followers need.
#[derive(Deserialize)]
struct Meta {
    /// The position of a message in a room's history, or of a version.
    e: Option<u64>,
    o: Option<u64>,
}

fn handle_message(shared: &Arc<Shared>, message: Incoming) {
    let now = Instant::now();
    match message.sid {
        INBOX => return shared.calls.handle_answer(message),
        PROBE => return shared.probe.handle_arrival(),
        RECORDS => {
            if let Some(answer) = shared.records.handle(now, message.payload) {
                shared.answer_with_record(&answer);
            }
            return;
        }
        _ => {}
    }
    let Some(channel) = shared.interest.channel_of(message.sid) else { return };
    if let Channel::Topic(Topic::Feed(key)) = &channel
        && let Some(sequence) = message.header("Nats-Sequence").and_then(|sequence| sequence.parse().ok())
    {
        shared.note_seen(key, sequence);
    }
    let meta = message.header(META).map(|meta| serde_json::from_str::<Meta>(meta).ok());
    let position = match &meta {
        // The message was published, and isn't stored.
        None => None,
        Some(Some(Meta { e: Some(epoch), o: Some(offset) })) => {
            Some(Position { epoch: Epoch(*epoch), offset: *offset })
        }
        // The message renews a lease.
        Some(Some(_)) => return,
        Some(None) => return shared.events.send(foreign(channel)),
    };
    let reason = match shared.state().assembly.add(now, message.payload) {
        Assembled::Content(payload) => {
            return shared.events.send(Event::Message { channel, position, payload });
        }
        Assembled::Foreign => return shared.events.send(foreign(channel)),
        Assembled::Nothing => return,
        // Interest began between the parts of a published message. The node misses this message, like the messages before it.
        Assembled::Incomplete if position.is_none() => return,
        Assembled::Incomplete => "a part of a message is missing",
        Assembled::Overflow => "too many large messages arrive at a time; they were dropped",
    };
    shared.events.send(Event::Disconnected { reason: reason.into() });
    if shared.session.borrow().is_some() {
        shared.events.send(Event::Connected);
    }
}

/// An event for a message that no node sent: empty, so that the node counts it among refused frames.
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
        // Requests and messages follow the interest that was set before.
        let mut permit = None;
        if subscribe(shared, &mut batch) {
            shared.calls.take(&mut batch, BATCH_BYTES_MAX);
            // Messages wait until the node knows that it receives again.
            if shared.session.borrow().is_some() {
                permit = Some(publish(shared, &mut batch, part_bytes_max));
            }
        }
        if batch.is_empty() {
            tokio::select! {
                () = shared.calls.added.notified() => {}
                () = shared.interest.changed() => {}
                () = shared.outgoing.added() => {}
            }
            continue;
        }
        let result = async {
            write.write_all(&batch).await?;
            write.flush().await
        };
        let result = result.await;
        drop(permit);
        if let Err(error) = result {
            return error.to_string();
        }
        if batch.capacity() > 4 * BATCH_BYTES_MAX {
            batch = Vec::new();
        }
    }
}

/// Appends commands for changed interest. Returns `true` if the batch has room for more.
fn subscribe(shared: &Shared, batch: &mut Vec<u8>) -> bool {
    shared.interest.take(|Change { channel, id, is_wanted }| {
        let has_room = batch.len() < BATCH_BYTES_MAX;
        if has_room {
            // Writing to a vector can't fail.
            let _ = match is_wanted {
                true => write!(batch, "SUB {} {id}\r\n", shared.names.channel(channel)),
                false => write!(batch, "UNSUB {id}\r\n"),
            };
        }
        has_room
    })
}

/// Appends commands for messages. The messages are charged until the permit is dropped.
fn publish(shared: &Shared, batch: &mut Vec<u8>, part_bytes_max: usize) -> Permit {
    shared.outgoing.take(|message| {
        if batch.len() >= BATCH_BYTES_MAX {
            return Taken::Nothing;
        }
        let total = message.payload.len();
        if total <= part_bytes_max {
            protocol::publish(batch, &message.channel, "", "", &[parts::WHOLE, &message.payload]);
            return Taken::Whole;
        }
        let (id, written) = message.progress.get_or_insert_with(|| (fastrand::u64(..), 0));
        let rest = &message.payload[*written..];
        let part = &rest[..rest.len().min(part_bytes_max)];
        let is_last = part.len() == rest.len();
        protocol::publish(batch, &message.channel, "", "", &[&parts::start(*id, total, is_last), part]);
        *written += part.len();
        if is_last { Taken::Whole } else { Taken::Part }
    })
}

/// Sends this node messages over the connection that delivers them.
async fn probe(shared: &Arc<Shared>) -> String {
    let mut interval = tokio::time::interval(PROBE_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(reason) = shared.probe.begin() {
            return reason;
        }
        let mut probe = Vec::new();
        protocol::publish(&mut probe, &shared.probe.channel, "", "", &[]);
        shared.calls.command(probe);
    }
}
