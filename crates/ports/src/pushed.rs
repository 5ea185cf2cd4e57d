//! Documents of feeds that backends push: the port through which the nodes of a cluster share them.

use super::Done;
use stentor_hub::{Document, Key, Patch};

/// Where the documents of a feed come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedSource {
    /// An upstream.
    Fetched,
    /// Backends push them, as the configuration says: subscribers wait for the first one.
    Pushed,
    /// The configuration doesn't say. Backends may push them all the same.
    Unknown,
}

/// A document that a backend pushes into a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedFeed {
    /// The document. `None`: it is deleted.
    pub document: Option<Document>,
    /// What leads to it from the document that was read.
    pub patch: Option<Patch>,
    /// Refused if a push with a greater number came before.
    pub sequence: Option<u64>,
}

/// Why the nodes don't have a document that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushDenied {
    /// Its sequence number is lower than that of an earlier one.
    OldSequence {
        /// The greatest one.
        last: u64,
    },
    /// There is no document to delete.
    NotFound,
    /// The engine doesn't answer, or too many pushes wait.
    Unavailable {
        /// Whether the document may be stored all the same.
        is_unknown: bool,
    },
}

/// Whether the document differs from the one before.
pub type PushResult = Result<bool, PushDenied>;
/// The document of a feed, if it has one.
pub type ReadResult = Result<Option<Document>, PushDenied>;

/// Documents of feeds that all nodes have, whichever they were pushed to.
pub trait PushedFeeds: Send + Sync {
    /// Reads the document of a feed. It may be replaced at any time.
    fn read(&self, key: &Key, done: Done<ReadResult>);

    /// Replaces the document of a feed on all nodes.
    fn push(&self, key: &Key, push: PushedFeed, done: Done<PushResult>);
}
