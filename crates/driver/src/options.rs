//! What can be set, with the defaults that were measured.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How a driver works; the same for every kind.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a receive buffer in bytes, at least 1: what one [`crate::Event::Received`] carries at most.
    /// There is one per driver, and as many more as the caller keeps.
    pub receive_buffer_bytes: usize,
    /// Kernel events gathered per turn at most, at least 1.
    pub events_per_turn: usize,
    /// Connections accepted per turn at most, at least 1, so that a storm of them doesn't stop the traffic
    /// of those that are there.
    pub accepts_per_turn: usize,
    /// How long the listeners pause after a failed accept: the failure (out of descriptors) stays until
    /// something is closed.
    pub accept_pause: Duration,
    /// Whether the time of a [`crate::Event::Received`] is read from the clock, or is that of the turn's begin.
    pub receive_times: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 64 * 1024,
            events_per_turn: 1024,
            accepts_per_turn: 64,
            accept_pause: Duration::from_millis(100),
            receive_times: true,
        }
    }
}

/// How a listener is opened.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Length of the accept queue, connections.
    pub backlog: u32,
    /// Whether several drivers may listen at the same address (SO_REUSEPORT).
    pub reuse_port: bool,
    /// TCP_NOTSENT_LOWAT in bytes, set on the listener and inherited: bounds what a client that doesn't
    /// read pins in the kernel (177 kB instead of 4.1 MB at 16 kB).
    pub notsent_lowat_bytes: u32,
    /// A socket that listens already, in place of a new one: from [`listening_socket`](crate::listening_socket).
    pub socket: Option<Arc<OwnedFd>>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { backlog: 4096, reuse_port: true, notsent_lowat_bytes: 16 * 1024, socket: None }
    }
}
