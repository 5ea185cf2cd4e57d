//! A connection that has left one driver and is not yet attached to another.

use crate::slab::Key;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A connection that [`crate::Driver::detach`] returned. Another driver of the same kind can attach it, also on another
/// thread. Dropping it closes the connection.
pub struct DetachedConnection {
    pub(crate) socket: TransferredSocket,
    pub(crate) peer: SocketAddr,
    /// Whether [`crate::Event::PeerFinished`] has been handed out.
    pub(crate) ended: bool,
    pub(crate) paused: bool,
}

/// The socket, as its kind of driver holds it.
pub(crate) enum TransferredSocket {
    /// A descriptor of this process.
    Descriptor(OwnedFd),
    /// A socket of a simulated network, which closes it when it sees that the token is gone.
    Simulated { socket: Key, token: Arc<()> },
}

impl DetachedConnection {
    /// The address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl fmt::Debug for DetachedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DetachedConnection({})", self.peer)
    }
}
