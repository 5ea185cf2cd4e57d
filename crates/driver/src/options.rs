//! Options, with measured defaults.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The options of a driver, the same for every kind.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a receive buffer in bytes, at least 1: the maximum that one [`crate::Event::Received`]
    /// carries. There is one per driver, and as many more as the caller keeps.
    pub receive_buffer_bytes: usize,
    /// Maximum number of kernel events gathered per turn, at least 1.
    pub events_per_turn: usize,
    /// Maximum number of connections accepted per turn, at least 1, so that a flood of them doesn't stop the
    /// traffic of existing ones.
    pub accepts_per_turn: usize,
    /// Time for which the listeners pause after a failed accept: the failure (out of file descriptors)
    /// persists until one is closed.
    pub accept_pause: Duration,
    /// `true` reads the time of a [`crate::Event::Received`] from the clock; `false` uses the start of the
    /// turn.
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

/// The options of a listener.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Length of the accept queue in connections.
    pub backlog: u32,
    /// `true` if several drivers may listen at the same address (SO_REUSEPORT).
    pub reuse_port: bool,
    /// TCP_NOTSENT_LOWAT in bytes, set on the listener and inherited: bounds the kernel memory of a client
    /// that doesn't read (177 kB instead of 4.1 MB at 16 kB).
    pub notsent_lowat_bytes: u32,
    /// A listening socket to use in place of a new one, from [`listening_socket`](crate::listening_socket).
    pub socket: Option<Arc<OwnedFd>>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { backlog: 4096, reuse_port: true, notsent_lowat_bytes: 16 * 1024, socket: None }
    }
}
