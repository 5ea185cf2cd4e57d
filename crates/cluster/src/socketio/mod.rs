//! Messages of Socket.IO's own servers and emitters over Redis, so that Stentor shares rooms with them.
//!
//! | module | follows |
//! |---|---|
//! | [`channels`], [`Broadcast`], [`Request`], [`Response`] | `@socket.io/redis-adapter` 8, `createAdapter`; `@socket.io/redis-emitter` and its ports to other languages |
//! | [`sharded`] | `@socket.io/redis-adapter` 8, `createShardedAdapter` |
//! | [`python`] | `python-socketio` from 5.14 on, `RedisManager` |
//!
//! There is no specification. `crates/cluster/tests/golden` has what the packages publish.
//!
//! Codecs only: no I/O, and no decision about what a message may do. MessagePack is
//! first converted to JSON text with placeholders, and then decoded like JSON.
//!
//! Invariants: no input panics. The size of a decoded message is bounded: the text is at most six times as
//! long as the payload, plus 40 bytes for each of [`ATTACHMENTS_MAX`] attachments, and never longer than
//! [`PAYLOAD_BYTES_MAX`]; there are at most [`ROOMS_MAX`] rooms
//! or [`LIST_MAX`] items of an answer.

mod broadcast;
pub mod channels;
mod content;
mod json_to_msgpack;
mod msgpack_to_json;
mod payload;
pub mod python;
mod request;
mod response;
pub mod sharded;

pub use broadcast::{Broadcast, sender};
pub use content::{Event, Flags, Selection};
pub(crate) use payload::decoded_bytes_max;
pub use request::{Request, RequestBody, Target};
pub use response::{RemoteSession, Response, ResponseBody, SessionDetails};

use crate::engine::PAYLOAD_BYTES_MAX;
pub use stentor_cluster_settings::ClassicParser as Parser;

/// Maximum number of rooms that a message names, and of rooms that it excludes.
pub const ROOMS_MAX: usize = 4096;
/// Maximum number of sessions or rooms in an answer.
pub const LIST_MAX: usize = 100_000;
/// Maximum number of attachments of a message.
pub const ATTACHMENTS_MAX: usize = 1000;

/// Maximum length of a name: of an event, a room, a server, a request. Answers repeat some of them for each client.
pub const NAME_BYTES_MAX: usize = 4096;

/// The reason why a payload was refused. The sender is at fault, except for [`TooLarge`](Self::TooLarge) when
/// encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The payload is neither JSON nor MessagePack, or a required field is missing or has the wrong type.
    #[error("the message is malformed")]
    Malformed,
    /// The payload is larger than 16 MiB, or would be after encoding.
    #[error("the message is larger than {PAYLOAD_BYTES_MAX} bytes")]
    TooLarge,
    /// The values of the payload are nested too deeply.
    #[error("the message is nested deeper than {} levels", stentor_json::DEPTH_MAX)]
    TooDeep,
    /// The message has too many rooms, sessions or attachments.
    #[error("the message names too many rooms, sessions or attachments")]
    TooMany,
    /// The name of an event, a room, a server or a request is too long.
    #[error("a name in the message is longer than {NAME_BYTES_MAX} bytes")]
    NameTooLong,
    /// The message is a broadcast of two elements, without a sender, as packages before 2015 sent it.
    #[error("the message has the format of socket.io-redis before version 1.0; update its sender")]
    Obsolete,
    /// The payload is in Python's pickle format.
    #[error("the message is pickled, as python-socketio before version 5.14 does; update its sender")]
    Pickle,
    /// The message is neither an event nor a known request.
    #[error("the message is of an unknown type")]
    UnknownType,
    /// The event has a name that clients refuse.
    #[error("the message is an event with a reserved name")]
    ReservedEvent,
    /// The message has binary data, which JSON can't represent.
    #[error("the message has binary data, which the JSON parser can't write")]
    NoBinary,
    /// A placeholder names an attachment that the message doesn't have.
    #[error("a placeholder in the message is malformed")]
    BadPlaceholder,
}

impl WireError {
    /// The error's label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Malformed | Self::BadPlaceholder => "malformed",
            Self::TooLarge | Self::TooDeep | Self::TooMany | Self::NameTooLong => "too_large",
            Self::Obsolete | Self::Pickle => "obsolete",
            Self::UnknownType | Self::NoBinary => "unknown_type",
            Self::ReservedEvent => "reserved_event",
        }
    }
}

impl From<stentor_json::Error> for WireError {
    fn from(error: stentor_json::Error) -> Self {
        match error {
            stentor_json::Error::TooDeep(_) => Self::TooDeep,
            _ => Self::Malformed,
        }
    }
}
