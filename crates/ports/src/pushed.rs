//! Documents of feeds that backends push: the port through which the nodes of a cluster share them.

use super::{DocumentChange, Done};
use std::sync::Arc;
use stentor_hub::{Document, Key};

/// The source of a feed's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedSource {
    /// An upstream.
    Fetched,
    /// Backends push them, according to the configuration. Subscribers wait for the first document.
    Pushed,
    /// The configuration doesn't name the source. Backends may push documents.
    Unknown,
}

/// A document that a backend pushes into a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedFeed {
    /// The document. `None` deletes it.
    pub change: Option<DocumentChange>,
    /// The backend's sequence number. The push is refused if a push with a greater number arrived before.
    pub sequence: Option<u64>,
}

/// The reason why a push was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushDenied {
    /// The push has a lower sequence number than an earlier push.
    OldSequence {
        /// The greatest sequence number.
        last: u64,
    },
    /// There is no document to delete.
    NotFound,
    /// The engine doesn't answer, or too many pushes wait.
    Unavailable {
        /// `true` if the document may have been stored nevertheless.
        is_unknown: bool,
    },
}

/// `true` if the document differs from the previous one.
pub type PushResult = Result<bool, PushDenied>;
/// The document of a feed. `None` if the feed has no document.
pub type ReadResult = Result<Option<Arc<Document>>, PushDenied>;

/// Pushed documents. All nodes share them, whichever node received the push.
pub trait PushedFeeds: Send + Sync {
    /// Reads the document of a feed. It may be replaced at any time.
    fn read(&self, key: &Key, done: Done<ReadResult>);

    /// Replaces the document of a feed on all nodes.
    fn push(&self, key: &Key, push: PushedFeed, done: Done<PushResult>);
}
