//! A connection between two drivers.

use crate::slab::Key;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A connection on its way from one driver to another (of the same kind, on another thread). Dropping it
/// closes the connection.
pub struct Parcel {
    pub(crate) cargo: Cargo,
    pub(crate) peer: SocketAddr,
    /// Whether [`crate::Event::PeerFinished`] has been handed out.
    pub(crate) ended: bool,
    pub(crate) paused: bool,
}

/// The connection itself, as its kind of driver holds it.
pub(crate) enum Cargo {
    /// A descriptor of this process.
    Descriptor(OwnedFd),
    /// A socket of a simulated network, which closes it when it sees that the token is gone.
    Simulated { socket: Key, token: Arc<()> },
}

impl Parcel {
    /// The address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parcel({})", self.peer)
    }
}
