//! Publishes messages in order, in batches. Messages that arrive while a batch is sent make up the next one.

use super::link::Link;
use super::{Role, Shared};
use crate::engine::PROBE_INTERVAL;
use crate::engine::common::{Outgoing, Permit, Taken};
use bytes::Bytes;
use redis::{Pipeline, Value};
use std::mem;
use std::sync::Arc;

/// Maximum number of messages in a batch.
const BATCH_MESSAGES_MAX: usize = 512;
/// Maximum size of a batch in bytes, besides its first message.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The command that publishes a message.
#[derive(Clone, Copy)]
pub(crate) struct Publish {
    /// `PUBLISH`, or `SPUBLISH`.
    pub(crate) command: &'static str,
    /// The first bytes of each message.
    pub(crate) prefix: &'static [u8],
}

impl Publish {
    pub(crate) fn add(self, pipeline: &mut Pipeline, channel: &str, payload: &Bytes) {
        pipeline.cmd(self.command).arg(channel).arg([self.prefix, &payload[..]].concat());
    }
}

/// Takes a batch, if messages wait.
pub(crate) fn take_batch(outgoing: &Outgoing) -> Option<(Vec<(String, Bytes)>, Permit)> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let permit = outgoing.take(|message| {
        if batch.len() >= BATCH_MESSAGES_MAX || bytes >= BATCH_BYTES_MAX {
            return Taken::Nothing;
        }
        bytes += message.payload.len();
        batch.push((mem::take(&mut message.channel), mem::take(&mut message.payload)));
        Taken::Whole
    });
    (!batch.is_empty()).then_some((batch, permit))
}

/// Publishes for as long as the engine runs. A lost connection may lose a batch.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let mut link = shared.connect(Role::Publish, None, None).await;
        // Messages without a position begin with a colon.
        let publish = Publish { command: "PUBLISH", prefix: b":" };
        let reason = serve(&shared.outgoing, publish, &mut link).await;
        shared.outages.begin((Role::Publish, None), &reason);
    }
}

/// Publishes over one connection until it is lost. Returns the reason.
pub(crate) async fn serve(outgoing: &Outgoing, publish: Publish, link: &mut Link) -> String {
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    probe.reset();
    // A refusal is reported once per connection.
    let mut has_refused = false;
    loop {
        while let Some((batch, permit)) = take_batch(outgoing) {
            let mut pipeline = Pipeline::with_capacity(batch.len());
            batch.iter().for_each(|(channel, payload)| publish.add(&mut pipeline, channel, payload));
            let result = link.send(&pipeline).await;
            drop(permit);
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
