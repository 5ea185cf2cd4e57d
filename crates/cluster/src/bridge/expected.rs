//! Rooms that sessions join at the request of other servers, until the data plane has reported which of them have members.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{ShrinkingMap, pop_front};

/// Maximum time for the data plane to report which rooms have members.
const EXPECTED_TIME: Duration = Duration::from_secs(10);
/// Maximum number of rooms in [`Expected`].
const EXPECTED_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct Expected {
    /// The last time at which each room was expected to gain members.
    rooms: ShrinkingMap<Arc<str>, Instant>,
    order: VecDeque<(Instant, Arc<str>)>,
}

impl Expected {
    /// Adds rooms that sessions may join now.
    pub(super) fn add(&mut self, now: Instant, rooms: impl IntoIterator<Item = Arc<str>>) {
        self.expire(now);
        for room in rooms {
            if self.order.len() == EXPECTED_MAX {
                return;
            }
            self.order.push_back((now, room.clone()));
            self.rooms.insert(room, now);
        }
    }

    /// Removes the rooms that were expected for [`EXPECTED_TIME`].
    pub(super) fn expire(&mut self, now: Instant) {
        while self.order.front().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= EXPECTED_TIME)
            && let Some((at, room)) = pop_front(&mut self.order)
        {
            if self.rooms.get(&room) == Some(&at) {
                self.rooms.remove(&room);
            }
        }
    }

    /// Returns `true` if a room was expected to gain members at the last call of [`Self::expire`].
    pub(super) fn contains(&self, room: &str) -> bool {
        self.rooms.contains_key(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_forgotten_in_time() {
        let (mut expected, now) = (Expected::default(), Instant::now());
        let half = EXPECTED_TIME / 2;
        expected.add(now, ["a".into(), "b".into()]);
        expected.add(now + half, ["b".into()]);
        expected.expire(now + EXPECTED_TIME);
        assert_eq!(["a", "b"].map(|room| expected.contains(room)), [false, true]);
        expected.expire(now + EXPECTED_TIME + half);
        assert!(!expected.contains("b"));
    }

    #[test]
    fn names_that_servers_invent_have_a_bound_and_leave_nothing() {
        let (mut expected, now) = (Expected::default(), Instant::now());
        expected.add(now, (0..2 * EXPECTED_MAX).map(|n| n.to_string().into()));
        assert_eq!((expected.rooms.len(), expected.order.len()), (EXPECTED_MAX, EXPECTED_MAX));
        expected.expire(now + EXPECTED_TIME);
        assert_eq!((expected.rooms.len(), expected.order.capacity()), (0, 0));
        assert!(expected.rooms.capacity() <= 1_024);
    }
}
