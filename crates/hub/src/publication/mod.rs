//! Publications: what is sent to a topic, and its encodings, each made once per node.

mod encodings;
mod version;

pub use version::Patch;
pub(crate) use version::{PatchHistory, StoredPatch};

use crate::budget::{Charge, LiveBytes};
use crate::key::Key;
use crate::topic::Room;
use bytes::Bytes;
use encodings::{Encodings, Lookup};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use version::Version;

/// Names a wire format that a publication can be encoded to. The hub gives it no meaning: edge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormatId(pub u8);

/// How many formats there may be.
pub const FORMATS_MAX: usize = 64;

/// Tells apart two incarnations of a topic's offsets: drawn at random by whoever assigns the offsets. An offset has a
/// meaning only together with its epoch. Below 2^53, so that it is exact in JavaScript.
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
    /// Which publication in it.
    pub offset: u64,
}

impl Position {
    /// The position of a client in a room, while it isn't known. The client gets a [`Notice::Gap`](crate::Notice::Gap), as with a
    /// position that the room's history doesn't have. New messages follow.
    pub const UNKNOWN: Self = Self { epoch: Epoch::NONE, offset: u64::MAX };

    /// Whether a publication at `other` isn't news after one at this position.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.epoch == other.epoch && self.offset >= other.offset
    }
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedState {
    /// The document is as new as its upstream allows.
    Live,
    /// The last good document is kept, but the upstream fails; newer ones may exist.
    Stale,
    /// The upstream has announced that no newer version will come.
    Complete,
    /// The key doesn't exist, or never had a document.
    NotFound,
}

impl FeedState {
    /// The word in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Complete => "complete",
            Self::NotFound => "not_found",
        }
    }
}

/// Why a client that named its version is sent a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotReason {
    /// Its version is of another epoch: the server or the feed has restarted.
    Epoch,
    /// The patches don't reach back that far, or would be longer than the document.
    History,
}

impl SnapshotReason {
    /// The word in the protocol.
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
    /// The bytes to pass on. Where `json` is true: one valid JSON value in UTF-8.
    pub body: Bytes,
    /// Whether `body` may be inserted into JSON as a value.
    pub json: bool,
    /// The media type to serve it with.
    pub content_type: Arc<str>,
}

/// Data of a message.
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
        /// Valid JSON values in UTF-8, joined by commas; perhaps none. A placeholder stands for an attachment:
        /// `{"_placeholder":true,"num":0}` for the first.
        json: Bytes,
        /// The attachments that placeholders stand for, in order.
        attachments: Arc<[Bytes]>,
    },
}

impl Data {
    /// Length in bytes, attachments included.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(b) | Self::Text(b) | Self::Binary(b) => b.len(),
            Self::Arguments { json, attachments } => {
                json.len() + attachments.iter().map(Bytes::len).sum::<usize>()
            }
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The content of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A message to a room.
    Message {
        /// The room that it was sent to; of several rooms, the first. For a message to one session, any room of its
        /// namespace.
        room: Room,
        /// The event's name, if it has one.
        event: Option<Arc<str>>,
        /// The data.
        data: Data,
        /// Its position, if the room keeps history.
        position: Option<Position>,
    },
    /// A whole document.
    Snapshot {
        /// The feed.
        key: Key,
        /// Its position in the feed.
        position: Position,
        /// The feed's state when it was published.
        state: FeedState,
        /// Why it is not a delta, for a session that could have expected one: it has reconnected.
        snapshot_reason: Option<SnapshotReason>,
        /// The document.
        document: Arc<Document>,
    },
    /// A patch that leads to a document from an earlier one. The feed is live. A format without deltas is sent the
    /// snapshot.
    Delta {
        /// The feed.
        key: Key,
        /// The offset of the document that it applies to, of the same epoch.
        base: u64,
        /// The position of the document that it leads to.
        position: Position,
        /// A JSON Patch (RFC 6902).
        patch: Bytes,
    },
    /// A feed's state changed, its document didn't.
    State {
        /// The feed.
        key: Key,
        /// The new state.
        state: FeedState,
        /// The reason, for people.
        reason: Arc<str>,
    },
    /// Who has joined and left a room.
    Presence {
        /// The room.
        room: Room,
        /// The notice as JSON.
        notice: Bytes,
    },
}

impl Body {
    /// Bytes of the content, with the event's name, which a client may choose, and without other names and numbers.
    pub fn len(&self) -> usize {
        match self {
            Self::Message { event, data, .. } => event.as_deref().map_or(0, str::len) + data.len(),
            Self::Snapshot { document, .. } => document.body.len(),
            Self::Delta { patch, .. } => patch.len(),
            Self::State { reason, .. } => reason.len(),
            Self::Presence { notice, .. } => notice.len(),
        }
    }

