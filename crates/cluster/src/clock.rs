//! The clocks of a node.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tokio's clock, which tests can stop.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock, since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
