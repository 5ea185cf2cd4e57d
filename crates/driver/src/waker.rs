//! Waking a driver from another thread, at no cost while it is awake.
//!
//! There is one atomic state per driver. [`Waker::wake`] stores `NOTIFIED`, and writes to the kernel only if
//! it found `ASLEEP`. [`crate::Driver::wait`] sleeps only if it can change the state from `AWAKE` to
//! `ASLEEP`. So a wake between the caller's last check of its mailboxes and the sleep is not lost: it has
//! stored `NOTIFIED`, and the wait returns at once. The caller need not announce the sleep.
//!
//! Both sides change the state with a swap. Either the waker's swap comes first, and the driver, whose swap
//! comes later, sees everything that was written before the wake (release, acquire); or the driver's comes
//! first, and the waker finds the state that the driver has stored.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const NOTIFIED: u8 = 2;

struct Shared {
    state: AtomicU8,
    /// `None` in the simulation, which never sleeps.
    eventfd: Option<OwnedFd>,
}

/// Wakes a driver from another thread. A clone is cheap.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Makes the driver's current or next [`crate::Driver::wait`] return with [`crate::Event::Woken`]. All
    /// wakes until then cause one event. After that wait, the driver's thread sees everything that the
    /// calling thread has written before.
    pub fn wake(&self) {
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP
            && let Some(eventfd) = &self.0.eventfd
        {
            // The write only fails if the counter is about to overflow, which wakes just as well.
            let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }
}

/// The driver's end of its wakers.
pub(crate) struct Sleeper(Waker);

impl Sleeper {
    /// Makes a sleeper with an eventfd, to be watched (edge-triggered, it is never read) while the driver
    /// sleeps.
    pub(crate) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Waker(Arc::new(Shared { state: AtomicU8::new(AWAKE), eventfd: Some(eventfd) }))))
    }

    /// Makes a sleeper without a kernel.
    pub(crate) fn simulated() -> Self {
        Self(Waker(Arc::new(Shared { state: AtomicU8::new(AWAKE), eventfd: None })))
    }

    pub(crate) fn waker(&self) -> Waker {
        self.0.clone()
    }

    pub(crate) fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.0.0.eventfd.as_ref().map(AsFd::as_fd)
    }

    /// Returns `true` if the driver may sleep now; `false` if it has been woken since the last
    /// [`Sleeper::end_sleep`].
    pub(crate) fn may_sleep(&self) -> bool {
        let state = &self.0.0.state;
        state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the sleep. Returns `true` if a waker was used since the last call.
    pub(crate) fn end_sleep(&self) -> bool {
        self.0.0.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Returns `true` if a waker was used since the last [`Sleeper::end_sleep`].
    #[cfg(test)]
    pub(crate) fn is_notified(&self) -> bool {
        self.0.0.state.load(Ordering::Acquire) == NOTIFIED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_sleep_prevents_it() {
        let sleeper = Sleeper::new().unwrap();
        let waker = sleeper.waker();
        waker.wake();
        waker.wake();
        assert!(!sleeper.may_sleep());
        assert!(sleeper.end_sleep());
        assert!(sleeper.may_sleep());
        assert!(!sleeper.end_sleep());
    }

    #[test]
    fn waking_writes_to_the_eventfd_only_if_the_driver_sleeps() {
        let sleeper = Sleeper::new().unwrap();
        let mut count = [0; 8];
        let written = |count: &mut [u8]| rustix::io::read(sleeper.eventfd().unwrap(), count).is_ok();
        sleeper.waker().wake();
        assert!(!written(&mut count));
        sleeper.end_sleep();
        assert!(sleeper.may_sleep());
        sleeper.waker().wake();
        sleeper.waker().wake();
        assert!(written(&mut count));
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
