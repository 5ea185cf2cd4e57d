//! Outputs of the machine for feeds, and the engine's answers to its requests.

use super::LEASE_TTL;
use crate::NodeId;
use crate::engine::{Channel, EngineError, FeedLog, Lease, Reply, Request, Version};
use crate::frame::{Frame, LogEntry};
use bytes::Bytes;
use std::time::{Duration, Instant};
use stentor_hub::{Key, Position};
use stentor_ports::{DocumentChange, FeedUpdate, KeyInterest, PushDenied};

/// An output of the machine.
#[derive(Debug)]
pub(crate) enum Output {
    /// A request to the engine, to be answered with [`super::Feeds::handle_reply`].
    Request(Ticket, FeedRequest),
    /// A frame for other nodes.
    Publish(Channel, Frame),
    /// A key that the control plane must fetch, or must no longer fetch.
    Control(KeyInterest),
    /// An update for the node's own subscribers.
    Plane(Key, FeedUpdate),
    /// The answer to a push.
    Pushed(u64, PushAnswer),
}

/// An entry to store, and a base if the log begins anew.
#[derive(Debug)]
pub(crate) struct Entries {
    pub(super) position: Position,
    pub(super) entry: LogEntry,
    pub(super) base: Option<LogEntry>,
}

/// The purpose of a request, and the term of the lease that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Load,
    Acquire,
    Renew(u64),
    Release(u64),
    Store(u64),
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
        /// Time for which the engine keeps the term if the feed has no log.
        term_ttl: Duration,
    },
    /// Stores an entry, and a base if the log begins anew.
    Store {
        key: Key,
        lease: Lease,
        entries: Box<Entries>,
    },
}

impl FeedRequest {
    /// The feed.
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Load(key)
            | Self::Acquire { key, .. }
            | Self::Renew { key, .. }
            | Self::Release { key, .. }
            | Self::Store { key, .. } => key,
        }
    }

    pub(super) fn purpose(&self) -> Purpose {
        match self {
            Self::Load(_) => Purpose::Load,
            Self::Acquire { .. } => Purpose::Acquire,
            Self::Renew { lease, .. } => Purpose::Renew(lease.term),
            Self::Release { lease, .. } => Purpose::Release(lease.term),
            Self::Store { lease, .. } => Purpose::Store(lease.term),
        }
    }

    /// Converts the request for the engine. `encode` makes the frame of an entry.
    pub(crate) fn encode(self, encode: impl Fn(&Key, LogEntry) -> Bytes) -> Request {
        match self {
            Self::Load(key) => Request::LoadFeed { key },
            Self::Acquire { key, term_seen } => Request::AcquireLease { key, term_seen, ttl: LEASE_TTL },
            Self::Renew { key, lease } => Request::RenewLease { key, lease, ttl: LEASE_TTL },
            Self::Release { key, lease, term_ttl } => Request::ReleaseLease { key, lease, term_ttl },
            Self::Store { key, lease, entries } => {
                let Entries { position, entry, base } = *entries;
                let change = encode(&key, entry);
                let base = base.map(|base| encode(&key, base));
                Request::StoreVersion { key, lease, version: Version { position, change, base } }
            }
        }
    }
}

/// The number of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

/// The log of a feed with its frames decoded.
#[derive(Debug)]
pub(crate) struct DecodedLog {
    /// The base, and the entries after it.
    pub(super) entries: Vec<(Position, LogEntry)>,
    /// Term of the holder that stored the newest entry.
    pub(super) term: u64,
    /// The node that stored the newest entry.
    pub(super) writer: NodeId,
    /// `true` if newer versions may be lost.
    pub(super) may_lack_newest: bool,
}

impl DecodedLog {
    /// Size of the log's largest document. Two documents are held at a time.
    pub(crate) fn document_bytes(&self) -> usize {
        self.entries.iter().map(|(_, entry)| entry.document_bytes()).max().unwrap_or_default()
    }

    /// Decodes a log. Returns `None` if a frame is broken: the log counts as missing.
    pub(crate) fn decode(
        log: FeedLog,
        decode: impl Fn(&Bytes) -> Option<(NodeId, LogEntry)>,
    ) -> Option<Self> {
        let FeedLog { base_position, base, changes, term, may_lack_newest } = log;
        let (mut writer, base) = decode(&base).filter(|(_, base)| base.version.is_some())?;
        let mut entries = vec![(base_position, base)];
        for (position, entry) in &changes {
            let (sender, entry) = decode(entry)?;
            writer = sender;
            entries.push((*position, entry));
        }
        Some(Self { entries, term, writer, may_lack_newest })
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
    /// Converts a reply. `decode` reads the frame of an entry.
    pub(crate) fn of(
        reply: Result<Reply, EngineError>,
        decode: impl Fn(&Bytes) -> Option<(NodeId, LogEntry)>,
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
    /// The incarnation of the feed that made the request.
    pub(super) incarnation: u64,
    pub(super) purpose: Purpose,
    pub(super) at: Instant,
}

/// `true` if the document has changed, or the reason why the push failed.
pub(crate) type PushAnswer = Result<bool, PushDenied>;

/// A push that isn't answered.
pub(super) struct Push {
    pub(super) id: u64,
    /// The new document. `None` deletes the document.
    pub(super) change: Option<DocumentChange>,
    pub(super) sequence: Option<u64>,
    pub(super) deadline: Instant,
    /// `true` if the push may have been stored.
    pub(super) is_unknown: bool,
}
