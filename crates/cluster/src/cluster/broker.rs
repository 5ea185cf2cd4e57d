//! Messages that this node sends to others.

use super::Cluster;
use crate::NodeId;
use crate::engine::{Channel, EngineError};
use crate::finish::Finish;
use crate::frame::{Answered, Frame, PresenceFrame, Question};
use crate::metrics::count;
use crate::rooms::Publisher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stentor_hub::{Key, OutgoingPresence, Room, Topic};
use stentor_ports::{
    Broadcast, Broker, Busy, Done, EngineAway, MemberList, MembersQuery, PermissionReply, SocketQuestion,
};

impl Cluster {
    /// Returns `true` if the engine orders the messages of a room.
    pub(crate) fn keeps_history(&self, room: &Room) -> bool {
        self.rooms.keeps_history(room)
    }

    /// Passes a message of a client at the address `source`, or of a backend, to the engine, which assigns its position, unless
    /// it already has a message with the same key. The key's prefix keeps keys of backends, of clients and of nodes apart. Returns
    /// the publisher if the engine has no room.
    pub(crate) fn append(
        &self,
        message: &Broadcast,
        publisher: Option<Publisher>,
        source: Option<u64>,
        key: Option<Arc<str>>,
    ) -> Result<(), Option<Publisher>> {
        let room = message.rooms.first();
        let payload = self.frames.encode(&Channel::from(room.clone()), &Frame::Message(message.clone()));
        self.rooms.publish(room, payload, (publisher, source), key)
    }
}

impl Broker for Cluster {
    fn publish(&self, message: &Broadcast) -> Result<(), Busy> {
        let channel = match message.rooms.only() {
            Some(room) => Channel::from(room.clone()),
            // A node with members of several of the rooms receives the message once.
            None => Channel::Nodes,
        };
        match self.send(channel, &Frame::Message(message.clone())) {
            Ok(()) => {
                count(&self.counters.sent);
                Ok(())
            }
            Err(EngineError::Full) => Err(Busy),
            Err(_) => {
                count(&self.counters.too_large);
                Ok(())
            }
        }
    }

    fn orders_history(&self) -> bool {
        true
    }

    fn id_seed(&self) -> Option<[u64; 2]> {
        Some(self.frames.id_seed(self.node()))
    }

    fn publish_with_history(
        &self,
        message: &Broadcast,
        publisher: Option<PermissionReply>,
        source: Option<u64>,
        key: Option<Arc<str>>,
    ) -> Result<(), Busy> {
        let key = key.map(|key| format!("client:{key}").into());
        self.append(message, publisher.map(Publisher::Client), source, key).map_err(|_| Busy)
    }

    fn find_socket(&self, question: SocketQuestion) -> bool {
        self.begin_to_find(question)
    }

    fn send_presence(&self, message: &OutgoingPresence) {
        let OutgoingPresence { room, to, message } = message.clone();
        let channel = match to {
            Some(node) => Channel::Node(NodeId(node)),
            None => Channel::from(room.clone()),
        };
        // The next presence message about the room repairs a loss.
        let _ = self.send(channel, &Frame::Presence(PresenceFrame { room, message }));
    }

    fn list_members(&self, query: MembersQuery, list: MemberList, done: Done<MemberList>) {
        let finish = Finish::Members { limit: query.limit, done };
        self.survey(None, Question::Members(query), Answered::Members(list), finish);
    }

    fn confirm_history(&self, room: &Room) {
        self.rooms.confirm(room);
    }

    fn confirm_feed(&self, key: &Key) -> u64 {
        self.feeds.confirm(key)
    }

    fn engine_away(&self) -> Option<EngineAway> {
        self.absence.shown()
    }

    fn set_interest(&self, topic: &Topic, has_subscribers: bool) {
        // A feed that the control plane has dropped is reported again.
        let has_changed = self.engine.set_interest(Channel::Topic(topic.clone()), has_subscribers);
        match (has_changed, has_subscribers) {
            (true, true) => _ = self.counters.interest.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.counters.interest.fetch_sub(1, Ordering::Relaxed),
            (false, _) => {}
        }
        if let Topic::Room(room) = topic {
            self.rooms.set_interest(room, has_subscribers);
        }
    }
}
