//! Who is subscribed to what, and what they are owed; no I/O.

mod publication;
mod topic;

pub use publication::{Body, Data, Document, Epoch, FORMATS_MAX, FeedState, FormatId, Position, Publication};
pub use topic::{KEY_BYTES_MAX, Key, KeyError, ROOM_BYTES_MAX, Room, RoomError, Topic};
