//! The wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    since_1970().as_secs()
}

/// Returns the milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}
