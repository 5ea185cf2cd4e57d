//! The places of a driver's sockets: file descriptors of the process in the main ring, or, if these run
//! short, direct descriptors in further rings.
//!
//! A socket is always made as a file descriptor. The kernel assigns the lowest free number, so a number above
//! the threshold means that the process, not only this driver, has that many. Such a socket is moved into a
//! slot of a ring at once, and its file descriptor is closed. (Accepting right into a slot would save two
//! calls, some 25 µs per connection, but wouldn't report the peer's address.) The limit of descriptors
//! applies to each ring's table alone, so there are as many rings as necessary.
//!
//! An operation that a ring doesn't support on a slot is done on a file descriptor that is installed
//! temporarily, and closed.
//!
//! The main ring is the one that sleeps. The others signal the waker's eventfd, which the main ring polls.
//! The signal is only enabled for the sleep, so that events during the driver's work cause none.
//!
//! Invariant: a slot is free, or in use by one connection, or being closed by an entry of its ring; it is
//! free again when that entry has completed. So queued entries never meet another socket.

use super::ring::{Ring, Target};
use super::token::Token;
use crate::Capacity;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The place of a socket. A socket in a slot must be passed to [`Rings::close`].
pub(super) enum Place {
    Descriptor(OwnedFd),
    Slot { ring: u8, slot: u32 },
}

/// A socket's file descriptor, borrowed or made temporarily.
pub(super) enum Descriptor<'a> {
    Lent(BorrowedFd<'a>),
    Installed(OwnedFd),
}

impl AsFd for Descriptor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Lent(fd) => *fd,
            Self::Installed(fd) => fd.as_fd(),
        }
    }
}

/// The threshold and the number of direct descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectLimits {
    /// File descriptors with this number or a higher one become direct.
    pub(super) from: u32,
    pub(super) rings_max: u8,
    pub(super) slots_per_ring: u32,
}

/// The rings of a driver.
pub(super) struct Rings {
    main: Ring,
    direct: Vec<DirectRing>,
    entries: u32,
    limits: DirectLimits,
}

struct DirectRing {
    ring: Ring,
    free: Vec<u32>,
}

impl Rings {
    pub(super) fn new(entries: u32, limits: DirectLimits) -> io::Result<Self> {
        Ok(Self { main: Ring::new(entries)?, direct: Vec::new(), entries, limits })
    }

    /// Implements [`crate::Driver::capacity`].
    pub(super) fn capacity(&self) -> Capacity {
        let DirectLimits { from, rings_max, slots_per_ring } = self.limits;
        Capacity { shared: from as usize, own: usize::from(rings_max) * slots_per_ring as usize }
    }

    /// Returns the ring for everything but connections.
    pub(super) fn main(&mut self) -> &mut Ring {
        &mut self.main
    }

    /// Returns the ring of a socket, and its target there.
    pub(super) fn of(&mut self, socket: &Place) -> (&mut Ring, Target) {
        match socket {
            Place::Descriptor(fd) => (&mut self.main, Target::Descriptor(fd.as_raw_fd())),
            Place::Slot { ring, slot } => (&mut self.direct[usize::from(*ring)].ring, Target::Slot(*slot)),
        }
    }

    /// Finds a place for a new socket. `wake` is polled by the main ring.
    pub(super) fn adopt(&mut self, fd: OwnedFd, wake: Option<BorrowedFd<'_>>) -> Place {
        if u32::try_from(fd.as_raw_fd()).is_ok_and(|number| number < self.limits.from) {
            return Place::Descriptor(fd);
        }
        wake.and_then(|wake| self.fill_slot(fd.as_fd(), wake)).unwrap_or(Place::Descriptor(fd))
    }

    fn fill_slot(&mut self, fd: BorrowedFd<'_>, wake: BorrowedFd<'_>) -> Option<Place> {
        let index = match self.direct.iter().position(|direct| !direct.free.is_empty()) {
            Some(index) => index,
            None => self.open(wake)?,
        };
        let direct = &mut self.direct[index];
        let slot = direct.free.pop()?;
        if direct.ring.fill_slot(slot, fd).is_err() {
            direct.free.push(slot);
            return None;
        }
        Some(Place::Slot { ring: index as u8, slot })
    }

    /// Opens one more ring with slots. `None` if there are `rings_max`, or if the kernel refuses the ring:
    /// then no further ring is opened.
    fn open(&mut self, wake: BorrowedFd<'_>) -> Option<usize> {
        let index = self.direct.len();
        if index == usize::from(self.limits.rings_max) {
            return None;
        }
        let slots = self.limits.slots_per_ring;
        match Ring::with_slots(self.entries, slots, wake) {
            Ok(ring) if index > 0 || ring.can_install() => {
                self.direct.push(DirectRing { ring, free: (0..slots).rev().collect() });
                Some(index)
            }
            _ => {
                self.limits.rings_max = index as u8;
                None
            }
        }
    }

