//! Clients that join a room with history that another node may order. They wait until this node knows the end of the history
//! ([`Hub::handle_prepare`]). So the answer to the client has a position, and the client receives all messages after it.
//!
//! A client waits at most as long as for a permission (`limits.decision_timeout`), and not at all if too many clients wait.

use super::{Asked, Questions, Refused};
use crate::app::Context;
use crate::app::effect::{Effect, ToSession};
use crate::encode::Encodings;
use crate::ports::Access;
use std::collections::HashMap;
use std::time::Instant;
use stentor_hub::{Hub, Policy, Position, Room, SessionId, SubscribeError, Topic};

/// The rooms of one core that clients wait for.
#[derive(Default)]
pub(super) struct Preparations {
    /// The questions about each room that exist.
    waiting: HashMap<Room, Vec<u64>>,
    /// Rooms that the hub no longer needs to keep for a question.
    released: Vec<Room>,
}

impl Preparations {
    pub(super) fn is_quiet(&self) -> bool {
        self.released.is_empty()
    }

    /// Notes that a client doesn't wait for a room any more, or has joined it.
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
    /// Prepares a room that a client of the current connection joins. Returns whether the client will receive all messages after
    /// its answer. `false` if the engine hasn't answered in time, or too many clients wait.
    ///
    /// # Errors
    /// The client must wait.
    pub fn prepare(&mut self, now: Instant, hub: &mut Hub<Encodings>, room: &Room) -> Result<bool, Refused> {
        let asked = Asked::Position(room.clone());
        if let Some(answer) = self.answer_of(self.asker, |other| *other == asked) {
            return match answer {
                Err(Refused::Pending) => Err(Refused::Pending),
                answer => Ok(answer.is_ok()),
            };
        }
        let Some(conn) = self.asker.filter(|_| self.has_room()) else {
            let is_prepared = hub.handle_prepare(room);
            if !is_prepared {
                self.preparations.released.push(room.clone());
                self.unanswered += u64::from(self.asker.is_some());
            }
            return Ok(is_prepared);
        };
        if hub.handle_prepare(room) {
            return Ok(true);
        }
        let number = self.tickets.draw();
        self.preparations.waiting.entry(room.clone()).or_default().push(number);
        self.defer(now, conn, asked, number, None);
        Err(Refused::Pending)
    }

    /// The rooms that a session joins according to the reply to the current event, if the reply has arrived.
    fn rooms_of_reply(&self) -> Vec<Room> {
        let waiting = self.asker.and_then(|conn| self.waiting.get(&conn));
        let questions = waiting.into_iter().flat_map(|waiting| &waiting.questions);
        questions.filter_map(|known| known.reply.as_ref()).flat_map(|reply| reply.join.clone()).collect()
    }

    /// Notes that sessions can join a room now.
    pub fn prepared(&mut self, room: &Room) {
        for number in self.preparations.waiting.remove(room).unwrap_or_default() {
            self.decide(number, Ok(()));
        }
    }

    /// The next room for which the caller calls [`Hub::handle_release`].
    pub fn poll_released(&mut self) -> Option<Room> {
        self.preparations.released.pop()
    }
}

impl Context<'_> {
    /// The position from which a client receives the messages of a topic. In a room, a client without a position waits until the
    /// node knows one. If the engine doesn't answer in time, the client receives a notice that messages may be missing.
    pub(in crate::app) fn position_for(
        &mut self,
        session: SessionId,
        topic: &Topic,
        since: Option<Position>,
    ) -> Result<Option<Position>, Refused> {
        let since = self.allowed_position(session, topic, since)?;
        match topic {
            Topic::Room(room) if since.is_none() && !self.hub.has_joined(session, room) => {
                let is_prepared = self.prepare(room)?;
                Ok((!is_prepared).then_some(Position::UNKNOWN))
            }
            _ => Ok(since),
        }
    }

    /// The position from which a client may receive earlier messages. A client that may not read the history of a room receives
    /// messages from now on, after a notice that messages may be missing.
    fn allowed_position(
        &mut self,
        session: SessionId,
        topic: &Topic,
        since: Option<Position>,
    ) -> Result<Option<Position>, Refused> {
        if since.is_none() || !self.has_identities() || !matches!(topic, Topic::Room(_)) {
            return Ok(since);
        }
        match self.authorize(session, Access::History(topic)) {
            Ok(()) => Ok(since),
            Err(Refused::Denied(_)) => {
                self.effects.push(Effect::Session(session, ToSession::NoHistory(topic.clone())));
                Ok(None)
            }
            Err(Refused::Pending) => Err(Refused::Pending),
        }
    }

    /// As [`Questions::prepare`], but a message that can't wait isn't delayed.
    fn prepare(&mut self, room: &Room) -> Result<bool, Refused> {
        if self.scope.waits { self.questions.prepare(self.core.now, self.hub, room) } else { Ok(true) }
    }

    /// Prepares all rooms that a session joins according to the reply to the current event at the same time.
    ///
    /// # Errors
    /// The client must wait.
    pub(in crate::app) fn prepare_reply(&mut self) -> Result<(), Refused> {
        let rooms = self.questions.rooms_of_reply();
        rooms.iter().map(|room| self.prepare(room).map(|_| ())).fold(Ok(()), Result::and)
    }

    /// Makes a session a member of a room that [`Self::prepare_reply`] has prepared.
    pub(in crate::app) fn join_prepared(
        &mut self,
        session: SessionId,
        room: &Room,
    ) -> Result<(), SubscribeError> {
        let since = if self.prepare(room) == Ok(false) { Some(Position::UNKNOWN) } else { None };
        self.hub.handle_subscribe(session, &Topic::Room(room.clone()), Policy::Queue, since)
    }
}
