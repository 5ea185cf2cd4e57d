//! The listening sockets of a driver on a kernel.

use crate::{ListenOptions, socket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The listening sockets of a driver.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) list: Vec<Listener>,
    /// The listener that is polled first; it rotates.
    first: usize,
    /// `true` if some listener may be ready.
    are_ready: bool,
}

pub(crate) struct Listener {
    pub(crate) fd: Arc<OwnedFd>,
    /// `true` if there may be a connection to accept.
    ready: bool,
    /// Number of connections accepted since the listener became ready.
    accepted: usize,
}

impl Listeners {
    pub(crate) fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        if self.list.len() > usize::from(u8::MAX) {
            return Err(io::Error::other("a driver has at most 256 listeners"));
        }
        let (fd, bound) = socket::listening_socket(addr, options)?;
        self.list.push(Listener { fd, ready: false, accepted: 0 });
        Ok(bound)
    }

    /// Records that there may be a connection to accept on listener `nth`. Returns `false` if there is no
    /// such listener.
    pub(crate) fn set_ready(&mut self, nth: usize) -> bool {
        let Some(listener) = self.list.get_mut(nth) else { return false };
        if !std::mem::replace(&mut listener.ready, true) {
            listener.accepted = 0;
        }
        self.are_ready = true;
        true
    }

    /// Returns `true` if there may be a connection to accept.
    #[inline]
    pub(crate) fn are_ready(&self) -> bool {
        self.are_ready
    }

    /// Accepts the next connection of any listener, in turns, so that a busy one doesn't use up the batch of
    /// all. Returns it with its peer's address and the number of its listener.
    pub(crate) fn accept(&mut self) -> Option<io::Result<(OwnedFd, SocketAddr, u8)>> {
        loop {
            let count = self.list.len();
            let mut order = (0..count).map(|nth| (self.first + nth) % count);
            let Some(index) = order.find(|index| self.list[*index].ready) else {
                self.are_ready = false;
                return None;
            };
            self.first = index + 1;
            let listener = &mut self.list[index];
            // Usually a connection comes alone. Another call of accept that finds none costs ten times as much as a poll,
            // because the kernel makes a file first.
            if listener.accepted == 1 && !socket::has_connection(listener.fd.as_fd()) {
                listener.ready = false;
                continue;
            }
            match socket::accept(listener.fd.as_fd()).transpose() {
                None => listener.ready = false,
                Some(accepted) => {
                    listener.accepted += 1;
                    // `listen` has checked that the number fits.
                    return Some(accepted.map(|(fd, peer)| (fd, peer, index as u8)));
                }
            }
        }
    }
}
