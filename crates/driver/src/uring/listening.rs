//! The listeners of a driver on io_uring, and their polls. The token of a poll is the listener's number among
//! all listeners so far, so that a stale completion isn't attributed to another listener.

use super::ring::{Ring, Target};
use super::token::Token;
use crate::listeners::Listeners;
use rustix::event::PollFlags;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Listening {
    pub(super) listeners: Listeners,
    /// Number of polled listeners: the first ones.
    polled: usize,
    /// Number of closed listeners.
    closed: u32,
}

impl Listening {
    #[inline]
    pub(super) fn are_polled(&self) -> bool {
        self.polled == self.listeners.list.len()
    }

    pub(super) fn poll_unpolled(&mut self, ring: &mut Ring) {
        while !self.are_polled() {
            self.poll(ring, self.polled);
            self.polled += 1;
        }
    }

    fn poll(&self, ring: &mut Ring, index: usize) {
        let token = Token::Listener(self.closed.wrapping_add(index as u32));
        ring.poll(token, Target::Descriptor(self.listeners.list[index].fd.as_raw_fd()), PollFlags::IN);
    }

    /// Records an event of the listener with this number. `more` is `false` if its poll has ended.
    pub(super) fn record(&mut self, ring: &mut Ring, nth: u32, more: bool) {
        let index = nth.wrapping_sub(self.closed) as usize;
        if self.listeners.set_ready(index) && !more {
            self.poll(ring, index);
        }
    }

    pub(super) fn stop(&mut self, ring: &mut Ring) {
        self.polled = 0;
        for listener in self.listeners.list.drain(..) {
            ring.cancel(Token::Listener(self.closed));
            self.closed = self.closed.wrapping_add(1);
            // The last owner closes a shared socket.
            if let Some(fd) = Arc::into_inner(listener.fd) {
                ring.close(fd);
            }
        }
        // If entering fails, the next wait closes the sockets.
        let _ = ring.enter(Some(Duration::ZERO));
    }
}