    /// Whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Something sent to a topic, shared by all sessions that receive it. `F` is an encoded frame.
pub struct Publication<F> {
    id: u64,
    recoverable: bool,
    body: Body,
    encodings: Encodings<F>,
    /// For a snapshot.
    shapes: Option<Box<Shapes<F>>>,
    charge: Charge,
    /// When a shard made it.
    taken_at: Option<Instant>,
}

/// Other forms of a snapshot.
struct Shapes<F> {
    /// If a patch leads to it.
    version: Option<Version<F>>,
    /// With the reason why it isn't a delta, for each reason.
    with_reason: [OnceLock<Arc<Publication<F>>>; 2],
}

/// The result of requesting an encoding. The inner value is `None` if the format can't represent the publication.
#[derive(Debug, PartialEq, Eq)]
pub enum Encoded<F> {
    /// The shared encoding, and whether the caller made it.
    Shared(Option<F>, bool),
    /// An encoding for the caller alone, made while another core makes the shared one.
    Own(Option<F>),
    /// Another core is making it, until [`Publication::is_being_encoded`] is false.
    InProgress,
}

/// Largest body that a core encodes for itself while another core makes the shared encoding. For small bodies this is
/// cheaper than waiting.
pub const OWN_ENCODING_BYTES_MAX: usize = 4096;

impl<F> Publication<F> {
    /// A publication that isn't encoded yet. The body's bytes, and the memory to keep them, count in `live`. Shards
    /// create their publications themselves: this is for tests of encoders.
    pub fn new(id: u64, recoverable: bool, body: Body, live: &LiveBytes) -> Arc<Self> {
        let bytes = body.len();
        Arc::new(Self::of(id, recoverable, body, None, live, bytes))
    }

    /// A publication that a shard makes at this time.
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
        let is_snapshot = matches!(body, Body::Snapshot { snapshot_reason: None, .. });
        let shapes = is_snapshot.then(|| Box::new(Shapes { version, with_reason: Default::default() }));
        Self { id, recoverable, body, encodings: Encodings::new(), shapes, charge, taken_at: None }
    }

    /// A snapshot that `operations` lead to from the version before. They are the last of `past`.
    pub(crate) fn with_patches(
        taken_at: Option<Instant>,
        id: u64,
        body: Body,
        operations: Bytes,
        past: PatchHistory,
        live: &LiveBytes,
    ) -> Arc<Self> {
        let bytes = body.len();
        let version = Some(Version::new(operations, past));
        Arc::new(Self { taken_at, ..Self::of(id, false, body, version, live, bytes) })
    }

    /// For a snapshot: the patch that leads to it from `behind` versions before. `bytes` of it count.
    fn delta(&self, behind: u16, patch: Bytes, bytes: usize) -> Option<Arc<Self>> {
        let Body::Snapshot { key, position, .. } = &self.body else { return None };
        let (key, position) = (key.clone(), *position);
        let base = position.offset.checked_sub(u64::from(behind))?;
        let body = Body::Delta { key, base, position, patch };
        let taken_at = self.taken_at;
        Some(Arc::new(Self { taken_at, ..Self::of(self.id, false, body, None, &self.charge.live(), bytes) }))
    }

    /// When a shard made it. `None`: the shard knew no time.
    pub(crate) fn taken_at(&self) -> Option<Instant> {
        self.taken_at
    }

    /// For a snapshot: what to send to a session that is `behind` versions behind; `None` for the snapshot itself.
    pub(crate) fn delta_from(&self, behind: u16) -> Option<Arc<Self>> {
        self.version()?.delta_from(behind, self)
    }

    /// For a snapshot: the snapshot with the reason why it isn't a delta. Sessions share it.
    pub(crate) fn with_reason(&self, reason: SnapshotReason) -> Option<&Arc<Self>> {
        let Body::Snapshot { key, position, state, document, .. } = &self.body else { return None };
        Some(self.shapes.as_ref()?.with_reason[reason as usize].get_or_init(|| {
            let (key, document) = (key.clone(), document.clone());
            let snapshot_reason = Some(reason);
            let body = Body::Snapshot { key, position: *position, state: *state, snapshot_reason, document };
            // The document's bytes count already.
            let taken_at = self.taken_at;
            Arc::new(Self { taken_at, ..Self::of(self.id, false, body, None, &self.charge.live(), 0) })
        }))
    }

    /// For a snapshot with patches.
    pub(crate) fn version(&self) -> Option<&Version<F>> {
        self.shapes.as_ref()?.version.as_ref()
    }

    /// Its id: unique in the process, and never 0. Another process hardly draws the same. A snapshot and its deltas
    /// have the same id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether a reconnecting client may name it as the last that it received: a message that isn't volatile, if
    /// [recovery](crate::Options::recovery) is on. A format that sends ids to clients sends these only, because no
    /// other can be found again.
    pub fn is_recoverable(&self) -> bool {
        self.recoverable
    }

    /// Its content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Its position in the topic, if it has one.
    pub(crate) fn position(&self) -> Option<Position> {
        match &self.body {
            Body::Message { position, .. } => *position,
            Body::Snapshot { position, .. } | Body::Delta { position, .. } => Some(*position),
            Body::State { .. } | Body::Presence { .. } => None,
        }
    }

    /// The encoding for `format`, made by `encode` if there is none and nobody has begun to. Never waits for another core.
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

    /// Whether a core is making the shared encoding for `format`.
    pub fn is_being_encoded(&self, format: FormatId) -> bool {
        self.encodings.is_begun(format)
    }

    /// Lets go of the shared encodings and of deltas. Both are made again if they are needed.
    pub(crate) fn forget_encodings(&self) {
        self.encodings.forget();
        if let Some(version) = self.version() {
            version.forget_forms();
        }
    }
}

#[cfg(test)]
mod tests;
