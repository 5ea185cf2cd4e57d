//! Publications: messages, documents and states that are sent to a topic, and their encodings, each made once
//! per node.

mod encodings;
mod version;

pub use version::Patch;
pub(crate) use version::{PatchHistory, StoredPatch};

use crate::budget::{Charge, LiveBytes};
use crate::key::Key;
use crate::topic::Room;
use bytes::Bytes;
use encodings::{Encodings, Lookup};
use std::sync::Arc;
use std::time::Instant;
use version::Version;

/// Identifies a wire format of publications. The hub gives it no meaning; edge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormatId(pub u8);

/// Maximum number of formats.
pub const FORMATS_MAX: usize = 64;

/// Distinguishes two incarnations of a topic's offsets. The node that assigns the offsets draws it at random.
/// An offset has a meaning only together with its epoch. Below 2^53, so that it is exact in JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The topic has no epoch yet, because it never had a publication.
    pub const NONE: Self = Self(0);
}

/// A position in a topic: the first publication of an epoch has offset 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The incarnation of the topic.
    pub epoch: Epoch,
    /// The number of the publication in this epoch.
    pub offset: u64,
}

impl Position {
    /// An unknown position of a client in a room. The client gets a [`Notice::Gap`](crate::Notice::Gap), as
    /// for a position that the room's history doesn't have, and then new messages.
    pub const UNKNOWN: Self = Self { epoch: Epoch::NONE, offset: u64::MAX };

    /// Returns `true` if a client at this position already has the publication at `other`.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.epoch == other.epoch && self.offset >= other.offset
    }
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedState {
    /// The document is as new as its upstream allows.
    Live,
    /// The upstream fails, so the last good document is kept. Newer versions may exist.
    Stale,
    /// The upstream has announced the final version.
    Complete,
    /// The key doesn't exist, or never had a document.
    NotFound,
}

impl FeedState {
    /// Returns the name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Complete => "complete",
            Self::NotFound => "not_found",
        }
    }
}

/// Reason why a client that named its version is sent a snapshot. Part of the snapshot, because conflation
/// could drop a separate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotReason {
    /// The client's version is of another epoch: the server or the feed has restarted.
    Epoch,
    /// The patches don't reach back that far, or would be longer than the document.
    History,
}

impl SnapshotReason {
    /// Returns the name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Epoch => "epoch",
            Self::History => "history",
        }
    }
}

/// One version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The bytes of the document. If `json` is `true`: one valid JSON value in UTF-8.
    pub body: Bytes,
    /// `true` if `body` may be inserted into JSON as a value.
    pub json: bool,
    /// The media type of the document.
    pub content_type: Arc<str>,
}

/// The data of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// One valid JSON value in UTF-8.
    Json(Bytes),
    /// Text in UTF-8.
    Text(Bytes),
    /// Bytes.
    Binary(Bytes),
    /// The arguments of an event, as Socket.IO has them.
    Arguments {
        /// Valid JSON values in UTF-8, joined by commas; possibly none. A placeholder stands for an
        /// attachment: `{"_placeholder":true,"num":0}` for the first one.
        json: Bytes,
        /// The attachments that placeholders stand for, in order.
        attachments: Arc<[Bytes]>,
    },
}

impl Data {
    /// Returns the length in bytes, attachments included.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(b) | Self::Text(b) | Self::Binary(b) => b.len(),
            Self::Arguments { json, attachments } => {
                json.len() + attachments.iter().map(Bytes::len).sum::<usize>()
            }
        }
    }

    /// Returns `true` if the data is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The content of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A message to a room.
    Message {
        /// The room of the message; of several rooms, the first. For a message to one session, any room of
        /// its namespace.
        room: Room,
        /// The event's name, if it has one.
        event: Option<Arc<str>>,
        /// The data.
        data: Data,
        /// Position of the message, if the room keeps history.
        position: Option<Position>,
    },
    /// A whole document.
    Snapshot {
        /// The feed.
        key: Key,
        /// Position of the document in the feed.
        position: Position,
        /// The feed's state when it was published.
        state: FeedState,
        /// Reason why it is not a delta, for a reconnected session that could have expected one.
        snapshot_reason: Option<SnapshotReason>,
        /// The document.
        document: Arc<Document>,
    },
    /// A patch from an earlier document to a newer one. The feed is live. A format without deltas is sent the
    /// snapshot.
    Delta {
        /// The feed.
        key: Key,
        /// The offset of the document to which it applies, of the same epoch.
        base: u64,
        /// The position of the resulting document.
        position: Position,
        /// A JSON Patch (RFC 6902).
        patch: Bytes,
    },
    /// A change of a feed's state without a new document.
    State {
        /// The feed.
        key: Key,
        /// The new state.
        state: FeedState,
        /// The reason, for people.
        reason: Arc<str>,
    },
    /// A notice of members that joined and left a room.
    Presence {
        /// The room.
        room: Room,
        /// The notice as JSON.
        notice: Bytes,
    },
}

