//! The query of a client's first request: feeds, their options, and the envelope of messages.

use crate::executor::Feeds;
use crate::model::{Key, KeyRule};
use crate::subscribe_options::{OptionsError, RequestedOptions};
use stentor_wire::http1;

/// The options in a query.
#[derive(Default)]
pub(crate) struct ConnectQuery {
    keys: Vec<Key>,
    /// `true` for raw mode.
    pub(crate) raw: bool,
    /// The replacement for `Last-Event-ID` of clients that can't send this header.
    pub(crate) last_event_id: Option<String>,
    policy: Option<String>,
    delta: Option<bool>,
    rate: Option<f64>,
}

impl ConnectQuery {
    /// Reads `feed`, `resourceId`, `format`, `delta`, `policy`, `rate` and `lastEventId`, and ignores other parameters.
    /// Client libraries write a slash in a query as `%2F` (`encodeURIComponent`), so `%2F` means a slash here. `keys` is
    /// the rule for valid keys.
    ///
    /// # Errors
    /// The mistake, for people.
    pub(super) fn parse(text: &str, keys: &KeyRule) -> Result<Self, String> {
        let mut query = Self::default();
        for (name, value) in http1::query_pairs(text) {
            match &*name {
                "feed" | "resourceId" => {
                    query.keys.push(keys.parse(&value).map_err(|error| format!("feed: {error}"))?);
                }
                "format" => query.raw = value == "raw",
                "lastEventId" => query.last_event_id = Some(value.into_owned()),
                "policy" => query.policy = Some(value.into_owned()),
                "rate" => {
                    query.rate = Some(value.parse().map_err(|_| OptionsError::Rate.to_string())?);
                }
                "delta" => {
                    query.delta = Some(match &*value {
                        "1" | "true" => true,
                        "0" | "false" => false,
                        _ => return Err("delta is 1 or 0".to_owned()),
                    });
                }
                _ => {}
            }
        }
        Ok(query)
    }

    /// The feeds, including `more`. With `deltas`, deltas are sent unless the client declines them.
    pub(crate) fn feeds(&mut self, more: Option<Key>, deltas: bool) -> Result<Feeds, String> {
        let asked = RequestedOptions { policy: self.policy.as_deref(), delta: self.delta, rate: self.rate };
        let options = asked.of_feed(deltas).map_err(|error| error.to_string())?;
        let mut keys = std::mem::take(&mut self.keys);
        keys.extend(more);
        Ok(Feeds { keys, options })
    }
}

#[cfg(test)]
mod tests;
