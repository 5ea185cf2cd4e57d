//! The newest positions of rooms, which the node compares with the engine's.

use super::room::{Next, RoomState};
use super::{Asked, HEADS_INTERVAL, HEADS_MAX, RETRY_DELAY, Rooms};
use crate::engine::{EngineError, Reply, Request};
use std::time::Instant;
use stentor_hub::{Position, Room};

impl<P> Rooms<P> {
    /// Begins to compare the heads of all rooms.
    pub(super) fn compare_all(&mut self, now: Instant) {
        self.to_compare = self.rooms.iter().map(|(room, state)| (room.clone(), state.incarnation)).collect();
        self.compare(now);
    }

    /// Requests the heads of the next rooms.
    pub(super) fn compare(&mut self, now: Instant) {
        let mut asked = Vec::new();
        while asked.len() < HEADS_MAX
            && let Some((room, incarnation)) = self.to_compare.pop_front()
        {
            let state = self.rooms.get(&room).filter(|state| state.incarnation == incarnation);
            if let Some(newest) = state.and_then(RoomState::newest) {
                asked.push((room, incarnation, newest));
            }
        }
        if asked.is_empty() {
            self.comparing = None;
            let interval = HEADS_INTERVAL.mul_f64(0.75 + 0.5 * self.random.f64());
            self.compare_at = Some(now + interval);
            return;
        }
        let rooms = asked.iter().map(|(room, ..)| room.clone()).collect();
        let number = self.draw();
        self.comparing = Some(number);
        self.compare_at = None;
        self.request(number, Asked::Heads(asked), Request::Heads { rooms });
    }

    pub(super) fn handle_heads(
        &mut self,
        now: Instant,
        asked: Vec<(Room, u64, Position)>,
        reply: Result<Reply, EngineError>,
    ) {
        let heads = match reply {
            Ok(Reply::Heads(heads)) if heads.len() == asked.len() => heads,
            _ => {
                let again = asked.into_iter().map(|(room, incarnation, _)| (room, incarnation));
                again.for_each(|again| self.to_compare.push_back(again));
                self.compare_at = Some(now + RETRY_DELAY);
                return;
            }
        };
        for ((room, incarnation, newest), head) in asked.into_iter().zip(heads) {
            self.change(&room, |state, news| match state.incarnation == incarnation {
                true => state.handle_head(newest, head, news),
                false => Next::Idle,
            });
        }
        self.compare(now);
    }
}
