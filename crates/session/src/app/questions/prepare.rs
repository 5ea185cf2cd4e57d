//! Clients that join a room whose positions the engine assigns. They wait until this node knows the end of the room's history
//! ([`Hub::handle_prepare`]). So the answer to the client has a position, and the client receives all messages after it.
//!
//! A client waits at most `limits.decision_timeout`, as for a permission, and not at all if too many clients wait.

use super::{Asked, Questions, Refused};
use crate::app::Context;
use crate::encode::Encodings;
use std::collections::BTreeMap;
use std::time::Instant;
use stentor_frame::ConnId;
use stentor_hub::{Hub, Policy, Position, Room, SessionId, SubscribeError, Topic};

/// The rooms of one core that clients wait for.
#[derive(Default)]
pub(super) struct Preparations {
    /// The numbers of the open questions about each room.
    waiting: BTreeMap<Room, Vec<u64>>,
    /// Rooms that the hub no longer needs to keep for a question.
    released: Vec<Room>,
}

impl Preparations {
    pub(super) fn is_quiet(&self) -> bool {
        self.released.is_empty()
    }

    /// Records that a client no longer waits for a room, or has joined it.
    pub(super) fn forget(&mut self, room: Room, number: u64) {
        if let Some(numbers) = self.waiting.get_mut(&room) {
            numbers.retain(|waiting| *waiting != number);
            if numbers.is_empty() {
                self.waiting.remove(&room);
            }
        }
        self.released.push(room);
    }
}

impl Questions {
    /// Prepares a room that a client joins. `asker` is the connection that can wait for the room. Returns `true` if the client will receive all
    /// messages after its answer, `false` if the engine hasn't answered in time or too many clients wait.
    ///
    /// # Errors
    /// The client must wait.
    pub(crate) fn prepare(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        hub: &mut Hub<Encodings>,
        room: &Room,
    ) -> Result<bool, Refused> {
        let Some(conn) = asker.filter(|_| self.has_room()) else {
            let is_prepared = self.prepare_now(hub, room);
            self.unanswered += u64::from(!is_prepared && asker.is_some());
            return Ok(is_prepared);
        };
        if hub.handle_prepare(room) {
            return Ok(true);
        }
        let number = self.tickets.draw();
        self.preparations.waiting.entry(room.clone()).or_default().push(number);
        self.defer(now, conn, Asked::Position(room.clone()), number, None);
        Err(Refused::Pending)
    }

    /// Prepares a room without waiting. Returns `true` if a client that joins it will receive all messages from now on.
    fn prepare_now(&mut self, hub: &mut Hub<Encodings>, room: &Room) -> bool {
        let is_prepared = hub.handle_prepare(room);
        if !is_prepared {
            self.preparations.released.push(room.clone());
        }
        is_prepared
    }

    /// Answers the questions about a room, because sessions can join it now.
    pub(crate) fn prepared(&mut self, room: &Room) {
        for number in self.preparations.waiting.remove(room).unwrap_or_default() {
            self.decide(number, Ok(()));
        }
    }

    /// The next room for which the caller calls [`Hub::handle_release`].
    pub(crate) fn poll_released(&mut self) -> Option<Room> {
        self.preparations.released.pop()
    }
}

impl Context<'_> {
    /// Like [`Questions::prepare`], but a message that can't wait isn't delayed.
    pub(in crate::app) fn prepare(&mut self, room: &Room) -> Result<bool, Refused> {
        match self.scope.asker {
            Some(conn) => self.questions.prepare(self.core.now, Some(conn), self.hub, room),
            None => Ok(true),
        }
    }

    /// Makes a session a member of a room after [`Self::prepare`]. If the room isn't prepared, because the engine didn't
    /// answer in time, the client receives a notice that messages may be missing.
    pub(in crate::app) fn join_prepared(
        &mut self,
        session: SessionId,
        room: &Room,
    ) -> Result<(), SubscribeError> {
        let is_prepared = self.questions.prepare_now(self.hub, room);
        let since = (!is_prepared).then_some(Position::UNKNOWN);
        self.hub.handle_subscribe(session, &Topic::Room(room.clone()), Policy::Queue, since)
    }
}
