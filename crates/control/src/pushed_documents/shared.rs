//! Pushed documents that the nodes of a cluster share.

use super::{Push, PushError, PushedDocuments};
use stentor_hub::Key;
use stentor_ports::{DocumentChange, Done, PushDenied, PushResult, PushedFeed, PushedFeeds};
use tokio::sync::oneshot;

impl PushedDocuments {
    /// Replaces a document on all nodes. Returns `true` if it differs from the last one.
    ///
    /// The document is compared with the nodes' current one. If another push stores a document in between,
    /// subscribers receive the complete document instead of a patch.
    pub(super) async fn replace_shared(
        &self,
        feeds: &dyn PushedFeeds,
        key: &Key,
        push: Push,
    ) -> Result<bool, PushError> {
        let sequence = push.sequence;
        let kept = answer(|done| feeds.read(key, done)).await?;
        let (changed, _room) = self.process(push, kept.clone()).await?;
        // An unchanged document is stored too, because the sequence number counts.
        let Some(change) = changed.or_else(|| kept.map(DocumentChange::from)) else { return Ok(false) };
        store(feeds, key, PushedFeed { change: Some(change), sequence }).await
    }
}

/// Deletes a document on all nodes.
pub(super) async fn delete(
    feeds: &dyn PushedFeeds,
    key: &Key,
    sequence: Option<u64>,
) -> Result<(), PushError> {
    store(feeds, key, PushedFeed { change: None, sequence }).await?;
    Ok(())
}

async fn store(feeds: &dyn PushedFeeds, key: &Key, push: PushedFeed) -> Result<bool, PushError> {
    let given = push.sequence.unwrap_or_default();
    answer(|done: Done<PushResult>| feeds.push(key, push, done)).await.map_err(|error| match error {
        PushError::Sequence { last, .. } => PushError::Sequence { given, last },
        other => other,
    })
}

/// Waits for an answer of the cluster.
async fn answer<T: Send + 'static>(ask: impl FnOnce(Done<Result<T, PushDenied>>)) -> Result<T, PushError> {
    let (sender, receiver) = oneshot::channel();
    ask(Done::new(move |result| {
        let _ = sender.send(result);
    }));
    match receiver.await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(PushDenied::OldSequence { last }))) => Err(PushError::Sequence { given: 0, last }),
        Ok(Ok(Err(PushDenied::NotFound))) => Err(PushError::Unknown),
        Ok(Ok(Err(PushDenied::Unavailable { is_unknown: false }))) => Err(PushError::Unavailable),
        Ok(Ok(Err(PushDenied::Unavailable { is_unknown: true }))) => Err(PushError::OutcomeUnknown),
        Ok(Err(_)) | Err(_) => Err(PushError::Stopped),
    }
}
