//! Several nodes: the port through which a node's cluster delivers the messages of other nodes.

use crate::{
    Broadcast, Busy, ClientConnection, Done, Handover, MovingSocket, PublicId, SocketName, SocketRequest,
    Ticket,
};
use std::sync::Arc;
use stentor_hub::{Data, HistoryMessage, Position, PresenceMessage, Room};

/// An update of a room with history that the engine orders ([`Broker::orders_history`](crate::Broker::orders_history)).
#[derive(Clone, Debug)]
pub enum RoomUpdate {
    /// The next message. Offsets grow, and no message is skipped. If a message may be missing, send [`Self::History`] instead.
    Message {
        /// The message's position.
        position: Position,
        /// The event's name, if it has one.
        event: Option<Arc<str>>,
        /// The content.
        data: Data,
        /// Rooms whose members are left out.
        except_rooms: Vec<Room>,
        /// Sessions of any node that are left out.
        except_sessions: Vec<PublicId>,
    },
    /// All messages that followed a position, oldest first. This is the first update of a room that gets subscribers, and the
    /// update after messages may have been missed.
    History {
        /// The position; offset 0 of [`Epoch::NONE`](stentor_hub::Epoch::NONE) if the room never had a message.
        after: Position,
        /// The messages.
        messages: Vec<HistoryMessage>,
    },
    /// The room is at least as new on this node as it was in the engine when
    /// [`Broker::confirm_history`](crate::Broker::confirm_history) was called.
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

/// The messages that keep their order among the messages of one caller to [`NodeInbox::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Messages to the same rooms.
    Rooms,
    /// Messages to all rooms of a namespace without history. One core takes all of these messages.
    Namespace,
}

/// Receives the messages that other nodes send to this one. No call blocks.
pub trait NodeInbox: Send + Sync {
    /// Delivers a message that was published on another node to the members on this one. It isn't passed to the
    /// [`Broker`](crate::Broker). Messages of one caller to the same rooms keep their order.
    ///
    /// # Errors
    /// The core's inbox is full or the memory budget is used up; nothing was delivered.
    fn receive(&self, message: Broadcast, order: Order) -> Result<(), Busy>;

    /// Sends an update of a room with history to its home core, which delivers it at its position. Updates of one room keep their
    /// order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy>;

    /// Delivers another node's message about the members of a room. Messages of one node about a room keep their order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_presence(&self, room: &Room, node: u64, message: PresenceMessage) -> Result<(), Busy>;

    /// Removes the members of a dead node.
    ///
    /// # Errors
    /// An inbox is full; nothing was sent.
    fn lose_node(&self, node: u64) -> Result<(), Busy>;

    /// `true` if a session with this id may be on this node. Otherwise commands for it have no effect here.
    fn may_have(&self, id: PublicId) -> bool;

    /// Answers another node's request for a socket of this node. `done` receives `None` if this node has no such socket.
    fn request_socket(&self, name: SocketName, request: SocketRequest, done: Done<Option<MovingSocket>>);

    /// Announces a socket from another node, for which a client waits: the socket joins its rooms. After this node has
    /// reported its interest in the rooms ([`Broker::set_interest`](crate::Broker::set_interest)), `done` receives `true`
    /// if the client still waits.
    fn expect_socket(&self, ticket: Ticket, socket: MovingSocket, done: Done<bool>);

    /// Delivers a socket for which a client waits, after [`Self::expect_socket`]; or `None` if no node has the socket. No effect
    /// if the client has disconnected, or its wait has timed out.
    ///
    /// # Errors
    /// An inbox is full; the socket is lost.
    fn deliver_socket(&self, ticket: Ticket, socket: Option<MovingSocket>) -> Result<(), Busy>;

    /// Gives a connection to a core, which closes the connection if it has no room. Another node passed the connection
    /// through, or the connection returns because its target node can't be reached.
    fn adopt(&self, connection: ClientConnection, handover: Handover);
}
