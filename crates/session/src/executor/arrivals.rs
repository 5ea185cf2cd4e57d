//! Sockets of other nodes whose clients have reconnected to this node, until the sockets arrive.
//!
//! A socket joins its rooms here before the other node is asked for the missed messages, so this core's log has all
//! messages published in between. **Bounds.** There are at most as many sockets as questions (`limits.decisions_max`). A
//! socket ends with its question, at the latest at the next tick.

use super::Executor;
use crate::app::{Decided, HandlerScope, Refused};
use crate::encode::{Encoding, parse_offset};
use crate::identity::{ClientId, End, Owner, Sid};
use crate::ports::{
    Claimant, Denial, Identity, MOVING_BYTES_MAX, MOVING_MESSAGES_MAX, MOVING_TOPICS_MAX, MovingSocket,
    MovingSubscription, Pid, SocketName, SocketRequest,
};
use crate::recovery::Arrival;
use std::collections::BTreeMap;
use std::sync::Arc;
use stentor_frame::ConnId;
use stentor_hub::{Body, KNOWN_MAX, Key, MissedMessage, Position, Room, SessionId, Topic};

// The messages that a socket has missed are among those that its node knows, so none that departs has missed more.
const _: () = assert!(KNOWN_MAX <= MOVING_MESSAGES_MAX);

/// The id of the last message that a client says it has received, `Some(None)` if it names none. `None` if the offset is
/// invalid.
pub(super) fn last_of(offset: Option<&str>) -> Option<Option<u64>> {
    match offset.map(parse_offset) {
        None | Some(Some(0)) => Some(None),
        Some(Some(offset)) => Some(Some(offset)),
        Some(None) => None,
    }
}

impl Executor {
    /// Looks on other nodes for a socket that this core doesn't have, for a client on the connection `conn`. Returns the number of the question if the socket has
    /// arrived, `None` if it can't be found. `decided` is the decision for which the client waited, if any.
    ///
    /// # Errors
    /// The answer is pending.
    pub(crate) fn find_socket(
        &mut self,
        conn: ConnId,
        pid: Sid,
        offset: Option<&str>,
        namespace: &str,
        identity: Option<&Identity>,
        decided: Option<Decided>,
    ) -> Result<Option<u64>, Refused> {
        let Self { questions, outlet, recovery, context, .. } = self;
        let (Some(broker), None) = (outlet.broker(), recovery.slot_of(pid)) else { return Ok(None) };
        let Some(last) = last_of(offset) else { return Ok(None) };
        let claimant = Claimant::new(identity);
        let name = SocketName { pid: Pid(pid), namespace: namespace.into(), last, claimant };
        questions.find_socket(context.now, conn, name, decided, |question| broker.find_socket(question))
    }

    /// Announces a socket that a connection waits for: the socket joins its rooms with a session of its own. Returns
    /// `false` if the connection no longer waits, or if the socket isn't acceptable.
    pub fn expect_socket(&mut self, number: u64, socket: &MovingSocket) -> bool {
        let Some(SocketName { pid, namespace, .. }) = self.questions.awaited_socket(number) else {
            return false;
        };
        let Ok(room) = Room::all_members(namespace) else { return false };
        let pid = pid.0;
        let is_allowed = |subscription: &MovingSubscription| match &subscription.topic {
            Topic::Room(of) | Topic::Presence(of) => of.namespace() == room.namespace(),
            Topic::Feed(_) => room.namespace() == "/",
        };
        let is_taken = |(core, session)| core == self.context.core && self.hub.tag(session).is_some();
        if self.recovery.arrivals.contains(number)
            || !socket.subscriptions.iter().all(is_allowed)
            || socket.id.decode(self.shared.ids.key).is_some_and(is_taken)
        {
            return false;
        }
        // The session gets the encoding of the client's connection when the client adopts the socket.
        let session = self.hub.handle_open(Encoding::MOVED_SOCKET.into(), 0);
        let slot = self.recovery.expect(session, room, pid, socket.id);
        self.hub.set_tag(session, Owner::Socket(slot).to_tag());
        let is_ready = self.hub.handle_suspend(session) && self.subscribe_moved(session, socket);
        if is_ready {
            self.recovery.arrivals.insert(number, slot, session);
        } else {
            self.end_moved(slot, session);
        }
        is_ready
    }

    /// Subscribes a session to the topics of its socket. Returns `false` if a limit is reached.
    fn subscribe_moved(&mut self, session: SessionId, socket: &MovingSocket) -> bool {
        socket.subscriptions.iter().all(|MovingSubscription { topic, options, .. }| {
            self.hub.handle_subscribe(session, topic, *options, None).is_ok()
        })
    }

    /// Delivers a socket that a connection waits for, or `None` if no node has the socket.
    pub fn deliver_socket(&mut self, number: u64, socket: Option<MovingSocket>) {
        if self.questions.awaited_socket(number).is_none() {
            return;
        }
        let has_arrived = socket.is_some_and(|socket| self.recovery.arrivals.deliver(number, socket));
        self.questions.decide(number, if has_arrived { Ok(()) } else { Err(Denial::UNAVAILABLE) });
    }

