//! Feeds: the port through which the control plane gives documents to the data plane.

use crate::{Busy, PushedFeeds};
use bytes::Bytes;
use std::sync::Arc;
use stentor_hub::{Document, FeedState, Key, Patch, Position, Requester};

/// The current demand for a key. The value is a state, not an event: only the newest report per key counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInterest {
    /// The key.
    pub key: Key,
    /// `true` while the key has subscribers.
    pub wanted: bool,
    /// The sessions that have requested the key since the last call, while the key had no state: at most
    /// [`REQUESTERS_MAX`], each once. If the list is full, there may have been more.
    pub requesters: Vec<Requester>,
}

/// Maximum number of requesters that are recorded per key.
pub const REQUESTERS_MAX: usize = 16;

/// A new version of a document, from the comparison with the previous version to the subscribers of one node, or to the node that
/// assigns its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentChange {
    /// The new version. Its holders share it.
    pub document: Arc<Document>,
    /// The patch from the previous version. `None` if subscribers need the whole document. Holders of another previous
    /// version ignore the patch.
    pub patch: Option<Patch>,
}

impl From<Arc<Document>> for DocumentChange {
    fn from(document: Arc<Document>) -> Self {
        Self { document, patch: None }
    }
}

impl From<Document> for DocumentChange {
    fn from(document: Document) -> Self {
        Arc::new(document).into()
    }
}

impl DocumentChange {
    /// Size of the document and the patch, in bytes.
    pub fn bytes(&self) -> usize {
        self.document.body.len() + self.patch.as_ref().map_or(0, |patch| patch.operations.len())
    }
}

/// An update of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedUpdate {
    /// A new version. The feed is live from now on.
    Changed(DocumentChange),
    /// A new version whose position another node of the cluster has assigned. The feed is live from now on. A version that
    /// isn't newer than the newest one of its epoch has no effect.
    At {
        /// The position.
        position: Position,
        /// The document.
        document: Arc<Document>,
        /// JSON Patches (RFC 6902) from consecutive versions that lead to the document, oldest first.
        patches: Vec<Bytes>,
    },
    /// A new state of the feed. The document, if there is one, stays as it is.
    State {
        /// The new state. `NotFound` means that there is no such key: subscribers are notified and unsubscribed.
        state: FeedState,
        /// The reason, for people.
        reason: Arc<str>,
    },
    /// The control plane has dropped the feed, so the data plane may drop its state too. No effect while the feed has
    /// subscribers. Sent when a key without subscribers has been idle for long enough, and after a `NotFound` that the control
    /// plane doesn't keep. The state `NotFound` is another update, because it ends subscriptions: when both were one message,
    /// documents were never freed, or new subscribers received old ones.
    Forget,
    /// The feed isn't fetched for this session, which already waits for the maximum number of never-fetched keys
    /// (`limits.cold_keys_max`). Ends the subscription of this session only. Sent to the session's core, not to the
    /// key's home core.
    Refuse(Requester),
    /// The feed is at least as new on this node as it was in the engine when the read with this number began.
    Confirmed(u64),
}

/// The feeds of the data plane, for the control plane. No call blocks.
pub trait Feeds: Send + Sync {
    /// Takes the keys whose demand has changed since the last call.
    fn take_key_interest(&self) -> Vec<KeyInterest>;

    /// Sends an update of a feed to its home core. Updates of one key keep their order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy>;

    /// The store of pushed documents that all nodes of a cluster share. `None` if the control plane of each node keeps its own.
    fn pushed_feeds(&self) -> Option<&dyn PushedFeeds>;
}
