//! Ends a sleep at a given time, with one kernel timer that is only set if it would fire too late.
//!
//! Arriving data ends most sleeps long before a timer is due. A timeout for each wait would cost a clock read
//! and a kernel timer that is set and cancelled, each time.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The alarm; see the module's documentation. Watch it edge-triggered while the driver sleeps; it is never
/// read.
pub(crate) struct Alarm {
    timerfd: OwnedFd,
    /// Time at which the alarm fires. The alarm needn't be set for later times.
    rings_at: Option<Instant>,
}

impl Alarm {
    /// # Errors
    /// The kernel is out of file descriptors or memory.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timerfd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timerfd, rings_at: None })
    }

    /// Makes the alarm fire at `at` or earlier.
    ///
    /// # Errors
    /// The kernel refuses to set the timer, which isn't expected.
    #[inline]
    pub(crate) fn set(&mut self, at: Instant) -> io::Result<()> {
        if self.rings_at.is_some_and(|rings_at| rings_at <= at) {
            return Ok(());
        }
        self.rearm(at)
    }

    fn rearm(&mut self, at: Instant) -> io::Result<()> {
        // Zero would disable the timer.
        let delay = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(delay).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timerfd, TimerfdTimerFlags::empty(), &once)?;
        self.rings_at = Some(at);
        Ok(())
    }

    /// Records that the kernel has reported the alarm.
    pub(crate) fn rang(&mut self) {
        self.rings_at = None;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timerfd.as_fd()
    }
}
