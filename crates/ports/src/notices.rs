//! Notices for the application behind the server: the port through which the data plane reports events of sessions and topics.

use super::{Identity, PublicId, SessionRooms};
use std::fmt;
use stentor_hub::Topic;

/// An event of a session or topic.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A session has begun on this node. Its client has just connected, or was connected to another node before.
    Connected {
        /// The session.
        session: PublicId,
        /// The client's identity. `None` if the node has no [`Authenticator`](super::Authenticator).
        identity: Option<&'a Identity>,
        /// The name of the session's protocol.
        protocol: &'static str,
        /// The session's namespace; `/` for plain sessions.
        namespace: &'a str,
        /// The client's IPv4 address or IPv6 /64 network.
        address: Option<&'a str>,
    },
    /// A session has ended after [`Self::Connected`], and doesn't continue on another node.
    Disconnected {
        /// The session.
        session: PublicId,
        /// The session's namespace.
        namespace: &'a str,
        /// The client's identity.
        identity: Option<&'a Identity>,
        /// The rooms that the session was in, as many as the sink receives ([`NoticeSink::rooms_max`]).
        rooms: &'a SessionRooms,
    },
    /// A session has subscribed to a room or feed, or was added to a room by a backend or the application.
    Subscribed {
        /// The session.
        session: PublicId,
        /// The client's identity.
        identity: Option<&'a Identity>,
        /// The room or feed.
        topic: &'a Topic,
    },
    /// A room or feed has its first subscriber on a core.
    Occupied(&'a Topic),
    /// A room or feed has lost the last subscriber of a core.
    Vacated(&'a Topic),
}

/// Receives notices. The cores call it on their threads, so it must not block.
pub trait NoticeSink: fmt::Debug + Send + Sync {
    /// `true` if this sink needs notices about subscriptions and topics.
    fn wants_topics(&self) -> bool {
        true
    }

    /// Maximum number of rooms that this sink receives when a session ends.
    fn rooms_max(&self) -> usize {
        0
    }

    /// Receives a notice.
    fn notify(&self, notice: &Notice<'_>);
}
