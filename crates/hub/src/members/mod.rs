//! Presence: who is in a room. Off unless a room's name begins with one of the configured prefixes.
//!
//! ```text
//!  sessions' core                 home core of the room's presence             other nodes
//!  ──────────────                 ────────────────────────────────             ───────────
//!  changes ── PresenceChange ──►  members ── notices, 100 ms ──► subscribers of Topic::Presence
//!                                    ▲ └──── Delta, Snapshot, Current ──────►  (only if one of them watches)
//!                                    └────── Watch, then their answers ◄─────
//! ```
//!
//! A core reports its own sessions as levels ([`changes`]): what waits for the home core is bounded by the sessions whose
//! membership differs from what the home core was told, however often they join and leave. The home core keeps the members
//! ([`room`]) and notifies the subscribers of [`Topic::Presence`](crate::Topic::Presence) of changes, at most once per interval.
//!
//! **Several nodes.** A node with such subscribers *watches* the room: it says so to the nodes with members, at once and every
//! [`WATCH_INTERVAL`](crate::presence::WATCH_INTERVAL), together with the version that it has of each. A node that is watched publishes its changes for
//! [`LEASE`](crate::presence::LEASE), each with the versions before and after, and answers a `Watch` that names another version with all its members. So a
//! lost message is repaired by the next one. A node that doesn't answer for [`CONFIRM_TIMEOUT`](crate::presence::CONFIRM_TIMEOUT) has left, and so has one that the
//! cluster's registry reports.
//!
//! **Guarantees.** When nothing changes any more and all messages arrive, each watcher knows the same members. Until then
//! members may be missing or be listed for longer. While nodes can't reach each other, each side shows its own members only.

mod changes;
mod room;
mod table;

pub use changes::MembershipChange;
pub use table::OutgoingPresence;

use crate::presence::PresenceOptions;
use crate::topic::Room;
use changes::Changes;
use table::PresenceTable;

/// A shard's presence.
pub(crate) struct Presence {
    pub(crate) changes: Changes,
    /// Rooms with their home here whose presence may have got its first subscriber, or lost its last one.
    pub(crate) subscribers_changed: Vec<Room>,
    pub(crate) table: PresenceTable,
}

impl Presence {
    pub(crate) fn new(options: PresenceOptions, cores: usize, seed: [u64; 2]) -> Box<Self> {
        Box::new(Self {
            changes: Changes::new(cores, seed),
            subscribers_changed: Vec::new(),
            table: PresenceTable::new(options, seed),
        })
    }
}