impl Body {
    /// Returns the size of the content in bytes. Includes an event's name, which a client may choose, but no
    /// other names and numbers.
    pub fn len(&self) -> usize {
        match self {
            Self::Message { event, data, .. } => event.as_deref().map_or(0, str::len) + data.len(),
            Self::Snapshot { document, .. } => document.body.len(),
            Self::Delta { patch, .. } => patch.len(),
            Self::State { reason, .. } => reason.len(),
            Self::Presence { notice, .. } => notice.len(),
        }
    }

    /// Returns `true` if the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A publication to a topic, shared by all sessions that receive it. `F` is an encoded frame.
pub struct Publication<F> {
    id: u64,
    recoverable: bool,
    body: Body,
    encodings: Encodings<F>,
    /// The patches of a snapshot to which a patch leads.
    version: Option<Box<Version<F>>>,
    charge: Charge,
    /// Time at which a shard made the publication.
    taken_at: Option<Instant>,
}

/// The result of requesting an encoding. The inner value is `None` if the format can't represent the publication.
#[derive(Debug, PartialEq, Eq)]
pub enum Encoded<F> {
    /// The shared encoding; `true` if the caller made it.
    Shared(Option<F>, bool),
    /// An encoding for the caller alone, made while another core makes the shared one.
    Own(Option<F>),
    /// Another core is making the encoding, until `Publication::is_being_encoded` returns `false`.
    InProgress,
}

/// Maximum size of a body, in bytes, that a core encodes for itself while another core makes the shared
/// encoding. For small bodies this is cheaper than waiting.
pub const OWN_ENCODING_BYTES_MAX: usize = 4096;

impl<F> Publication<F> {
    /// Makes an unencoded publication. The body's bytes, and the memory to keep them, count in `live`. Shards
    /// create their publications themselves: this function is for tests of encoders.
    pub fn new(id: u64, recoverable: bool, body: Body, live: &LiveBytes) -> Arc<Self> {
        let bytes = body.len();
        Arc::new(Self::of(id, recoverable, body, None, live, bytes))
    }

    /// Makes a publication of a shard at this time.
    pub(crate) fn made_at(
        taken_at: Option<Instant>,
        id: u64,
        recoverable: bool,
        body: Body,
        live: &LiveBytes,
    ) -> Arc<Self> {
        let bytes = body.len();
        Arc::new(Self { taken_at, ..Self::of(id, recoverable, body, None, live, bytes) })
    }

    fn of(
        id: u64,
        recoverable: bool,
        body: Body,
        version: Option<Version<F>>,
        live: &LiveBytes,
        bytes: usize,
    ) -> Self {
        let charge = live.charge(size_of::<Self>() + bytes);
        let (encodings, version) = (Encodings::new(), version.map(Box::new));
        Self { id, recoverable, body, encodings, version, charge, taken_at: None }
    }

    /// Makes a snapshot to which `step` leads from the previous version. It is the last one of `past`, unless it is too long.
    pub(crate) fn with_patches(
        taken_at: Option<Instant>,
        id: u64,
        body: Body,
        step: Arc<StoredPatch>,
        past: PatchHistory,
        live: &LiveBytes,
    ) -> Arc<Self> {
        let bytes = body.len();
        let version = Some(Version::new(step, past));
        Arc::new(Self { taken_at, ..Self::of(id, false, body, version, live, bytes) })
    }

