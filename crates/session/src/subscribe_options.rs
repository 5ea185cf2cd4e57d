//! Subscribe options. Messages of `stentor.v1`, events of Socket.IO and queries use the same names for them (docs/protocol.md).

use std::ops::RangeInclusive;
use std::time::Duration;
use stentor_hub::{Policy, SubscribeOptions};

/// The error text if a limit allows no further topic.
pub const TOO_MANY_TOPICS: &str =
    "the maximum of feeds and rooms is reached (limits.topics_max, limits.memory_bytes_max)";
/// The error text for too many feeds that were never fetched.
pub const TOO_MANY_COLD_KEYS: &str =
    "the maximum of new feeds is reached (limits.cold_keys_max, feeds_limits.keys_max); try again later";
/// The minimum and maximum rate, in versions per second. People don't notice a higher rate.
const RATES: RangeInclusive<f64> = 0.001..=1000.0;

/// The options of a subscription that a client requests.
#[derive(Clone, Copy, Default)]
pub(crate) struct RequestedOptions<'a> {
    pub(crate) policy: Option<&'a str>,
    pub(crate) delta: Option<bool>,
    pub(crate) rate: Option<f64>,
}

/// The reason why subscribe options are invalid. The client is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionsError {
    /// The policy doesn't exist, or isn't allowed for this kind of topic.
    #[error("there is no policy {0:?} here; known are latest (feeds), queue, drop_oldest")]
    Policy(String),
    /// A rate is given for a subscription other than that of a feed with policy `latest`.
    #[error("a rate is for feeds with the policy latest")]
    RateOfAll,
    /// The rate is out of range.
    #[error("the rate is a number of versions a second, {} to {}", RATES.start(), RATES.end())]
    Rate,
}

impl OptionsError {
    /// The code for a message of type `error`.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Policy(_) => "bad_policy",
            Self::RateOfAll | Self::Rate => "bad_rate",
        }
    }
}

impl RequestedOptions<'_> {
    /// The options for a feed. With `deltas`, deltas are sent unless the client declines them.
    pub(crate) fn of_feed(self, deltas: bool) -> Result<SubscribeOptions, OptionsError> {
        let policy = match self.policy {
            None | Some("latest") => Policy::Latest,
            other => policy(other)?,
        };
        let interval = match self.rate {
            None => Duration::ZERO,
            Some(_) if policy != Policy::Latest => return Err(OptionsError::RateOfAll),
            Some(rate) if RATES.contains(&rate) => Duration::from_secs_f64(1.0 / rate),
            Some(_) => return Err(OptionsError::Rate),
        };
        Ok(SubscribeOptions { policy, deltas: self.delta.unwrap_or(deltas), interval })
    }

    /// The options for a room.
    pub(crate) fn of_room(self) -> Result<SubscribeOptions, OptionsError> {
        let policy = policy(self.policy)?;
        if self.rate.is_some() {
            return Err(OptionsError::RateOfAll);
        }
        Ok(policy.into())
    }
}

fn policy(name: Option<&str>) -> Result<Policy, OptionsError> {
    match name {
        None | Some("queue") => Ok(Policy::Queue),
        Some("drop_oldest") => Ok(Policy::DropOldest),
        // The error repeats only the beginning of the client's text.
        Some(other) => Err(OptionsError::Policy(other.chars().take(40).collect())),
    }
}

#[cfg(test)]
mod tests;
