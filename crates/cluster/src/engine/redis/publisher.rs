//! Publishes messages, in order, in batches: while one is on its way, the next one gathers.

use super::Shared;
use super::link::Link;
use crate::engine::{EngineError, Limits, PROBE_INTERVAL};
use bytes::Bytes;
use redis::{Pipeline, Value};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_edge::{Charge, Class, Ledger};
use tokio::sync::Notify;

/// Messages of a batch.
const BATCH_MESSAGES_MAX: usize = 512;
/// Bytes of a batch, beyond its first message.
const BATCH_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct Waiting {
    messages: VecDeque<(String, Bytes)>,
    /// Of these and of the batch on its way.
    count: usize,
}

/// What waits to be published.
pub(crate) struct Outgoing {
    /// `PUBLISH`, or `SPUBLISH`.
    command: &'static str,
    /// How each message begins.
    head: &'static [u8],
    waiting: Mutex<Waiting>,
    /// The size of what waits, and of the batch on its way. Changed while the messages are locked.
    charge: Charge,
    added: Notify,
}

/// What a message counts.
fn bytes_of(channel: &str, payload: &Bytes) -> usize {
    size_of::<(String, Bytes)>() + channel.len() + payload.len()
}

impl Outgoing {
    pub(crate) fn new(ledger: Arc<Ledger>, command: &'static str, head: &'static [u8]) -> Self {
        let charge = Charge::new(ledger, Class::Cluster);
        Self { command, head, waiting: Mutex::default(), charge, added: Notify::new() }
    }

    /// Messages that wait or are on their way, and their size in bytes.
    pub(crate) fn unsent(&self) -> (usize, usize) {
        (self.waiting().count, self.charge.bytes())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, limits: &Limits, channel: String, payload: Bytes) -> Result<(), EngineError> {
        let bytes = bytes_of(&channel, &payload);
        let mut waiting = self.waiting();
        let is_full = waiting.count >= limits.outgoing_messages_max
            || (waiting.count > 0 && self.charge.bytes() + bytes > limits.outgoing_bytes_max);
        if is_full {
            return Err(EngineError::Full);
        }
        waiting.count += 1;
        self.charge.add(bytes);
        waiting.messages.push_back((channel, payload));
        drop(waiting);
        self.added.notify_one();
        Ok(())
    }

    /// A batch, if anything waits: its commands, and its size in bytes.
    fn take(&self) -> Option<(Pipeline, usize)> {
        let mut pipeline = Pipeline::new();
        let (_, bytes) = self.take_each(|channel, payload| self.add(&mut pipeline, &channel, &payload))?;
        Some((pipeline, bytes))
    }

    /// Takes a batch, if anything waits. Returns the number of its messages, and its size in bytes.
    pub(crate) fn take_each(&self, mut take: impl FnMut(String, Bytes)) -> Option<(usize, usize)> {
        let mut waiting = self.waiting();
        let (mut count, mut bytes) = (0, 0);
        while count < BATCH_MESSAGES_MAX && bytes < BATCH_BYTES_MAX {
            let Some((channel, payload)) = waiting.messages.pop_front() else { break };
            count += 1;
            bytes += bytes_of(&channel, &payload);
            take(channel, payload);
        }
        (count > 0).then_some((count, bytes))
    }

    /// Adds the command that publishes a message.
    pub(crate) fn add(&self, pipeline: &mut Pipeline, channel: &str, payload: &Bytes) {
        pipeline.cmd(self.command).arg(channel).arg([self.head, &payload[..]].concat());
    }

    /// A batch is no longer on its way.
    pub(crate) fn done(&self, count: usize, bytes: usize) {
        let mut waiting = self.waiting();
        waiting.count -= count;
        self.charge.subtract(bytes);
    }

    /// Waits until a message is added.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }
}

/// Runs for as long as the engine. What is on its way when the connection is lost may be lost with it.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let mut link = shared.connect(super::Role::Publish, None, None).await;
        let reason = serve(&shared.outgoing, &mut link).await;
        shared.lost(super::Role::Publish, None, &reason);
    }
}

/// Publishes over one connection until it is lost. Returns why.
pub(crate) async fn serve(outgoing: &Outgoing, link: &mut Link) -> String {
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    probe.reset();
    // Reported once per connection.
    let mut has_refused = false;
    loop {
        while let Some((batch, bytes)) = outgoing.take() {
            let result = link.send(&batch).await;
            outgoing.done(batch.len(), bytes);
            match result {
                Ok(replies) => {
                    let refused = replies.into_iter().find_map(|reply| match reply {
                        Value::ServerError(error) => Some(error.to_string()),
                        _ => None,
                    });
                    if let Some(reason) = refused.filter(|_| !has_refused) {
                        has_refused = true;
                        tracing::warn!(reason, "Redis refuses messages");
                    }
                }
                Err(reason) => return reason,
            }
        }
        tokio::select! {
            () = outgoing.added() => {}
            reason = link.closed() => return reason,
            _ = probe.tick() => {
                if let Err(reason) = link.check().await {
                    return reason;
                }
            }
        }
    }
}
