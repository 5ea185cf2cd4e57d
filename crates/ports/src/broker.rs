//! Several nodes: the port through which a node sends messages and its interest in topics to other nodes.
//!
//! Messages from other nodes enter through [`NodeInbox::receive`](super::NodeInbox::receive), and aren't sent on again.

use super::{Busy, Done, EngineAway, MemberList, MembersQuery, PermissionReply, PublicId, SocketQuestion};
use std::fmt;
use std::sync::Arc;
use stentor_hub::{Data, Key, OutgoingPresence, Room, Rooms, Topic};

/// A message to rooms, as nodes pass it to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// The message's id, the same on all nodes. 0 if the message has none.
    pub id: u64,
    /// Rooms whose members receive the message.
    pub rooms: Rooms,
    /// Rooms whose members are left out.
    pub except_rooms: Vec<Room>,
    /// Sessions that are left out: all that a command names, because an id doesn't prove which node has the session. If the engine
    /// orders the room, the publishing node also lists its sessions that the command doesn't name, such as the publisher.
    pub except_sessions: Vec<PublicId>,
    /// The event's name, if it has one.
    pub event: Option<Arc<str>>,
    /// The content.
    pub data: Data,
    /// `true` if sessions that can't receive the message at once are skipped.
    pub volatile: bool,
}

impl Broadcast {
    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let rooms = self.rooms.iter().count() + self.except_rooms.len();
        let sessions = self.except_sessions.len() * size_of::<PublicId>();
        size_of::<Self>() + self.data.len() + rooms * size_of::<Room>() + sessions
    }
}

/// Sends messages to other nodes. The cores call it on their threads, so it must not block.
///
/// Members on this node receive a message even if the broker can't send it.
pub trait Broker: fmt::Debug + Send + Sync {
    /// Sends a message that was published on this node. Called once per message, whatever the number of cores and members.
    /// The calls of one core are in the order of its messages.
    ///
    /// # Errors
    /// [`Busy`]: the broker's queue is full. The core keeps the message and tries again within a few milliseconds. Meanwhile it
    /// doesn't read from the publishing clients, and refuses [`Commands::publish`](super::Commands::publish) and
    /// [`Command::Emit`](super::Command::Emit).
    fn publish(&self, message: &Broadcast) -> Result<(), Busy>;

    /// Returns `true` if the engine orders feeds and rooms with history, for all nodes. If so, messages to a single room with
    /// history, except volatile ones, leave by [`Self::publish_with_history`] instead. Members on this node receive such a
    /// message when the engine returns it: [`NodeInbox::update_room`](super::NodeInbox::update_room). Called once, when the node
    /// starts.
    fn orders_history(&self) -> bool {
        false
    }

    /// Sends a message to one room with history to the engine, which assigns its position. `publisher` is answered when the
    /// engine has stored the message, or with the reason why not. After `limits.decision_timeout`, the data plane refuses the
    /// message with `unavailable`, and the outcome is unknown. `source` is the source of the client's session
    /// ([`Hub::set_source`](stentor_hub::Hub::set_source)); `None` for a message of the backend. `key` is the idempotency key of
    /// a client's message: the engine stores a message with the same key once.
    ///
    /// # Errors
    /// [`Busy`], as for [`Self::publish`].
    fn publish_with_history(
        &self,
        message: &Broadcast,
        publisher: Option<PermissionReply>,
        source: Option<u64>,
        key: Option<Arc<str>>,
    ) -> Result<(), Busy>;

    /// Looks for a socket on the other nodes while its client waits. Returns `true` if
    /// [`NodeInbox::deliver_socket`](super::NodeInbox::deliver_socket) follows, `false` if no other node has the socket or
    /// the search isn't possible now.
    fn find_socket(&self, _question: SocketQuestion) -> bool {
        false
    }

    /// Requests the newest messages of a room that the engine orders, because a client named a position that is newer than
    /// this node's or of another epoch. The client waits until [`NodeInbox::update_room`](super::NodeInbox::update_room)
    /// delivers the messages that the engine has now, and then [`RoomUpdate::Confirmed`](super::RoomUpdate::Confirmed).
    fn confirm_history(&self, room: &Room);

    /// Requests the newest version of a feed, because a client named a version whose epoch differs from this node's. The
    /// client waits until [`Feeds::update_feed`](super::Feeds::update_feed) delivers the version that the engine has, and
    /// then [`FeedUpdate::Confirmed`](super::FeedUpdate::Confirmed) with the number of a read that began after this call.
    /// Returns the greatest number of a read so far. Another core may report the interest in the feed after this call.
    fn confirm_feed(&self, key: &Key) -> u64;

    /// The seed of the ids of this node's sessions, which other nodes know. `None` if no other node knows it, so that the node
    /// draws one. Called once, when the node starts.
    fn id_seed(&self) -> Option<[u64; 2]> {
        None
    }

    /// Sends a list of a room's members, or a request for a list. Messages to one node keep their order. A message may be lost.
    fn send_presence(&self, _message: &OutgoingPresence) {}

    /// Adds the room's members on other nodes to `list`, which already has the members on this node.
    fn list_members(&self, _query: MembersQuery, list: MemberList, done: Done<MemberList>) {
        done.answer(Ok(list));
    }

    /// Reports whether this node has subscribers of a topic. The value is a state, not an event: a change that is undone within a
    /// turn isn't reported. All calls for a topic come from one core, so the last call counts. Between two calls with `true`, the
    /// core has dropped the room's history and waits for it again.
    fn set_interest(&self, topic: &Topic, has_subscribers: bool);

    /// The lost connection to the engine, for `/readyz`. `None` if the engine is connected, or there is no engine.
    fn engine_away(&self) -> Option<EngineAway> {
        None
    }
}
