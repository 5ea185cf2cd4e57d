//! Values in entries.

use bytes::Bytes;
use smallvec::SmallVec;
use std::fmt;

/// Number of a session on one link. Stentor assigns it in OPEN or RESUME, and doesn't use it again on this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// Number of a namespace on one link, assigned by the worker with NSP and valid in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(pub u16);

impl Namespace {
    /// In RELEASED: the end of the session's list.
    pub const END: Self = Self(u16::MAX);
}

/// A name: of a room, a namespace, a socket or a transport. At most 65,535 bytes.
pub type Name = Box<str>;

/// Names, at most 65,535.
pub type Names = Vec<Name>;

/// One or more messages that belong together: a packet with its attachments. At most 65,535.
pub type Messages = SmallVec<[Message; 1]>;

/// An Engine.IO message. Less than 2 GiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// UTF-8.
    Text(Bytes),
    /// Any bytes.
    Binary(Bytes),
}

impl Message {
    /// The content.
    pub fn data(&self) -> &Bytes {
        match self {
            Self::Text(data) | Self::Binary(data) => data,
        }
    }
}

/// A valid JSON text.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Json {
    /// Checks a text. `None` if it isn't a JSON value.
    pub fn new(text: impl Into<Box<str>>) -> Option<Self> {
        let text = text.into();
        stentor_json::check(&text).is_ok().then_some(Self(text))
    }

    /// Depth of arrays and objects: 0 for a text, 1 for `{}`. At most [`stentor_json::DEPTH_MAX`].
    pub fn depth(&self) -> usize {
        stentor_json::depth(self.0.as_bytes())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The change that a SELECT makes to the selected sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The sockets join rooms.
    Join,
    /// The sockets leave rooms.
    Leave,
    /// The sockets are disconnected.
    Disconnect,
}
