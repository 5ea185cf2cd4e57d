//! A connection that has left one driver and is not yet attached to another.

use crate::slab::Key;
use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A connection that [`crate::Driver::detach`] returned. Another driver of the same kind can attach it, also on another
/// thread. Dropping it closes the connection.
pub struct DetachedConnection {
    pub(crate) socket: TransferredSocket,
    /// Whether [`crate::Event::PeerFinished`] has been handed out.
    pub(crate) ended: bool,
    pub(crate) paused: bool,
    /// What a layer above the driver keeps of the connection. Drivers leave it as it is.
    pub state: Option<Box<dyn Any + Send>>,
}

/// The socket, as its kind of driver holds it.
pub(crate) enum TransferredSocket {
    /// A descriptor of this process.
    Descriptor(OwnedFd),
    /// A socket of a simulated network, which closes it when it sees that the token is gone.
    Simulated { socket: Key, token: Arc<()> },
}

impl DetachedConnection {
    /// The socket, for code that needs no driver. It doesn't block.
    ///
    /// # Errors
    /// It is a socket of a simulated network.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.socket.into_fd()
    }
}

impl From<OwnedFd> for DetachedConnection {
    /// A connected socket that was opened, or accepted, elsewhere. It must not block.
    fn from(fd: OwnedFd) -> Self {
        Self { socket: TransferredSocket::Descriptor(fd), ended: false, paused: false, state: None }
    }
}

impl TransferredSocket {
    /// The descriptor, for a driver on a kernel.
    ///
    /// # Errors
    /// It is a socket of a simulated network.
    pub(crate) fn into_fd(self) -> io::Result<OwnedFd> {
        match self {
            Self::Descriptor(fd) => Ok(fd),
            Self::Simulated { .. } => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl fmt::Debug for DetachedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetachedConnection")
    }
}
