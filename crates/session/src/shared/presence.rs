//! Presence of rooms, for all cores.

use super::{ControlCommand, Shared};
use crate::ports::Busy;
use std::time::Duration;
use stentor_hub::{PresenceMessage, PresenceOptions, Room, Topic, core_of};

/// Minimum time between two notices about joins and leaves of a room.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);

impl Shared {
    /// Returns `true` if any room can have presence.
    #[inline]
    pub fn has_presence(&self) -> bool {
        !self.initial.options.rooms.presence.rooms.is_empty()
    }

    /// The options of presence for the hub's shards. `None` if no room can have presence.
    pub(super) fn presence_options(&self) -> Option<PresenceOptions> {
        let crate::rule::Presence { rooms, members_max, grace, .. } = &self.initial.options.rooms.presence;
        self.has_presence().then(|| PresenceOptions {
            rooms: rooms.clone(),
            members_max: *members_max,
            grace: *grace,
            interval: NOTICE_INTERVAL,
            has_other_nodes: self.initial.options.broker.is_some(),
        })
    }

    /// Delivers another node's message about the members of a room.
    pub(super) fn put_presence(&self, room: &Room, node: u64, message: PresenceMessage) -> Result<(), Busy> {
        if !self.has_presence() {
            return Ok(());
        }
        let core = core_of(self.seed, self.cores, &Topic::Presence(room.clone()));
        self.inbox(core).put(ControlCommand::Presence(room.clone(), node, message)).map_err(|_| Busy)
    }

    /// Reports that another node is dead.
    pub(super) fn put_lost_node(&self, node: u64) -> Result<(), Busy> {
        if !self.has_presence() {
            return Ok(());
        }
        self.put_together((0..self.cores).map(|core| (core, ControlCommand::LostNode(node))).collect())
    }
}
