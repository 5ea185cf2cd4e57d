//! What the machine for feeds asks of its surroundings, and what it is answered.

use super::{LEASE_TTL, Purpose};
use crate::NodeId;
use crate::engine::{Channel, EngineError, FeedLog, Lease, Reply, Request};
use crate::frame::{FeedStateChange, FeedVersion, Frame};
use bytes::Bytes;
use std::time::{Duration, Instant};
use stentor_hub::{Document, Key, Patch, Position};
use stentor_ports::{FeedUpdate, PushDenied, Wanted};

/// What the machine wants done.
#[derive(Debug)]
pub(crate) enum Output {
    /// A request to the engine, to be answered with [`super::Feeds::handle_reply`].
    Request(Ticket, FeedRequest),
    /// For other nodes.
    Publish(Channel, Frame),
    /// Whether the control plane is to fetch a key.
    Control(Wanted),
    /// News for the node's own subscribers.
    Plane(Key, FeedUpdate),
    /// The answer to a push.
    Pushed(u64, PushAnswer),
}

/// A request about a feed, whose frames the caller encodes.
#[derive(Debug)]
pub(crate) enum FeedRequest {
    Load(Key),
    Acquire {
        key: Key,
        term_seen: u64,
    },
    Renew {
        key: Key,
        lease: Lease,
    },
    Release {
        key: Key,
        lease: Lease,
        /// How long the engine keeps the term if the feed has no log.
        term_ttl: Duration,
    },
    Store(Box<Store>),
}

/// An entry of a feed's log: a version, or a state of the version before.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Version(FeedVersion),
    State(FeedStateChange),
}

impl From<Entry> for Frame {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Version(version) => Self::Version(version),
            Entry::State(change) => Self::State(change),
        }
    }
}

/// What to store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) key: Key,
    pub(super) lease: Lease,
    pub(super) position: Position,
    pub(super) change: Entry,
    /// If the log is to begin anew.
    pub(super) base: Option<FeedVersion>,
}

impl FeedRequest {
    /// The feed.
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Load(key)
            | Self::Acquire { key, .. }
            | Self::Renew { key, .. }
            | Self::Release { key, .. } => key,
            Self::Store(store) => &store.key,
        }
    }

    /// The term of the lease that it is about.
    pub(super) fn term(&self) -> u64 {
        match self {
            Self::Load(_) | Self::Acquire { .. } => 0,
            Self::Renew { lease, .. } | Self::Release { lease, .. } => lease.term,
            Self::Store(store) => store.lease.term,
        }
    }

    /// For the engine. `encode` makes the frame of an entry.
    pub(crate) fn encode(self, encode: impl Fn(&Key, Entry) -> Bytes) -> Request {
        match self {
            Self::Load(key) => Request::LoadFeed { key },
            Self::Acquire { key, term_seen } => Request::AcquireLease { key, term_seen, ttl: LEASE_TTL },
            Self::Renew { key, lease } => Request::RenewLease { key, lease, ttl: LEASE_TTL },
            Self::Release { key, lease, term_ttl } => Request::ReleaseLease { key, lease, term_ttl },
            Self::Store(store) => {
                let Store { key, lease, position, change, base } = *store;
                let change = encode(&key, change);
                let base = base.map(|base| encode(&key, Entry::Version(base)));
                let version = crate::engine::Version { position, change, base };
                Request::StoreVersion { key, lease, version }
            }
        }
    }
}

/// Names a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

/// What is kept of a feed, with its frames decoded.
pub(crate) struct DecodedLog {
    pub(super) base: (Position, FeedVersion),
    pub(super) entries: Vec<(Position, Entry)>,
    /// Of the holder that stored the newest entry.
    pub(super) term: u64,
    /// The node that stored the newest entry.
    pub(super) writer: NodeId,
    /// Whether newer versions may be lost.
    pub(super) may_lack_newest: bool,
}

impl DecodedLog {
    /// The size of the largest of its documents, of which two are held at a time.
    pub(crate) fn document_bytes(&self) -> usize {
        let versions = self.entries.iter().filter_map(|(_, entry)| match entry {
            Entry::Version(version) => Some(version.document_bytes()),
            Entry::State(_) => None,
        });
        versions.chain([self.base.1.document_bytes()]).max().unwrap_or_default()
    }

    /// Decodes a log. `None`: a frame of it is broken, and the log is as good as none.
    pub(crate) fn decode(log: FeedLog, decode: impl Fn(&Bytes) -> Option<(NodeId, Entry)>) -> Option<Self> {
        let (mut writer, Entry::Version(base)) = decode(&log.base)? else { return None };
        let mut entries = Vec::new();
        for (position, entry) in &log.changes {
            let (sender, entry) = decode(entry)?;
            writer = sender;
            entries.push((*position, entry));
        }
        let FeedLog { base_position, term, may_lack_newest, .. } = log;
        Some(Self { base: (base_position, base), entries, term, writer, may_lack_newest })
    }
}

impl std::fmt::Debug for DecodedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecodedLog").field("base", &self.base.0).finish_non_exhaustive()
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Log(Option<Box<DecodedLog>>),
    Lease(Option<Lease>),
    Done,
    Failed(EngineError),
}

impl Answer {
    /// `decode` reads the frame of an entry.
    pub(crate) fn of(
        reply: Result<Reply, EngineError>,
        decode: impl Fn(&Bytes) -> Option<(NodeId, Entry)>,
    ) -> Self {
        match reply {
            Ok(Reply::Feed(log)) => {
                Self::Log(log.and_then(|log| DecodedLog::decode(log, decode)).map(Box::new))
            }
            Ok(Reply::Lease(lease)) => Self::Lease(lease),
            Ok(_) => Self::Done,
            Err(error) => Self::Failed(error),
        }
    }
}

/// A request without an answer.
pub(super) struct Asked {
    pub(super) key: Key,
    /// Which incarnation of the feed asked.
    pub(super) incarnation: u64,
    pub(super) purpose: Purpose,
    /// Of the lease that it is about.
    pub(super) term: u64,
    pub(super) at: Instant,
}

/// Whether the document has changed, or why the push failed.
pub(crate) type PushAnswer = Result<bool, PushDenied>;

/// A push that isn't answered.
pub(super) struct Push {
    pub(super) id: u64,
    /// `None`: the document is deleted.
    pub(super) document: Option<Document>,
    pub(super) patch: Option<Patch>,
    pub(super) sequence: Option<u64>,
    pub(super) deadline: Instant,
    /// Whether it may have been stored.
    pub(super) is_unknown: bool,
}
