//! The use of the process's file descriptors, computed from the current RLIMIT_NOFILE.
//!
//! Connections may use three quarters. The rest is reserved, so that other parts still work when clients
//! exhaust their share: the driver's own descriptors, the admin port, upstreams, and frames in memfds.

use rustix::process::{Resource, getrlimit};

/// Minimum number of reserved descriptors, unless that is more than half. With a small limit, a quarter is less than
/// a server needs before its first client.
const RESERVED_MIN: u32 = 64;

/// Returns the process's limit of file descriptors.
pub(crate) fn limit() -> u32 {
    // `None` means unlimited.
    getrlimit(Resource::Nofile).current.map_or(u32::MAX, |max| u32::try_from(max).unwrap_or(u32::MAX))
}

/// Returns the number of file descriptors for connections.
pub(crate) fn for_connections() -> u32 {
    share(limit())
}

/// Returns the maximum number of connections that a driver accepts per turn: a small part of the total, so
/// that a connection is read before it can be evicted.
pub(crate) fn accepts_per_turn(wanted: usize) -> usize {
    wanted.min(for_connections() as usize / 16).max(1)
}

fn share(limit: u32) -> u32 {
    limit - (limit / 4).max(RESERVED_MIN.min(limit / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_three_quarters_of_the_descriptors_but_never_all() {
        fn check(limit: u32, expect: u32) {
            assert_eq!(share(limit), expect, "{limit}");
        }
        check(0, 0);
        check(20, 10);
        check(100, 50);
        check(200, 136);
        check(1_024, 768);
        check(1_048_576, 786_432);
        check(u32::MAX, u32::MAX / 4 * 3 + 3);
    }
}