    /// Returns a file descriptor of the socket.
    ///
    /// # Errors
    /// A file descriptor must be made and none is left.
    pub(super) fn descriptor<'a>(&mut self, socket: &'a Place) -> io::Result<Descriptor<'a>> {
        match socket {
            Place::Descriptor(fd) => Ok(Descriptor::Lent(fd.as_fd())),
            Place::Slot { ring, slot } => {
                self.direct[usize::from(*ring)].ring.install(*slot).map(Descriptor::Installed)
            }
        }
    }

    /// Closes a socket after all earlier entries for it have been started.
    pub(super) fn close(&mut self, socket: Place) {
        match socket {
            Place::Descriptor(fd) => self.main.close(fd),
            Place::Slot { ring, slot } => {
                self.direct[usize::from(ring)].ring.close_slot(Token::Freed { slot, ring }, slot);
            }
        }
    }

    /// Records that a slot can be reused.
    pub(super) fn freed(&mut self, slot: u32, ring: u8) {
        if let Some(direct) = self.direct.get_mut(usize::from(ring)) {
            direct.free.push(slot);
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Ring> {
        std::iter::once(&mut self.main).chain(self.direct.iter_mut().map(|direct| &mut direct.ring))
    }

    /// Submits on all rings; see [`Ring::submit`].
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.all().try_for_each(Ring::submit)
    }

    /// Enters the main ring; see [`Ring::enter_for`]. The other rings signal while it waits.
    #[inline]
    pub(super) fn enter(&mut self, enough: usize, timeout: Option<Duration>) -> io::Result<()> {
        if self.direct.is_empty() {
            self.main.enter_for(enough, timeout)
        } else {
            self.enter_all(enough, timeout)
        }
    }

    #[inline(never)]
    fn enter_all(&mut self, enough: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.enter_direct(enough)?;
        let mut timeout = timeout;
        if self.direct.iter_mut().any(|direct| direct.ring.has_completions()) {
            timeout = Some(Duration::ZERO);
        }
        if timeout != Some(Duration::ZERO) {
            for DirectRing { ring, .. } in &mut self.direct {
                ring.signal(true);
                if ring.has_work() && ring.run_deferred_work()? {
                    timeout = Some(Duration::ZERO);
                }
            }
        }
        let entered = self.main.enter_for(enough, timeout);
        for DirectRing { ring, .. } in &mut self.direct {
            ring.signal(false);
        }
        entered?;
        self.enter_direct(enough)
    }

    /// Submits pushed entries for direct descriptors, and makes the kernel do its deferred work.
    pub(super) fn enter_direct(&mut self, enough: usize) -> io::Result<()> {
        self.direct.iter_mut().try_for_each(|direct| direct.ring.enter_if_busy(enough))
    }

    /// Returns `true` if there have been direct descriptors.
    #[inline]
    pub(super) fn have_direct(&self) -> bool {
        !self.direct.is_empty()
    }

    /// Returns the number of rings.
    #[inline]
    pub(super) fn count(&self) -> usize {
        1 + self.direct.len()
    }

    /// Returns one of the rings: 0 is the main one.
    #[inline]
    pub(super) fn ring(&mut self, nth: usize) -> &mut Ring {
        if nth == 0 { &mut self.main } else { &mut self.direct[nth - 1].ring }
    }

    /// Returns `true` if there are completions for which [`Rings::enter`] wouldn't return at once.
    #[inline]
    pub(super) fn have_aside(&self) -> bool {
        self.main.has_aside()
    }

    /// Checks all rings; see [`Ring::is_nearly_full`].
    pub(super) fn are_nearly_full(&mut self) -> bool {
        self.main.is_nearly_full() || self.direct.iter_mut().any(|direct| direct.ring.is_nearly_full())
    }

    /// Cancels on all rings; see [`Ring::cancel_all`]. Afterwards only the connections' own descriptors are
    /// open.
    pub(super) fn cancel_all(&mut self, timeout: Duration) -> io::Result<()> {
        self.all().try_for_each(|ring| ring.cancel_all(timeout))?;
        self.all().try_for_each(|ring| ring.enter(Some(Duration::ZERO)))?;
        self.direct.iter_mut().try_for_each(|direct| direct.ring.empty_slots())
    }
}