    /// For a snapshot: makes the delta that leads to it from `behind` versions earlier. Charges `bytes` for
    /// the patch.
    fn delta(&self, behind: u16, patch: Bytes, bytes: usize) -> Option<Arc<Self>> {
        let Body::Snapshot { key, position, .. } = &self.body else { return None };
        let (key, position) = (key.clone(), *position);
        let base = position.offset.checked_sub(u64::from(behind))?;
        let body = Body::Delta { key, base, position, patch };
        let taken_at = self.taken_at;
        Some(Arc::new(Self { taken_at, ..Self::of(self.id, false, body, None, &self.charge.live(), bytes) }))
    }

    /// Returns the time at which a shard made the publication; `None` if the shard had no current time.
    pub(crate) fn taken_at(&self) -> Option<Instant> {
        self.taken_at
    }

    /// For a snapshot: returns the delta for a session that is `behind` versions behind; `None` if the
    /// snapshot itself must be sent.
    pub(crate) fn delta_from(&self, behind: u16) -> Option<Arc<Self>> {
        self.version()?.delta_from(behind, self)
    }

    /// For a snapshot: returns the snapshot with the reason why it isn't a delta. Sessions share it.
    pub(crate) fn with_reason(&self, reason: SnapshotReason) -> Option<Arc<Self>> {
        let Body::Snapshot { key, position, state, document, snapshot_reason: None } = &self.body else {
            return None;
        };
        Some(self.encodings.with_reason(reason, || {
            let (key, document) = (key.clone(), document.clone());
            let snapshot_reason = Some(reason);
            let body = Body::Snapshot { key, position: *position, state: *state, snapshot_reason, document };
            // The document's bytes are already counted.
            let taken_at = self.taken_at;
            Arc::new(Self { taken_at, ..Self::of(self.id, false, body, None, &self.charge.live(), 0) })
        }))
    }

    /// Returns the patches of a snapshot, if it has any.
    pub(crate) fn version(&self) -> Option<&Version<F>> {
        self.version.as_deref()
    }

    /// Returns the id: unique in the process, and never 0. Another process is very unlikely to draw the same
    /// id. A snapshot and its deltas have the same id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns `true` if a reconnecting client may name it as the last publication that it received: a
    /// message that isn't volatile, if [recovery](crate::Options::recovery) is enabled. A format that sends
    /// ids to clients sends only the ids of such publications, because no others can be found again.
    pub fn is_recoverable(&self) -> bool {
        self.recoverable
    }

    /// Returns the content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the position in the topic, if it has one.
    pub(crate) fn position(&self) -> Option<Position> {
        match &self.body {
            Body::Message { position, .. } => *position,
            Body::Snapshot { position, .. } | Body::Delta { position, .. } => Some(*position),
            Body::State { .. } | Body::Presence { .. } => None,
        }
    }

    /// Returns the encoding for `format`. Calls `encode` if the encoding is neither made nor begun. Never
    /// waits for another core.
    ///
    /// # Panics
    /// If `format` is not below [`FORMATS_MAX`].
    pub fn encoded(&self, format: FormatId, encode: impl FnOnce(&Self) -> Option<F>) -> Encoded<F>
    where
        F: Clone,
    {
        assert!(usize::from(format.0) < FORMATS_MAX, "formats are numbered below {FORMATS_MAX}");
        match self.encodings.begin(format) {
            Lookup::Made(frame) => Encoded::Shared(frame, false),
            Lookup::Yours => {
                let frame = encode(self);
                self.encodings.set(format, frame.clone());
                Encoded::Shared(frame, true)
            }
            Lookup::InProgress if self.body.len() > OWN_ENCODING_BYTES_MAX => Encoded::InProgress,
            Lookup::InProgress => Encoded::Own(encode(self)),
        }
    }

    /// Returns `true` if a core is making the shared encoding for `format`.
    pub(crate) fn is_being_encoded(&self, format: FormatId) -> bool {
        self.encodings.is_begun(format)
    }

    /// Drops the shared encodings and the deltas. Both are made again on demand.
    pub(crate) fn forget_encodings(&self) {
        self.encodings.forget();
        if let Some(version) = self.version() {
            version.forget_forms();
        }
    }
}

#[cfg(test)]
mod tests;
