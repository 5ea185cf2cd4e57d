//! How many of the process's descriptors are for what, by RLIMIT_NOFILE as it is when this is asked.
//!
//! Connections may take three quarters. The rest is for everything that must work while clients take all that they
//! can get: the driver's own descriptors, the admin port, upstreams, and frames in memfds.

use rustix::process::{Resource, getrlimit};

/// Descriptors that aren't for connections, unless that would be more than half: with a small limit a quarter is
/// less than a server needs before it has met its first client.
const RESERVED_MIN: u32 = 64;

/// The limit.
pub(crate) fn limit() -> u32 {
    // None: no limit.
    getrlimit(Resource::Nofile).current.map_or(u32::MAX, |max| u32::try_from(max).unwrap_or(u32::MAX))
}

/// How many are for connections.
pub(crate) fn for_connections() -> u32 {
    share(limit())
}

/// Connections that a driver accepts per turn at most: a small part of those that there may be, so that one that has to
/// make room for others has been read from before.
pub(crate) fn accepts_per_turn(wanted: usize) -> usize {
    wanted.min(for_connections() as usize / 16).max(1)
}

/// How many are for frames in memfds.
pub(crate) fn for_frames() -> usize {
    limit() as usize / 8
}

fn share(limit: u32) -> u32 {
    limit - (limit / 4).max(RESERVED_MIN.min(limit / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_three_quarters_but_never_all() {
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
