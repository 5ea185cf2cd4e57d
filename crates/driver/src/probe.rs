//! Determines the best driver for this machine.

use crate::UringDriver;

/// The kinds of driver that talk to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Edge-triggered epoll: [`crate::EpollDriver`]. Works on every Linux.
    Epoll,
    /// io_uring: [`crate::UringDriver`]. Needs Linux 6.1, and a container that allows it.
    IoUring,
}

/// The result of [`probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The best kind that works here.
    pub kind: Kind,
    /// Reason why `kind` isn't io_uring, as a text for the log; `None` if it is.
    pub fallback_reason: Option<String>,
}

/// Finds the best driver that works here. It tries io_uring rather than comparing versions, because
/// containers often forbid it.
pub fn probe() -> Probe {
    match UringDriver::check() {
        Ok(()) => Probe { kind: Kind::IoUring, fallback_reason: None },
        Err(reason) => Probe { kind: Kind::Epoll, fallback_reason: Some(reason) },
    }
}
