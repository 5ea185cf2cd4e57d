//! CPU time of a process, in nanoseconds, by its own clock (clock_getcpuclockid(3)).
//!
//! The clock counts user and system time of all threads, including ended ones. On loopback, it also counts the
//! receiver's half of TCP, which runs in the sender's context. That is the same for every server.

use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

/// The CPU clock of a process.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(ClockId);

impl CpuClock {
    /// The clock of process `pid`. Returns an error if there is no such process.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self(clock_getcpuclockid(Pid::from_raw(pid))?))
    }

    /// This process's clock.
    pub fn own() -> Self {
        Self(ClockId::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// CPU time used so far. Returns an error once the process has ended.
    pub fn read(&self) -> io::Result<Duration> {
        Ok(self.0.now()?.into())
    }
}

#[cfg(test)]
mod tests;
