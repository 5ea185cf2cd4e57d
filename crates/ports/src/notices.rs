//! Notices for the application behind the server: the port through which the data plane says what has happened to sessions and topics.

use super::{Identity, PublicId};
use std::fmt;
use stentor_hub::Topic;

/// What has happened.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A session has begun on this node: of a client that has connected, or that was connected to another node.
    Connected {
        /// The session.
        session: PublicId,
        /// Who its client is. `None`: the node has no [`Authenticator`](super::Authenticator).
        identity: Option<&'a Identity>,
        /// The name of its protocol.
        protocol: &'static str,
        /// Its namespace; `/` for plain sessions.
        namespace: &'a str,
        /// The address of its client; of IPv6 the /64 network.
        address: Option<&'a str>,
    },
    /// A session that was connected has ended, and doesn't continue on another node.
    Disconnected {
        /// The session.
        session: PublicId,
        /// Its namespace.
        namespace: &'a str,
        /// Who its client was.
        identity: Option<&'a Identity>,
    },
    /// A session has subscribed to a room or feed, or has been put there.
    Subscribed {
        /// The session.
        session: PublicId,
        /// Who its client is.
        identity: Option<&'a Identity>,
        /// The room or feed.
        topic: &'a Topic,
    },
    /// A room or feed has its first subscriber on a core.
    Occupied(&'a Topic),
    /// A room or feed has lost the last subscriber of a core.
    Vacated(&'a Topic),
}

/// Takes notices. It is called on the threads of the cores, so it must not block.
pub trait NoticeSink: fmt::Debug + Send + Sync {
    /// Whether it wants to know about subscriptions and topics.
    fn wants_topics(&self) -> bool {
        true
    }

    /// Takes a notice.
    fn notify(&self, notice: &Notice<'_>);
}
