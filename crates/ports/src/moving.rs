//! Socket.IO sockets whose clients reconnect to another node of a cluster.
//!
//! ```text
//!   node that the client has reached           broker                     node that has the socket
//!   CONNECT with a pid of another node ─ find_socket ─► ...... describe ─► SocketRequest::Describe
//!     the CONNECT waits                                                      ends the connection that it still has
//!   CommandInbox::expect_socket ◄──────────────── ....... its rooms ◄──────
//!     joins the rooms, for nobody yet
//!     the interest is established ───────────────► ........... take ──────► SocketRequest::Take
//!   CommandInbox::deliver_socket ◄─────────────── ... what it missed ◄──── forgets it
//!     the CONNECT is handled
//! ```

use super::{Principal, PublicId, Ticket};
use crate::{NodeTag, Sid};
use std::fmt;
use stentor_hub::{MissedMessage, Position, SubscribeOptions, Topic};

/// The private id of a Socket.IO socket that can be recovered. Only its client and its server know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pid(pub Sid);

impl Pid {
    /// Parses an id as clients know it.
    pub fn parse(text: &str) -> Option<Self> {
        Sid::parse(text).map(Self)
    }

    /// The id as clients know it.
    pub fn to_text(self) -> String {
        self.0.to_string()
    }

    /// The node that drew it.
    pub fn node(self) -> NodeTag {
        self.0.node()
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It is a secret.
        f.debug_struct("Pid").field("node", &self.node()).finish_non_exhaustive()
    }
}

/// A socket that a client names when it reconnects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// Its id.
    pub pid: Pid,
    /// Its namespace.
    pub namespace: Box<str>,
    /// The id of the last message that the client received.
    pub last: Option<u64>,
}

/// A client waits for its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketQuestion {
    /// Names the question.
    pub ticket: Ticket,
    /// The socket.
    pub name: SocketName,
}

/// What another node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRequest {
    /// Its id and its rooms. Its connection goes on.
    Look,
    /// Its id and its rooms. A connection that it still has ends, as if it had been lost.
    Describe,
    /// Everything, and it ends here.
    Take,
}

/// Maximum number of topics of a [`MovingSocket`].
pub const MOVING_TOPICS_MAX: usize = 1_024;
/// Maximum number of missed messages of a [`MovingSocket`].
pub const MOVING_MESSAGES_MAX: usize = 16_384;
/// Maximum size of their contents.
pub const MOVING_BYTES_MAX: usize = 4 << 20;

/// What a socket on its way is subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovingSubscription {
    /// A room or a feed.
    pub topic: Topic,
    /// How.
    pub options: SubscribeOptions,
    /// The newest version of a feed that the client may have. `None`: none is known, or it is a room.
    pub position: Option<Position>,
    /// Its client has asked for it, so it must be allowed. Rooms that the application or a backend put it into needn't be.
    pub is_granted: bool,
}

/// A socket on its way to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovingSocket {
    /// The id that its client and others know it by.
    pub id: PublicId,
    /// Who its client is. `None`: anonymous.
    pub principal: Option<Principal>,
    /// Its rooms and feeds.
    pub subscriptions: Vec<MovingSubscription>,
    /// What it missed, in order. Empty if it is only described.
    pub missed: Vec<MissedMessage>,
    /// The ids of messages of its rooms that the node has had: they mustn't be sent again.
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
