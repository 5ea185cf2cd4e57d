//! Presence of rooms, for all cores.

use super::Shared;
use std::time::Duration;
use stentor_hub::PresenceOptions;

/// Minimum time between two notices about joins and leaves of a room.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);

impl Shared {
    /// Returns `true` if any room can have presence.
    #[inline]
    pub fn has_presence(&self) -> bool {
        !self.initial.rooms.presence.rooms.is_empty()
    }

    /// The options of presence for the hub's shards. `None` if no room can have presence.
    pub(super) fn presence_options(&self) -> Option<PresenceOptions> {
        let crate::rule::Presence { rooms, members_max, grace, .. } = &self.initial.rooms.presence;
        self.has_presence().then(|| PresenceOptions {
            rooms: rooms.clone(),
            members_max: *members_max,
            grace: *grace,
            interval: NOTICE_INTERVAL,
            has_other_nodes: self.initial.broker.is_some(),
        })
    }
}
