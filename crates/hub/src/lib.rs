//! Who is subscribed to what, and what they are owed; no I/O.
//!
//! A [`Hub`] is one core's shard. It takes what happens through `handle_*` and hands out what follows
//! through `poll_*` and [`Hub::take`]. It knows no client protocol: an [`Encoder`] makes frames, and a
//! format is a number. It has no clock, no thread, no socket and no random source of its own.

mod budget;
mod disconnect;
mod dispatch;
mod history;
mod outbox;
mod publication;
mod session;
mod shard;
mod topic;

pub use budget::{Charge, Counters, LiveBytes};
pub use disconnect::Disconnect;
pub use dispatch::{CORES_MAX, CoreId, Current, Dispatch, Emit};
pub use history::HistoryLimits;
pub use publication::{Body, Data, Document, Epoch, FORMATS_MAX, FeedState, FormatId, Position, Publication};
pub use session::{Encoder, Policy, SessionId};
pub use shard::{Hub, Notice, Options, SubscribeError, core_of};
pub use topic::{KEY_BYTES_MAX, Key, KeyError, ROOM_BYTES_MAX, Room, RoomError, Topic};
