//! Limits per address, user and session, which protect the other clients. They are off by default, because all clients behind a
//! proxy that isn't trusted have one address.
//!
//! - `counts`: connections and sessions of addresses and users, for all cores together. `shared::limits` has the
//!   tables, and `executor::holds` the entries of each session.
//! - `rates`: messages of a core's sessions.
//! - `rate`: measures a rate.

pub(crate) mod counts;
mod options;
mod rate;
pub(crate) mod rates;

pub use counts::Slot;
pub use options::{AddressLimits, LimitPolicy, SessionLimits, UserLimits};
pub(crate) use rate::Rate;

use crate::ports::Denial;
use std::time::Duration;

/// The code of a [`Denial`] for a limit.
pub(crate) const TOO_MANY_REQUESTS: &str = "too_many_requests";

/// The error for a client that exceeds a rate.
pub(crate) fn rate_reached(key: &str) -> Denial {
    Denial { retry: true, ..Denial::new(TOO_MANY_REQUESTS, format!("too many requests ({key})")) }
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// The limit's key in the configuration.
    pub key: &'static str,
    /// Time after which a retry may succeed.
    pub(crate) retry_after: Duration,
}

impl LimitReached {
    /// The error for the client.
    pub fn denial(self) -> Denial {
        rate_reached(self.key)
    }

    /// The value of `Retry-After`: whole seconds, at least one.
    pub(crate) fn retry_after_seconds(self) -> u64 {
        self.retry_after.as_millis().div_ceil(1_000).max(1) as u64
    }
}
