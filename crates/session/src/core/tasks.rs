//! The parts of the control plane's tasks that concern rooms.

use super::Protocols;
use crate::ports::Concerned;
use crate::shared::tasks::{RoomsTask, SessionWork, SessionsTask, Task};
use stentor_hub::{Room, Topic};

/// Number of steps for a session that joins or leaves a room, or for a room in a list.
pub const ROOM_STEPS: usize = 8;

/// Maximum number of members that are visited at once.
pub const VISITS_MAX: usize = 512;

impl Protocols {
    /// Returns the rooms that the task's sessions join and that aren't prepared on this core yet.
    pub fn unprepared_rooms(&mut self, task: &Task) -> Vec<Room> {
        let Task::Sessions(SessionsTask { work: SessionWork::Join { topics, concerned, .. }, .. }) = task
        else {
            return Vec::new();
        };
        let topics = topics.iter().filter(|_| *concerned != Concerned::default());
        let rooms = topics.filter_map(|topic| if let Topic::Room(room) = topic { Some(room) } else { None });
        rooms.filter(|room| !self.ex.hub.handle_prepare(room)).cloned().collect()
    }

    /// Continues to list rooms. Returns `true` if the task is finished.
    pub fn work_on_rooms(&mut self, task: &mut RoomsTask, steps: &mut usize) -> bool {
        let RoomsTask { query, next, found, .. } = task;
        while *steps > 0 {
            let visits_max = VISITS_MAX.min(*steps);
            *steps -= visits_max;
            let rest = self.ex.hub.walk_rooms(*next, visits_max, |room, members| {
                let is_asked_for = room.namespace() == query.namespace
                    && !room.is_all_members()
                    && room.name().starts_with(&query.prefix)
                    && room.name() > query.after.as_str();
                if is_asked_for {
                    *steps = steps.saturating_sub(ROOM_STEPS);
                    found.add(room.name(), members, query.limit);
                }
            });
            match rest {
                Some(rest) => *next = rest,
                None => return true,
            }
        }
        false
    }
}
