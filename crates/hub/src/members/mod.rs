//! Presence: the members of rooms. Disabled unless a room's name begins with one of the configured prefixes.
//!
//! ```text
//!  sessions' core                 home core of the room's presence             other nodes
//!  ──────────────                 ────────────────────────────────             ───────────
//!  changes ── PresenceChange ──►  members ── notices, 100 ms ──► subscribers of Topic::Presence
//!                                    ▲ └──── Delta, Snapshot, Current ──────►  (only if one of them watches)
//!                                    └────── Watch, then their answers ◄─────
//! ```
//!
//! A core reports the current membership of its own sessions, not each change ([`changes`]). So the number of
//! waiting changes is bounded by the sessions whose membership differs from the last report, however often
//! they join and leave. The home core keeps the members ([`room`]) and notifies the subscribers of
//! [`Topic::Presence`](crate::Topic::Presence) of changes, at most once per interval.
//!
//! **Several nodes.** A node with such subscribers *watches* the room: it sends `Watch` to the nodes with
//! members and to other watching ones, at once and every [`WATCH_INTERVAL`](crate::presence::WATCH_INTERVAL),
//! with the version that it has of each node. A node that receives such a list from another one compares it
//! with its own versions, postpones its own `Watch` to all, and sends one to the other node only. So one node
//! sends the list for all, and messages about a room grow with its nodes, not with their square. A watched node publishes its changes for [`LEASE`](crate::presence::LEASE), each with
//! the versions before and after, and answers a `Watch` with another version with all of its members. The
//! next message therefore repairs a lost one. A node that doesn't answer, and that no list names, for
//! [`CONFIRM_TIMEOUT`](crate::presence::CONFIRM_TIMEOUT) counts as gone, and so does a node that the
//! cluster's registry reports dead.
//!
//! **Guarantees.** Once changes have ended and all messages have arrived, each watcher knows the same
//! members. Until then members may be missing or be listed for too long. While nodes can't reach each other,
//! each side shows its own members only.

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
    /// Rooms with their home here whose presence may have gained its first subscriber or lost its last one.
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
