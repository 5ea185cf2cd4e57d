//! The newest positions of rooms, which the node compares with the engine's.

use super::room::{Next, RoomState};
use super::{Asked, HEADS_INTERVAL, RETRY_DELAY, Rooms};
use crate::engine::{EngineError, Reply, Request};
use std::collections::VecDeque;
use std::time::Instant;
use stentor_hub::{Position, Room};

/// Maximum number of rooms in a request for newest positions.
const HEADS_MAX: usize = 256;

/// The state of the comparison.
pub(super) struct Heads {
    /// Rooms whose heads must be compared, with their incarnations.
    waiting: VecDeque<(Room, u64)>,
    /// The open request.
    asked: Option<u64>,
    /// The time of the next comparison, or of the next attempt.
    due_at: Option<Instant>,
    random: fastrand::Rng,
}

impl Heads {
    pub(super) fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { waiting: VecDeque::new(), asked: None, due_at: None, random }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due_at
    }
}

impl<P> Rooms<P> {
    /// Begins to compare the heads of all rooms.
    pub(super) fn compare_all(&mut self, now: Instant) {
        let rooms = self.rooms.iter();
        self.heads.waiting = rooms.map(|(room, state)| (room.clone(), state.incarnation)).collect();
        self.compare(now);
    }

    /// Begins or continues the comparison if it is time.
    pub(super) fn compare_due(&mut self, now: Instant) {
        if self.heads.due_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        if self.heads.waiting.is_empty() && self.heads.asked.is_none() {
            self.compare_all(now);
        } else {
            self.compare(now);
        }
    }

    /// Requests the heads of the next rooms.
    fn compare(&mut self, now: Instant) {
        let mut asked = Vec::new();
        while asked.len() < HEADS_MAX
            && let Some((room, incarnation)) = self.heads.waiting.pop_front()
        {
            let state = self.rooms.get(&room).filter(|state| state.incarnation == incarnation);
            if let Some(newest) = state.and_then(RoomState::newest) {
                asked.push((room, incarnation, newest));
            }
        }
        if asked.is_empty() {
            self.heads.asked = None;
            let interval = HEADS_INTERVAL.mul_f64(0.75 + 0.5 * self.heads.random.f64());
            self.heads.due_at = Some(now + interval);
            return;
        }
        let rooms = asked.iter().map(|(room, ..)| room.clone()).collect();
        let number = self.draw();
        (self.heads.asked, self.heads.due_at) = (Some(number), None);
        self.request(number, Asked::Heads(asked), Request::Heads { rooms });
    }

    pub(super) fn handle_heads(
        &mut self,
        now: Instant,
        number: u64,
        asked: Vec<(Room, u64, Position)>,
        reply: Result<Reply, EngineError>,
    ) {
        if self.heads.asked.take_if(|open| *open == number).is_none() {
            return;
        }
        let heads = match reply {
            Ok(Reply::Heads(heads)) if heads.len() == asked.len() => heads,
            _ => {
                let again = asked.into_iter().map(|(room, incarnation, _)| (room, incarnation));
                self.heads.waiting.extend(again);
                self.heads.due_at = Some(now + RETRY_DELAY);
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
