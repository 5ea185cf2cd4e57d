//! Socket.IO sockets whose clients reconnect to another node of a cluster.
//!
//! ```text
//!   node that the client has reached           broker                     node that has the socket
//!   CONNECT with a pid of another node ─ find_socket ─► ...... describe ─► SocketRequest::Describe
//!     the CONNECT waits                                                      ends the connection, if there is one
//!   NodeInbox::expect_socket ◄─────────────────── ....... its rooms ◄──────
//!     joins the rooms, without a client yet
//!     the interest is established ───────────────► ........... take ──────► SocketRequest::Take
//!   NodeInbox::deliver_socket ◄────────────────── .. missed messages ◄──── removes the socket
//!     the CONNECT is handled
//! ```

use super::{Identity, Principal, PublicId, Ticket};
use crate::{NodeTag, Sid};
use std::fmt;
use stentor_hub::{MissedMessage, Position, SubscribeOptions, Topic};

/// The private id of a Socket.IO socket that can be recovered. It is a secret of its client and its server.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pid(pub Sid);

impl Pid {
    /// Parses an id in the form that clients use.
    pub fn parse(text: &str) -> Option<Self> {
        Sid::parse(text).map(Self)
    }

    /// The id in the form that clients use.
    pub fn to_text(self) -> String {
        self.0.to_string()
    }

    /// The node that created it.
    pub fn node(self) -> NodeTag {
        self.0.node()
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The id is a secret.
        f.debug_struct("Pid").field("node", &self.node()).finish_non_exhaustive()
    }
}

/// The client that requests a socket. Another user's socket isn't changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// Any client: the node doesn't verify users.
    Unverified,
    /// A client without a user.
    Anonymous,
    /// A client of this user.
    User(Principal),
}

impl Claimant {
    /// A client with this identity. `None` if the node doesn't verify users.
    pub fn new(identity: Option<&Identity>) -> Self {
        match identity {
            None => Self::Unverified,
            Some(identity) => identity.principal.clone().map_or(Self::Anonymous, Self::User),
        }
    }

    /// Returns `true` if the client may have a socket of `owner`. `None` if the socket has no user.
    pub fn may_have(&self, owner: Option<&Principal>) -> bool {
        match self {
            Self::Unverified => true,
            Self::Anonymous => owner.is_none(),
            Self::User(principal) => owner == Some(principal),
        }
    }
}

/// A socket that a client names when it reconnects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// The socket's private id.
    pub pid: Pid,
    /// The socket's namespace.
    pub namespace: Box<str>,
    /// The id of the last message that the client received.
    pub last: Option<u64>,
    /// The client.
    pub claimant: Claimant,
}

/// A request for a socket that a client waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketQuestion {
    /// Identifies the question.
    pub ticket: Ticket,
    /// The socket.
    pub name: SocketName,
}

/// A request of another node for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRequest {
    /// Requests the socket's id and rooms. The socket's connection continues.
    Look,
    /// Requests the socket's id and rooms. If the client is still connected, its connection ends as if it had been lost.
    Describe,
    /// Requests the complete socket, which is removed from this node.
    Take,
}

/// Maximum number of topics of a [`MovingSocket`].
pub const MOVING_TOPICS_MAX: usize = 1_024;
/// Maximum number of missed messages of a [`MovingSocket`].
pub const MOVING_MESSAGES_MAX: usize = 16_384;
/// Maximum size of the contents of the missed messages of a [`MovingSocket`], in bytes.
pub const MOVING_BYTES_MAX: usize = 4 << 20;

/// A subscription of a socket that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovingSubscription {
    /// The room, the feed, or the room of which the client is notified who joins and leaves.
    pub topic: Topic,
    /// Options of the subscription.
    pub options: SubscribeOptions,
    /// The newest version of a feed that the client may have. `None` if none is known, or the topic is a room.
    pub position: Option<Position>,
    /// `true` if the client requested the subscription, so it must be authorized. `false` for rooms to which the application or a
    /// backend added the socket.
    pub is_granted: bool,
}

/// A socket that moves to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovingSocket {
    /// The socket's public id.
    pub id: PublicId,
    /// The user. `None` if the client is anonymous.
    pub principal: Option<Principal>,
    /// The socket's rooms and feeds, and the rooms whose presence its client watches.
    pub subscriptions: Vec<MovingSubscription>,
    /// Messages that the client missed, in order. Empty in an answer to `Look` or `Describe`.
    pub missed: Vec<MissedMessage>,
    /// Ids of the messages in the socket's rooms that the previous node has received. The new node must not send these
    /// messages to the client again.
    pub known: Vec<u64>,
}

impl MovingSocket {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
        let topics = self.subscriptions.len() * size_of::<MovingSubscription>();
        let missed = self.missed.iter().map(|message| size_of::<MissedMessage>() + message.data.len());
        size_of::<Self>() + topics + missed.sum::<usize>() + self.known.len() * size_of::<u64>()
    }
}
