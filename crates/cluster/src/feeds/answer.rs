//! What the engine answers about a feed, with its frames decoded.

use crate::engine::{EngineError, FeedLog, Lease, Reply};
use crate::frame::FeedVersion;
use bytes::Bytes;
use stentor_hub::Position;

/// What is kept of a feed, with its frames decoded.
pub(crate) struct DecodedLog {
    pub(crate) base: (Position, FeedVersion),
    pub(crate) changes: Vec<(Position, FeedVersion)>,
}

impl DecodedLog {
    /// The size of the largest of its documents, of which two are held at a time.
    pub(crate) fn document_bytes(&self) -> usize {
        let changes = self.changes.iter().map(|(_, change)| change.document_bytes());
        changes.chain([self.base.1.document_bytes()]).max().unwrap_or_default()
    }

    /// Decodes a log. `None`: a frame of it is broken, and the log is as good as none.
    pub(super) fn decode(log: FeedLog, decode: impl Fn(&Bytes) -> Option<FeedVersion>) -> Option<Self> {
        let base = (log.base_position, decode(&log.base)?);
        let changes = log.changes.iter().map(|(position, change)| Some((*position, decode(change)?)));
        Some(Self { base, changes: changes.collect::<Option<_>>()? })
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
    Log(Option<DecodedLog>),
    Lease(Option<Lease>),
    Done,
    Failed(EngineError),
}

impl Answer {
    /// `decode` reads the frame of a version.
    pub(crate) fn of(
        reply: Result<Reply, EngineError>,
        decode: impl Fn(&Bytes) -> Option<FeedVersion>,
    ) -> Self {
        match reply {
            Ok(Reply::Feed(log)) => Self::Log(log.and_then(|log| DecodedLog::decode(log, decode))),
            Ok(Reply::Lease(lease)) => Self::Lease(lease),
            Ok(_) => Self::Done,
            Err(error) => Self::Failed(error),
        }
    }
}
