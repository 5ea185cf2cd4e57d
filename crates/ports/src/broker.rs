//! Several nodes: the port through which a node passes on what the others have to know.
//!
//! Messages of other nodes enter through [`NodeInbox::receive`](super::NodeInbox::receive), and aren't passed on
//! again.

use super::{Busy, Done, EngineAway, MemberList, MembersQuery, PermissionReply, PublicId, SocketQuestion};
use std::fmt;
use std::sync::Arc;
use stentor_hub::{Data, Key, OutgoingPresence, Room, Rooms, Topic};

/// A message to rooms, as nodes pass it to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// Its id on all nodes; 0 if they have none in common.
    pub id: u64,
    /// To the members of any of these rooms,
    pub rooms: Rooms,
    /// but not to the members of these,
    pub except_rooms: Vec<Room>,
    /// and not to these sessions. A node leaves its own sessions out itself, so these are sessions of other nodes; those of the node
    /// as well if the engine orders the room.
    pub except_sessions: Vec<PublicId>,
    /// The event's name, if it has one.
    pub event: Option<Arc<str>>,
    /// The content.
    pub data: Data,
    /// Whether sessions that aren't ready to receive it are skipped.
    pub volatile: bool,
}

impl Broadcast {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
        let rooms = self.rooms.iter().count() + self.except_rooms.len();
        let sessions = self.except_sessions.len() * size_of::<PublicId>();
        size_of::<Self>() + self.data.len() + rooms * size_of::<Room>() + sessions
    }
}

/// Carries to other nodes what they need of this one. It is called on the threads of the cores, so it must not block.
///
/// Members on this node receive a message whatever the broker does with it.
pub trait Broker: fmt::Debug + Send + Sync {
    /// A message that was published on this node leaves it: once, whatever the number of cores and members. Those of one
    /// core are in order.
    ///
    /// # Errors
    /// [`Busy`]: the broker holds as much as it may. The core keeps the message, tries again within a few milliseconds,
    /// and doesn't read from those who publish meanwhile; [`Commands::publish`](super::Commands::publish) and
    /// [`Command::Emit`](super::Command::Emit) are refused.
    fn publish(&self, message: &Broadcast) -> Result<(), Busy>;

    /// Whether the engine orders feeds and rooms with history, for all nodes. Then messages to a single room with history, except
    /// volatile ones, leave by [`Self::publish_with_history`] instead, and members here receive them when they come back:
    /// [`NodeInbox::update_room`](super::NodeInbox::update_room). Asked at the start of the node.
    fn orders_history(&self) -> bool {
        false
    }

    /// A message to one room with history leaves this node, to get its position from the engine. The
    /// `publisher` waits until it is answered that the engine has it, or why not;
    /// after `limits.decision_timeout` it is refused with `unavailable`, and the outcome is unknown. `source` is the source of the client's
    /// session ([`Hub::set_source`](stentor_hub::Hub::set_source)); `None` for a message of the backend.
    ///
    /// # Errors
    /// [`Busy`], as for [`Self::publish`].
    fn publish_with_history(
        &self,
        _message: &Broadcast,
        _publisher: Option<PermissionReply>,
        _source: Option<u64>,
    ) -> Result<(), Busy> {
        Ok(())
    }

    /// Looks for a socket on the other nodes, whose client waits: [`NodeInbox::deliver_socket`](super::NodeInbox::deliver_socket)
    /// follows. `false`: no other node has it, or it can't be looked for now.
    fn find_socket(&self, _question: SocketQuestion) -> bool {
        false
    }

    /// A client named a position in a room that the engine orders, which is newer than what this node has, or of another
    /// epoch. It waits until [`NodeInbox::update_room`](super::NodeInbox::update_room) brings what the engine has by
    /// now, and then [`RoomUpdate::Confirmed`](super::RoomUpdate::Confirmed).
    fn confirm_history(&self, room: &Room);

    /// A client named a version of a feed of another epoch than this node's. It waits until
    /// [`Feeds::update_feed`](super::Feeds::update_feed) brings what the engine has, and then
    /// [`FeedUpdate::Confirmed`](super::FeedUpdate::Confirmed) with the number of a read that began after this call. Returns the
    /// greatest number so far. The feed's interest may be reported after this call, by another core.
    fn confirm_feed(&self, key: &Key) -> u64;

    /// Says who is in a room, or asks. Messages for one node are in order. May be lost.
    fn send_presence(&self, _message: &OutgoingPresence) {}

    /// Adds the members of a room on other nodes to `list`, which has those of this one.
    fn list_members(&self, _query: MembersQuery, list: MemberList, done: Done<MemberList>) {
        done.answer(Ok(list));
    }

    /// Whether this node has subscribers of a topic. A level, not an event: changes that are undone within a turn aren't
    /// reported, and all calls for a topic come from one core, so the last one counts. Between two calls that a room has
    /// subscribers, the core has forgotten its history, and waits for it again.
    fn set_interest(&self, topic: &Topic, has_subscribers: bool);

    /// The engine's absence, for `/readyz`. `None`: it is connected, or there is none.
    fn engine_away(&self) -> Option<EngineAway> {
        None
    }
}
