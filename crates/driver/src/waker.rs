//! Waking a driver from another thread, at no cost while it is awake.
//!
//! One atomic state per driver. [`Waker::wake`] leaves `NOTIFIED` there, and writes to the kernel only if it
//! found `ASLEEP`. [`crate::Driver::wait`] sleeps only if it can go from `AWAKE` to `ASLEEP`, so a wake that
//! comes between the caller's last look into its mailboxes and the sleep is not lost: it has left `NOTIFIED`,
//! and the wait returns at once. The caller need not announce anything.
//!
//! Both sides change the state by a swap. So either the waker's swap comes first, and the driver that swaps
//! after it sees all that was written before the wake (release, acquire); or the driver's comes first, and
//! the waker finds what the driver has left there.

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
    /// None in the simulation, which never sleeps.
    eventfd: Option<OwnedFd>,
}

/// Wakes a driver from another thread. A clone is cheap.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Makes the driver's current or next [`crate::Driver::wait`] return with [`crate::Event::Woken`]. Any
    /// number of wakes before that are one event. What the calling thread has written before is seen by the
    /// driver's thread after that wait.
    pub fn wake(&self) {
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP
            && let Some(eventfd) = &self.0.eventfd
        {
            // It fails only if the counter is about to overflow, which wakes just as well.
            let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }
}

/// The driver's end of its wakers.
pub(crate) struct Sleeper(Waker);

impl Sleeper {
    /// With an eventfd, to be watched (edge-triggered, it is never read) while the driver sleeps.
    pub(crate) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Waker(Arc::new(Shared { state: AtomicU8::new(AWAKE), eventfd: Some(eventfd) }))))
    }

    /// Without a kernel.
    pub(crate) fn simulated() -> Self {
        Self(Waker(Arc::new(Shared { state: AtomicU8::new(AWAKE), eventfd: None })))
    }

    pub(crate) fn waker(&self) -> Waker {
        self.0.clone()
    }

    pub(crate) fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.0.0.eventfd.as_ref().map(AsFd::as_fd)
    }

    /// Whether the driver may sleep now; not if it has been woken since the last [`Sleeper::end_sleep`].
    pub(crate) fn may_sleep(&self) -> bool {
        let state = &self.0.0.state;
        state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the sleep. True if a waker was used since the last call.
    pub(crate) fn end_sleep(&self) -> bool {
        self.0.0.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Whether a waker was used since the last [`Sleeper::end_sleep`].
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
