//! Sends a core's messages to rooms: to the members on this node, and through the broker to other nodes.

use crate::encode::Encodings;
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{Answers, Asking, Broadcast, Broker, Busy, IdKey, PublicId, Ticket};
use crate::published::PublishedKeys;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{Data, Emit, Hub, Room, Rooms, Topic};

/// The publisher of a message to a room that the engine orders.
#[derive(Default)]
pub(crate) struct Submitter {
    /// `None` if the publisher doesn't wait for the engine's answer.
    pub(crate) ticket: Option<Ticket>,
    /// The source of the session. `None` if no client published the message.
    pub(crate) source: Option<u64>,
    /// The idempotency key of the message, if it has one: it begins with the user's.
    pub(crate) key: Option<Arc<str>>,
}

/// The way in which a message is passed to the broker.
enum Kind {
    Plain,
    /// To a room that the engine orders.
    Ordered(Submitter),
}

/// Publishes messages of one core. Messages for which the broker has no room wait here, in order, and are charged to the
/// ledger. While messages wait, the core doesn't read from publishing connections, so each connection adds at most the
/// messages that the core had already received.
pub(crate) struct Outlet {
    /// `None` without a cluster and bridges.
    broker: Option<Arc<dyn Broker>>,
    waiting: VecDeque<(Broadcast, Kind)>,
    /// Receives the engine's answers to publishers.
    answers: Arc<dyn Answers>,
    /// `true` if the engine orders rooms with history.
    orders_history: bool,
    /// The key of the ids of this node's sessions.
    id_key: IdKey,
    /// The idempotency keys of publications, which the cores of the node share.
    pub(crate) published: Arc<PublishedKeys>,
    /// Number of publications that were repeated, and weren't published again.
    pub(crate) repeated: Cell<u64>,
    /// `true` if messages still waited after the last call of [`Self::retry`].
    waited: bool,
    /// Number of messages for the broker since the start.
    count: u64,
    charge: Charge,
}

impl Outlet {
    pub(crate) fn new(
        broker: Option<Arc<dyn Broker>>,
        answers: Arc<dyn Answers>,
        ledger: Arc<Ledger>,
        id_key: IdKey,
        published: Arc<PublishedKeys>,
    ) -> Self {
        let charge = Charge::new(ledger, Class::Broker);
        let orders_history = broker.as_ref().is_some_and(|broker| broker.orders_history());
        Self {
            broker,
            answers,
            orders_history,
            id_key,
            published,
            repeated: Cell::new(0),
            waiting: VecDeque::new(),
            waited: false,
            count: 0,
            charge,
        }
    }

    /// Publishes a message of this node to a room.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        hub: &mut Hub<Encodings>,
        now: Instant,
        room: &Room,
        (event, data): (Option<Arc<str>>, Data),
        how: Emit,
    ) {
        if self.broker.is_none() {
            return hub.handle_publish(now, room, event, data, how);
        }
        self.emit(hub, now, &room.clone().into(), (event, data), how, &[]);
    }

    /// Publishes a message of this node to rooms. `except` are sessions that other nodes leave out.
    pub(crate) fn emit(
        &mut self,
        hub: &mut Hub<Encodings>,
        now: Instant,
        rooms: &Rooms,
        (event, data): (Option<Arc<str>>, Data),
        how: Emit,
        except: &[PublicId],
    ) {
        if self.broker.is_none() {
            return hub.handle_emit(now, rooms, event, data, how);
        }
        if let Some(room) = rooms.only().filter(|room| self.is_ordered_elsewhere(hub, room, &how)) {
            return self.submit(room, (event, data), &how, except, Submitter::default());
        }
        let id = hub.draw_id();
        let how = how.identified(id);
        let mut message = message(id, rooms.clone(), event.clone(), data.clone(), &how);
        message.except_sessions = except.to_vec();
        hub.handle_emit(now, rooms, event, data, how);
        self.pass_on(message, Kind::Plain);
    }

    /// Returns `true` if the engine assigns the message's position. If so, members on this node receive the message when the
    /// engine returns it.
    #[inline]
    pub(crate) fn is_ordered_elsewhere(&self, hub: &Hub<Encodings>, room: &Room, how: &Emit) -> bool {
        self.orders_history && !how.volatile && hub.home_of(&Topic::Room(room.clone())).is_some()
    }

    /// Passes the broker a message to a room that the engine orders. `except` are sessions that other nodes leave out.
    pub(crate) fn submit(
        &mut self,
        room: &Room,
        (event, data): (Option<Arc<str>>, Data),
        how: &Emit,
        except: &[PublicId],
        submitter: Submitter,
    ) {
        // The engine's position determines the message's id, so the message has none yet.
        let mut message = message(0, room.clone().into(), event, data, how);
        // The message lists this node's sessions as well, because this node delivers it when the engine returns it.
        let own = how.excepted().iter().map(|(core, session)| PublicId::of(self.id_key, *core, *session));
        message.except_sessions = own.chain(except.iter().copied()).collect();
        message.except_sessions.sort_unstable();
        message.except_sessions.dedup();
        self.pass_on(message, Kind::Ordered(submitter));
    }

    fn pass_on(&mut self, message: Broadcast, kind: Kind) {
        self.count += 1;
        if !self.waiting.is_empty() || self.hand_over(&message, &kind) == Err(Busy) {
            self.charge.add(message.bytes());
            self.waiting.push_back((message, kind));
        }
    }

    fn hand_over(&self, message: &Broadcast, kind: &Kind) -> Result<(), Busy> {
        match (&self.broker, kind) {
            (Some(broker), Kind::Plain) => broker.publish(message),
            (Some(broker), Kind::Ordered(Submitter { ticket, source, key })) => {
                let publisher = ticket.map(|ticket| Asking::new(ticket, &self.answers).later());
                broker.publish_with_history(message, publisher, *source, key.clone())
            }
            (None, _) => Ok(()),
        }
    }

    /// Passes waiting messages to the broker until the broker has no room. Returns `true` if messages wait now and didn't
    /// after the last call, or the other way round.
    pub(crate) fn retry(&mut self) -> bool {
        while let Some((message, kind)) = self.waiting.front()
            && self.hand_over(message, kind).is_ok()
        {
            self.charge.subtract(message.bytes());
            self.waiting.pop_front();
        }
        let waits = !self.waiting.is_empty();
        std::mem::replace(&mut self.waited, waits) != waits
    }

    /// The number of messages that wait for the broker.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of messages for the broker since the start. Callers compare it to see whether an input produced any.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn broker(&self) -> Option<&Arc<dyn Broker>> {
        self.broker.as_ref()
    }
}

fn message(id: u64, rooms: Rooms, event: Option<Arc<str>>, data: Data, how: &Emit) -> Broadcast {
    let (except_rooms, except_sessions) = (how.excepted_rooms().to_vec(), Vec::new());
    Broadcast { id, rooms, except_rooms, except_sessions, event, data, volatile: how.volatile }
}
