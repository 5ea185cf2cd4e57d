//! Publications: what is sent to a topic, and its encodings, each made once per node.

use crate::budget::{Charge, LiveBytes};
use crate::topic::{Key, Room};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// Names a wire format that a publication can be encoded to. The hub gives it no meaning: edge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormatId(pub u8);

/// How many formats there may be.
pub const FORMATS_MAX: usize = 16;

/// Tells one life of a topic's offsets from another: drawn at random when its home core creates it. An
/// offset means something only together with its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(pub u32);

/// A place in a topic: the first publication of an epoch has offset 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Which life of the topic.
    pub epoch: Epoch,
    /// Which publication in it.
    pub offset: u64,
}

/// How a feed is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedState {
    /// The document is as new as its upstream allows.
    Live,
    /// The last good document is kept, but the upstream fails; newer ones may exist.
    Stale,
    /// The upstream said that no newer version will come.
    Ended,
    /// There is no such key, or there never was a document of it.
    Lost,
}

impl FeedState {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Ended => "ended",
            Self::Lost => "lost",
        }
    }
}

/// One version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The bytes to pass on. Where `json` is true: one valid JSON value in UTF-8.
    pub body: Bytes,
    /// Whether `body` may be spliced into JSON as a value.
    pub json: bool,
    /// The media type to serve it with.
    pub content_type: Arc<str>,
}

/// Data of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// One valid JSON value in UTF-8, spliced where a format wants JSON.
    Json(Bytes),
    /// Text in UTF-8.
    Text(Bytes),
    /// Bytes.
    Binary(Bytes),
}

impl Data {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(b) | Self::Text(b) | Self::Binary(b) => b.len(),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a publication says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A message to a room.
    Message {
        /// Where it was sent.
        room: Room,
        /// The event's name, where it has one.
        event: Option<Arc<str>>,
        /// What is said.
        data: Data,
        /// Its place, where the room keeps history.
        position: Option<Position>,
    },
    /// A whole document.
    Snapshot {
        /// Of which feed.
        key: Key,
        /// Its place in the feed.
        position: Position,
        /// How the feed was doing when it was published.
        state: FeedState,
        /// The document.
        document: Arc<Document>,
    },
    /// A feed's state changed, its document didn't.
    State {
        /// Of which feed.
        key: Key,
        /// The new state.
        state: FeedState,
        /// Why, for people.
        reason: Arc<str>,
    },
}

impl Body {
    /// Bytes of what is said, without names and numbers.
    pub fn len(&self) -> usize {
        match self {
            Self::Message { data, .. } => data.len(),
            Self::Snapshot { document, .. } => document.body.len(),
            Self::State { reason, .. } => reason.len(),
        }
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Something sent to a topic, shared by reference by everybody who is owed it. `F` is an encoded frame.
pub struct Publication<F> {
    body: Body,
    encodings: [OnceLock<Option<F>>; FORMATS_MAX],
    _charge: Charge,
}

impl<F> Publication<F> {
    /// Wraps what is to be said; nothing is encoded yet. The body's bytes count in `live`.
    pub fn new(body: Body, live: &LiveBytes) -> Arc<Self> {
        let charge = live.charge(body.len());
        Arc::new(Self { body, encodings: [const { OnceLock::new() }; FORMATS_MAX], _charge: charge })
    }

    /// What it says.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The encoding for `format`, made by `encode` if nobody has yet (a core that races waits). `None`
    /// where the format has no way to say it.
    ///
    /// # Panics
    /// If `format` is not below [`FORMATS_MAX`].
    pub fn encoded(&self, format: FormatId, encode: impl FnOnce(&Body) -> Option<F>) -> Option<&F> {
        self.encodings[usize::from(format.0)].get_or_init(|| encode(&self.body)).as_ref()
    }
}
