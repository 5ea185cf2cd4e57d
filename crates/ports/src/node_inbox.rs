//! Several nodes: the port through which a node's cluster hands over what comes from other nodes.

use crate::{
    Broadcast, Busy, ClientConnection, Done, Handover, MovingSocket, PublicId, SocketName, SocketRequest,
    Ticket,
};
use std::sync::Arc;
use stentor_hub::{Data, HistoryMessage, Position, PresenceMessage, Room};

/// News of a room with history that the engine orders ([`Broker::orders_history`](crate::Broker::orders_history)).
#[derive(Clone, Debug)]
pub enum RoomUpdate {
    /// The next message. Offsets grow, and no message is left out; if one may be missing, send [`Self::History`] instead.
    Message {
        /// Its position.
        position: Position,
        /// The event's name, if it has one.
        event: Option<Arc<str>>,
        /// The content.
        data: Data,
        /// Whose members are left out,
        except_rooms: Vec<Room>,
        /// and which sessions, of any node.
        except_sessions: Vec<PublicId>,
    },
    /// All messages that followed a position, oldest first. Sent when a room gets subscribers, and to close a gap.
    History {
        /// The position; offset 0 of [`Epoch::NONE`](stentor_hub::Epoch::NONE) if the room never had a message.
        after: Position,
        /// The messages.
        messages: Vec<HistoryMessage>,
    },
    /// The room is as new here as it was in the engine when [`Broker::confirm_history`](crate::Broker::confirm_history) was called.
    Confirmed,
}

impl RoomUpdate {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message { data, except_rooms, except_sessions, .. } => {
                data.len() + size_of_val(&except_rooms[..]) + size_of_val(&except_sessions[..])
            }
            Self::History { messages, .. } => messages.iter().map(|message| message.data.len()).sum(),
            Self::Confirmed => 0,
        }
    }
}

/// Which messages of one caller to [`NodeInbox::receive`] keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Messages to the same rooms.
    Rooms,
    /// Messages to all rooms of a namespace, none of which keeps history. One core takes all of them.
    Namespace,
}

/// Takes what other nodes send to this one. No call blocks.
pub trait NodeInbox: Send + Sync {
    /// Delivers a message that was published on another node to the members on this one. The message isn't handed to the
    /// [`Broker`](crate::Broker).
    ///
    /// # Errors
    /// The core's inbox is full or the memory budget is used up; nothing was delivered.
    fn receive(&self, message: Broadcast, order: Order) -> Result<(), Busy>;

    /// Sends news of a room with history to its home core, which delivers them at their positions. News of one room keep their
    /// order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy>;

    /// Takes a message of another node about who is in a room. Messages of one node about a room keep their order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_presence(&self, room: &Room, node: u64, message: PresenceMessage) -> Result<(), Busy>;

    /// Removes the members of a dead node.
    ///
    /// # Errors
    /// An inbox is full; nothing was sent.
    fn lose_node(&self, node: u64) -> Result<(), Busy>;

    /// Whether a session with this id may be on this node. Otherwise a command for it has no effect.
    fn may_have(&self, id: PublicId) -> bool;

    /// Gives another node a socket of this one. `done` receives `None` if there is none.
    fn request_socket(&self, name: SocketName, request: SocketRequest, done: Done<Option<MovingSocket>>);

    /// Announces a socket from another node, for which a client waits: the socket joins its rooms. `done` receives whether the client
    /// still waits, after the interest in the rooms was reported ([`Broker::set_interest`](crate::Broker::set_interest)).
    fn expect_socket(&self, ticket: Ticket, socket: MovingSocket, done: Done<bool>);

    /// Delivers a socket for which a client waits, after [`Self::expect_socket`]; or `None`: the socket doesn't come. No effect if the
    /// client has gone, or the time is over.
    ///
    /// # Errors
    /// An inbox is full; the socket is lost.
    fn deliver_socket(&self, ticket: Ticket, socket: Option<MovingSocket>) -> Result<(), Busy>;

    /// Gives a connection to a core: one that another node has passed through, or one of this node's that came back. The connection is
    /// closed if there is no room for it.
    fn adopt(&self, connection: ClientConnection, handover: Handover);
}
