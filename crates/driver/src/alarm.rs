//! The end of a sleep at a given time, by one timer of the kernel that is set only where it would ring too late.
//!
//! Most sleeps end long before any timer is due, by something that arrives. A time-out with each wait would cost a
//! reading of the clock and a kernel timer that is set and cancelled, each time.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// See the module's documentation. It is to be watched edge-triggered while the driver sleeps, and never read.
pub(crate) struct Alarm {
    timerfd: OwnedFd,
    /// Until then it need not be set for anything later.
    rings_at: Option<Instant>,
}

impl Alarm {
    /// # Errors
    /// The kernel's, out of descriptors or memory.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timerfd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timerfd, rings_at: None })
    }

    /// Makes it ring at `at`, or before.
    ///
    /// # Errors
    /// The kernel's, which there are none for.
    #[inline]
    pub(crate) fn set(&mut self, at: Instant) -> io::Result<()> {
        if self.rings_at.is_some_and(|rings_at| rings_at <= at) {
            return Ok(());
        }
        self.rearm(at)
    }

    fn rearm(&mut self, at: Instant) -> io::Result<()> {
        // Zero would turn it off.
        let delay = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(delay).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timerfd, TimerfdTimerFlags::empty(), &once)?;
        self.rings_at = Some(at);
        Ok(())
    }

    /// The kernel has reported that it rang.
    pub(crate) fn rang(&mut self) {
        self.rings_at = None;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timerfd.as_fd()
    }
}
