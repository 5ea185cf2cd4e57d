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
    /// `true` if [`crate::Event::PeerFinished`] has been returned.
    pub(crate) ended: bool,
    pub(crate) paused: bool,
    /// State of the connection from a layer above the driver. Drivers don't change it.
    pub state: Option<Box<dyn Any + Send>>,
}

/// The socket, in the representation of its kind of driver.
pub(crate) enum TransferredSocket {
    /// A file descriptor of this process.
    Descriptor(OwnedFd),
    /// A socket of a simulated network, which closes it once the token is dropped.
    Simulated { socket: Key, token: Arc<()> },
}

impl DetachedConnection {
    /// Returns the socket, for code without a driver. It is non-blocking.
    ///
    /// # Errors
    /// The socket belongs to a simulated network.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.socket.into_fd()
    }
}

impl From<OwnedFd> for DetachedConnection {
    /// Takes a connected socket that was opened or accepted elsewhere. It must be non-blocking.
    fn from(fd: OwnedFd) -> Self {
        Self { socket: TransferredSocket::Descriptor(fd), ended: false, paused: false, state: None }
    }
}

impl TransferredSocket {
    /// Returns the file descriptor, for a driver on a kernel.
    ///
    /// # Errors
    /// The socket belongs to a simulated network.
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
