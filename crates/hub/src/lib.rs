//! Subscriptions, ordering, delivery and history; no I/O.
//!
//! A [`Hub`] is one core's shard: `handle_*` in, `poll_*` and [`Hub::take`] out. It knows no client protocol:
//! an [`Encoder`] makes frames, and a format is a number. It has no clock, thread, socket or random source of
//! its own.
//!
//! | modules | contents |
//! |---|---|
//! | `shard`, `options`, `notice`, `select` | the interface: options, inputs, outputs |
//! | `interest`, `dispatch`, `outgoing` | the cores with members of each topic, and the messages between cores |
//! | `broadcast`, `feed`, `recipients` | the path of a publication |
//! | `cluster`, `awaiting`, `preparation` | rooms and feeds that other nodes order |
//! | `topics`, `session`, `sources`, `subscription`, `subscriptions` | the tables |
//! | `delivery`, `notices`, `held`, `outbox`, `publication_arena`, `rates` | pending deliveries: the hot path |
//! | `session_events`, `encoding_waiters`, `send_buffers` | sessions with new deliveries, and that must end; the limit of pending deliveries |
//! | `recovery`, `log`, `suspension`, `join_positions` | suspended sessions |
//! | `publication`, `version_lag` | publications, their encodings, and patches from earlier versions |
//! | `recent_encodings` | frees the encodings of documents that are no longer requested |
//! | `presence`, `members`, `membership` | the members of rooms |
//! | `history`, `patches`, `budget` | limits |
//!
//! `tests/model` compares the crate with a simple model.
#![forbid(unsafe_code)]

mod attendance;
mod awaiting;
mod broadcast;
mod budget;
mod chunks;
mod cluster;
mod delivery;
mod disconnect;
mod dispatch;
mod encoder;
mod encoding_waiters;
mod feed;
mod handover;
mod held;
mod history;
mod ids;
mod interest;
mod join_positions;
mod key;
mod latencies;
mod log;
mod members;
mod membership;
mod notice;
mod notices;
mod options;
mod outbox;
mod outgoing;
mod paged_slab;
mod patches;
mod preparation;
mod presence;
mod publication;
mod publication_arena;
mod rates;
mod recent_encodings;
mod recipients;
mod recovery;
mod select;
mod send_buffers;
mod session;
mod session_events;
mod session_id;
mod shard;
mod shrinking;
mod sources;
mod subscription;
mod subscriptions;
mod suspension;
mod topic;
mod topics;
mod version_lag;

pub use budget::{Charge, Counters, Footprint, LiveBytes};
pub use chunks::Chunks;
pub use cluster::HistoryMessage;
pub use disconnect::Disconnect;
pub use dispatch::{CORES_MAX, CoreId, Current, Dispatch, Emit, Tally};
pub use encoder::Encoder;
pub use handover::{Departure, KNOWN_MAX, MissedMessage};
pub use history::{HistoryLimits, HistoryPart, HistoryStats, Replay, history_limits};
pub use key::{KEY_BYTES_MAX, Key, KeyCharset, KeyError, KeyRule, is_dot_segment, is_escape};
pub use log::{LogStats, RECOVERY_ENTRY_BYTES, RecoveryLimits};
pub use members::{MembershipChange, OutgoingPresence};
pub use notice::{Attendance, Notice, Requester, SubscribeError};
pub use options::Options;
pub use outgoing::Outgoing;
pub use patches::{FeedStats, PatchLimits};
pub use presence::{
    Absence, MEMBERS_LISTED_MAX, MemberId, MembersPage, PresenceChange, PresenceMessage, PresenceNotice,
    PresenceOptions, PresenceStats, RoomMember, User,
};
pub use publication::{
    Body, Data, Document, Encoded, Epoch, FORMATS_MAX, FeedState, FormatId, OWN_ENCODING_BYTES_MAX, Patch,
    Position, Publication, SnapshotReason,
};
pub use recovery::ResumeError;
pub use select::Selection;
pub use session_id::SessionId;
pub use shard::Hub;
pub use shrinking::{ShrinkingMap, pop_front};
pub use subscription::{Policy, SubscribeOptions};
pub use topic::{ROOM_BYTES_MAX, Room, RoomError, Rooms, Topic};
pub use topics::core_of;
