//! Publishes messages in order, in batches. Messages that arrive while a batch is sent make up the next one.

use super::direct::Direct;
use super::link::Link;
use super::publications::{Publications, first_refusal, take_batch};
use super::{Role, Shared};
use crate::engine::PROBE_INTERVAL;
use crate::engine::common::Backoff;
use std::sync::Arc;
use tokio::time::Instant;

/// Publishes for as long as the engine runs. A lost connection may lose a batch.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut backoff = Backoff::default();
    loop {
        let mut link = shared.connect(Role::Publish, None, None).await;
        let opened_at = Instant::now();
        let reason = serve(&shared.messages, &mut link).await;
        drop(link);
        shared.outages.begin((Role::Publish, None), &reason);
        backoff.wait_after(opened_at.elapsed()).await;
    }
}

/// Publishes over one connection until it is lost. Returns the reason.
pub(crate) async fn serve(messages: &Direct, link: &mut Link) -> String {
    messages.connect(link.direct());
    let reason = publish_all(messages, link).await;
    // The second handle to the socket would keep the connection open.
    messages.connect(None);
    reason
}

async fn publish_all(messages: &Direct, link: &mut Link) -> String {
    let Direct { outgoing, publish, .. } = messages;
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    probe.reset();
    // A refusal is reported once per connection.
    let mut has_refused = false;
    let mut cluster_seen = None;
    loop {
        let mut refusal = messages.take();
        while let Some((batch, permit)) = take_batch(outgoing) {
            let mut publications = Publications::default();
            batch.iter().for_each(|(channel, payload)| publish.add(&mut publications, channel, payload));
            let result = link.sender().publish(publications).await;
            drop(permit);
            match result {
                Ok(replies) => refusal = refusal.or_else(|| first_refusal(replies)),
                Err(reason) => return reason,
            }
        }
        if let Some(reason) = refusal.filter(|_| !has_refused) {
            has_refused = true;
            tracing::warn!(reason, "Redis refuses messages");
        }
        messages.release();
        tokio::select! {
            () = outgoing.added() => {}
            reason = link.closed() => return reason,
            _ = probe.tick() => {
                let checked = async {
                    link.watch_cluster(&mut cluster_seen).await?;
                    link.check().await
                };
                if let Err(reason) = checked.await {
                    return reason;
                }
            }
        }
    }
}