    /// Gives a client the socket that has arrived, and schedules the messages that the client missed after `offset`, in
    /// `encoding`. Returns the socket's slot and session.
    pub fn adopt(
        &mut self,
        client: ClientId,
        number: u64,
        offset: Option<&str>,
        encoding: Encoding,
        source: u64,
        identity: Option<Arc<Identity>>,
    ) -> Option<(usize, SessionId)> {
        let Arrival { slot, session, socket } = self.recovery.arrivals.remove(number)?;
        let room = self.recovery.room_of(slot).cloned();
        let claimant = Claimant::new(identity.as_deref());
        let socket = socket.filter(|socket| claimant.may_have(socket.principal.as_ref()));
        if let (Some(socket), Some(room), Some(last)) = (socket, room, last_of(offset))
            && self.resubscribe(session, &socket)
            && self.identify_moved(session, identity, &socket.subscriptions)
        {
            self.set_encoding(session, encoding);
            self.count_session(session, source);
            let MovingSocket { subscriptions, missed, known, .. } = socket;
            for MovingSubscription { topic, position, .. } in subscriptions {
                if let (Topic::Feed(key), Some(position)) = (topic, position) {
                    self.hub.handle_may_have(session, &key, position);
                }
            }
            let (now, known) = (self.context.now, known.into_iter().collect());
            if self.hub.handle_arrival(now, session, &room, last, missed, &known).is_ok() {
                self.metrics().recovered.add(1);
                self.recovery.adopt(slot, client);
                return Some((slot, session));
            }
        }
        self.metrics().recoveries_failed.add(1);
        self.end_moved(slot, session);
        None
    }

    /// Joins and leaves the topics that the socket has joined and left on the other node since [`Self::expect_socket`]. Returns
    /// `false` if a limit is reached.
    fn resubscribe(&mut self, session: SessionId, socket: &MovingSocket) -> bool {
        for (topic, _) in self.hub.subscriptions_of(session) {
            if !socket.subscriptions.iter().any(|kept| kept.topic == topic) {
                self.hub.handle_unsubscribe(session, &topic);
            }
        }
        self.subscribe_moved(session, socket)
    }

    /// Closes the session of a socket that has moved to another node, or that arrived from one and isn't used. Lists don't show
    /// this end: the socket lives on the other node, or this node no longer knows its id.
    fn end_moved(&mut self, slot: usize, session: SessionId) {
        self.recovery.remove(slot);
        self.close_unlisted(session);
    }

    /// Ends sockets that arrived too late, or whose clients have disconnected.
    pub fn end_unclaimed_arrivals(&mut self) {
        let questions = &self.questions;
        let unclaimed = self.recovery.arrivals.numbers().filter(|number| !questions.waiting.knows(*number));
        for number in unclaimed.collect::<Vec<u64>>() {
            if let Some(Arrival { slot, session, .. }) = self.recovery.arrivals.remove(number) {
                self.end_moved(slot, session);
            }
        }
    }

    /// Answers another node's request for a socket of this core, whose client has reconnected there. Returns `None` if this core
    /// doesn't have the socket, or the socket is of another user than that client.
    pub fn release_socket(
        &mut self,
        SocketName { pid, namespace, last, claimant }: &SocketName,
        request: SocketRequest,
    ) -> Option<MovingSocket> {
        let slot = self.recovery.slot_of(pid.0)?;
        let socket = self.recovery.get(slot).filter(|socket| socket.room.namespace() == &**namespace)?;
        let session = socket.session;
        let identities = &self.questions.identities;
        let principal = identities.get(session).and_then(|identity| identity.principal.clone());
        if !claimant.may_have(principal.as_ref()) {
            return None;
        }
        let positions: BTreeMap<Key, Position> = self.hub.feed_positions(session).into_iter().collect();
        let subscriptions = self.hub.subscriptions_of(session).into_iter().map(|(topic, options)| {
            // Without identities, subscriptions that clients requested aren't recorded.
            let is_granted = match &topic {
                Topic::Room(room) if room.is_all_members() => false,
                // Only clients themselves subscribe to presence.
                Topic::Presence(_) => true,
                topic => !identities.is_on() || identities.is_granted(session, topic),
            };
            let position = if let Topic::Feed(key) = &topic { positions.get(key).copied() } else { None };
            MovingSubscription { topic, options, position, is_granted }
        });
        let subscriptions: Vec<MovingSubscription> = subscriptions.collect();
        // The socket may have joined rooms since `Look` and `Describe`. It then stays, and waits for its client.
        if subscriptions.len() > MOVING_TOPICS_MAX {
            return None;
        }
        let mut moving = MovingSocket {
            id: self.public_id(session),
            principal,
            subscriptions,
            missed: Vec::new(),
            known: Vec::new(),
        };
        match request {
            SocketRequest::Look => {}
            SocketRequest::Describe => {
                if let Some(client) = self.recovery.client_of(slot) {
                    let is_kept = self.suspend(slot, session, End::TakenOver);
                    if !is_kept {
                        self.close_session(session, End::TakenOver);
                    }
                    self.notify_app(HandlerScope::default(), |app, ctx| app.closed(ctx, session));
                    self.end_client(client, End::TakenOver);
                    if !is_kept {
                        return None;
                    }
                }
            }
            // The client may have reconnected to this node since `Describe`.
            SocketRequest::Take if !self.recovery.is_suspended(slot) => return None,
            SocketRequest::Take => {
                let Ok(departure) = self.hub.handle_departure(session, *last, MOVING_BYTES_MAX) else {
                    self.end_suspended(slot, End::TakenOver);
                    return None;
                };
                self.report_departure(session);
                self.end_moved(slot, session);
                let missed = departure.missed.into_iter().filter_map(|(publication, is_direct)| {
                    let Body::Message { event, data, .. } = publication.body() else { return None };
                    let (event, data) = (event.clone(), data.clone());
                    Some(MissedMessage { id: publication.id(), is_direct, event, data })
                });
                (moving.missed, moving.known) = (missed.collect(), departure.known);
            }
        }
        Some(moving)
    }
}
