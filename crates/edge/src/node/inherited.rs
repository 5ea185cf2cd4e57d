//! Listening sockets of a service manager or of another process, divided among the cores.
//!
//! A core listens in rounds: once at each listener, in the order of their numbers, and then once more if there are more sockets
//! than cores. So the number of a socket, modulo the number of listeners, is the number of its listener. With fewer sockets than
//! cores, several cores accept from one socket.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use stentor_hub::CoreId;

/// The sockets of each listener, by its number. Empty if the cores open their own.
#[derive(Clone, Default)]
pub(super) struct Inherited(pub(super) Vec<Vec<Arc<OwnedFd>>>);

impl Inherited {
    /// The number of rounds, so that each socket has a core.
    pub(super) fn rounds(&self, cores: usize) -> usize {
        self.0.iter().map(|sockets| sockets.len().div_ceil(cores)).max().unwrap_or(0).max(1)
    }

    /// Returns `true` if the listener has sockets.
    pub(super) fn has(&self, listener: usize) -> bool {
        self.0.get(listener).is_some_and(|sockets| !sockets.is_empty())
    }

    /// Returns the socket on which a core accepts for a listener in a round. `None` if the listener has no inherited sockets.
    pub(super) fn socket(
        &self,
        listener: usize,
        (round, core, cores): (usize, CoreId, usize),
    ) -> Option<Arc<OwnedFd>> {
        let sockets = self.0.get(listener)?;
        sockets.get((round * cores + core).checked_rem(sockets.len())?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn every_socket_has_a_core_and_every_core_a_socket() {
        for (sockets, cores) in [(1, 1), (1, 4), (4, 1), (3, 2), (2, 3), (5, 2)] {
            let all: Vec<Arc<OwnedFd>> =
                (0..sockets).map(|_| Arc::new(std::fs::File::open("/dev/null").unwrap().into())).collect();
            let inherited = Inherited(vec![all.clone(), Vec::new()]);
            let mut found = Vec::new();
            for core in 0..cores {
                for round in 0..inherited.rounds(cores) {
                    found.push(inherited.socket(0, (round, core, cores)).unwrap().as_raw_fd());
                }
                assert!(inherited.socket(1, (0, core, cores)).is_none());
            }
            assert!(all.iter().all(|socket| found.contains(&socket.as_raw_fd())), "{sockets} {cores}");
        }
    }
}
