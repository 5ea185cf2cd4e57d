//! The listening sockets: polled by the ring, accepted from by a call.
//!
//! A call, as the peer's address comes with it. (A multishot accept tells none, so it would take a call for that,
//! and takes whatever comes, however few the driver wants in one turn.)

use super::ring::{Ring, Target};
use super::token::{Name, Token};
use crate::ListenOptions;
use crate::epoll::socket;
use rustix::event::PollFlags;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// See the module's documentation.
pub(super) struct Listeners {
    listeners: Vec<Listener>,
    /// How many there have been before those: so that what a closed one's poll tells is not taken for another's.
    before: u32,
    /// The listener that is asked first; it rotates.
    first: usize,
    /// Until when none is asked, after a failure.
    again_at: Option<Instant>,
}

struct Listener {
    fd: OwnedFd,
    polled: bool,
    /// There may be a connection to accept.
    ready: bool,
}

impl Listeners {
    pub(super) fn new() -> Self {
        Self { listeners: Vec::new(), before: 0, first: 0, again_at: None }
    }

    pub(super) fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        let (fd, bound) = socket::listen(addr, options)?;
        self.listeners.push(Listener { fd, polled: false, ready: false });
        Ok(bound)
    }

    /// Polls those that aren't polled.
    pub(super) fn poll(&mut self, ring: &mut Ring) {
        for (nth, listener) in self.listeners.iter_mut().enumerate() {
            if !std::mem::replace(&mut listener.polled, true) {
                let token = Token::Listener(Name::new(nth as u32, self.before));
                ring.poll(token, Target::Descriptor(listener.fd.as_raw_fd()), PollFlags::IN);
            }
        }
    }

    /// Records what a poll reported.
    pub(super) fn record(&mut self, Name { index, generation }: Name, more: bool) {
        if generation == Name::new(0, self.before).generation
            && let Some(listener) = self.listeners.get_mut(index as usize)
        {
            listener.ready = true;
            listener.polled = more;
        }
    }

    /// Whether there may be a connection to accept.
    pub(super) fn are_ready(&self) -> bool {
        self.again_at.is_none() && self.listeners.iter().any(|listener| listener.ready)
    }

    /// The end of a pause, which [`Listeners::advance`] notes.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.again_at
    }

    pub(super) fn advance(&mut self, now: Instant) {
        self.again_at = self.again_at.filter(|at| *at > now);
    }

    /// Accepts nothing until then.
    pub(super) fn pause(&mut self, until: Instant) {
        self.again_at = Some(until);
    }

    /// The next connection of any of them, in turns, so that a busy one doesn't use up the batch of all.
    pub(super) fn accept(&mut self) -> Option<io::Result<(OwnedFd, SocketAddr)>> {
        while self.are_ready() {
            let count = self.listeners.len();
            let mut order = (0..count).map(|nth| (self.first + nth) % count);
            let index = order.find(|index| self.listeners[*index].ready)?;
            self.first = index + 1;
            let listener = &mut self.listeners[index];
            match socket::accept(listener.fd.as_fd()) {
                Ok(None) => listener.ready = false,
                Ok(Some(accepted)) => return Some(Ok(accepted)),
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }

    /// Closes them all, at once.
    pub(super) fn stop(&mut self, ring: &mut Ring) {
        for (nth, listener) in self.listeners.drain(..).enumerate() {
            ring.cancel(Token::Listener(Name::new(nth as u32, self.before)));
            ring.close(listener.fd);
        }
        // Should it fail, they are closed by the next wait.
        let _ = ring.enter(Some(Duration::ZERO));
        self.before = self.before.wrapping_add(1);
        self.again_at = None;
    }
}
