//! Clients that are about to join a room with history that another node may order: they wait until this node knows where the
//! history ends ([`Hub::handle_prepare`]). So the answer that a client gets is a position, and all that is published after it
//! reaches the client.
//!
//! A client doesn't wait longer than for a permission (`limits.decision_timeout`), and not at all if too many wait.

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
    /// The questions about each room that aren't answered or forgotten.
    waiting: HashMap<Room, Vec<u64>>,
    /// Rooms that the hub needn't keep for a question any more.
    released: Vec<Room>,
}

impl Preparations {
    pub(super) fn is_quiet(&self) -> bool {
        self.released.is_empty()
    }

    /// A client doesn't wait for a room any more, or has joined it.
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
    /// A client of the connection that asks is about to join a room. Returns whether it will receive everything that is published after
    /// its answer; `false`: the engine hasn't answered in time, or too many wait.
    ///
    /// # Errors
    /// The client waits.
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

    /// The rooms that a session joins by the reply to the event that is being handled, if the reply is there.
    fn rooms_of_reply(&self) -> Vec<Room> {
        let waiting = self.asker.and_then(|conn| self.waiting.get(&conn));
        let questions = waiting.into_iter().flat_map(|waiting| &waiting.questions);
        questions.filter_map(|known| known.reply.as_ref()).flat_map(|reply| reply.join.clone()).collect()
    }

    /// Sessions can join a room now.
    pub fn prepared(&mut self, room: &Room) {
        for number in self.preparations.waiting.remove(room).unwrap_or_default() {
            self.decide(number, Ok(()));
        }
    }

    /// The next room for which [`Hub::handle_release`] is to be called.
    pub fn poll_released(&mut self) -> Option<Room> {
        self.preparations.released.pop()
    }
}

impl Context<'_> {
    /// The position from which a client receives what is published in a topic. In a room, a client that has none waits until the node
    /// knows one. If the engine doesn't answer in time, the client
    /// receives a notice that messages may be missing.
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

    /// The position from which a client may receive what was published before. A client that may not read the history of a
    /// room receives messages from now on, after a notice that messages may be missing.
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

    /// As [`Questions::prepare`]; a message that can't wait doesn't.
    fn prepare(&mut self, room: &Room) -> Result<bool, Refused> {
        if self.scope.waits { self.questions.prepare(self.core.now, self.hub, room) } else { Ok(true) }
    }

    /// Prepares the rooms that a session joins by the reply to the event that is being handled, all at a time.
    ///
    /// # Errors
    /// The client waits.
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
