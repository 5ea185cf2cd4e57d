//! Limits of what one address, user or session may take, so that one doesn't take it from others. Off by default: a proxy in
//! front that isn't trusted makes all of its clients one address.
//!
//! - [`counts`]: what addresses and users hold, for all cores together: [`crate::shared::limits`] has the tables, and
//!   [`crate::executor::holds`] what each session holds in them.
//! - [`rates`]: what the sessions of a core send.
//! - [`rate`]: how a rate is measured.

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

/// The error for a client that sends more than it may.
pub(crate) fn rate_reached(key: &str) -> Denial {
    Denial { retry: true, ..Denial::new(TOO_MANY_REQUESTS, format!("too many requests ({key})")) }
}

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// Which one: its key in the configuration.
    pub key: &'static str,
    /// After this time, it may not be reached any more.
    pub(crate) retry_after: Duration,
}

impl LimitReached {
    /// The error for clients.
    pub fn denial(self) -> Denial {
        rate_reached(self.key)
    }

    /// The value of `Retry-After`: whole seconds, at least one.
    pub(crate) fn retry_after_seconds(self) -> u64 {
        self.retry_after.as_millis().div_ceil(1_000).max(1) as u64
    }
}
