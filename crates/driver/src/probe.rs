//! Which driver this machine can have.

use crate::UringDriver;

/// The kinds of driver that talk to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Edge-triggered epoll: [`crate::EpollDriver`]. Works on every Linux.
    Epoll,
    /// io_uring: [`crate::UringDriver`]. Needs Linux 6.1, and a container that allows it.
    IoUring,
}

/// What [`probe`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The best kind that works here.
    pub kind: Kind,
    /// Why that isn't io_uring, in words for the log; `None` if it is.
    pub fallback_reason: Option<String>,
}

/// Finds the best driver that works here. It tries rather than compares versions, as containers often forbid
/// what the kernel could do.
pub fn probe() -> Probe {
    match UringDriver::check() {
        Ok(()) => Probe { kind: Kind::IoUring, fallback_reason: None },
        Err(reason) => Probe { kind: Kind::Epoll, fallback_reason: Some(reason) },
    }
}
