//! What a client asks for in the query of its first request: feeds, their options, and the form of messages.

use crate::executor::Feeds;
use crate::model::{Key, KeyError};
use crate::subscribe_options::{OptionsError, RequestedOptions};
use std::fmt;
use stentor_wire::http1;

/// What a query asks for.
#[derive(Default)]
pub(crate) struct ConnectQuery {
    keys: Vec<Key>,
    /// Bodies only.
    pub(crate) raw: bool,
    /// What stands for `Last-Event-ID` where a client can't send that.
    pub(crate) last_event_id: Option<String>,
    policy: Option<String>,
    delta: Option<bool>,
    rate: Option<f64>,
}

/// Why a query asks for nothing that can be had. Always the fault of whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryError {
    Feed(KeyError),
    Options(OptionsError),
    Delta,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feed(error) => write!(f, "feed: {error}"),
            Self::Options(error) => error.fmt(f),
            Self::Delta => f.write_str("delta is 1 or 0"),
        }
    }
}

impl ConnectQuery {
    /// Reads `feed`, `resourceId`, `format`, `delta`, `policy`, `rate` and `lastEventId`; others are somebody else's. In a
    /// query `%2F` is how clients' libraries write a slash, so it is one.
    pub(crate) fn parse(text: &str) -> Result<Self, QueryError> {
        let mut query = Self::default();
        for (name, value) in http1::query_pairs(text) {
            match &*name {
                "feed" | "resourceId" => query.keys.push(Key::parse(&value).map_err(QueryError::Feed)?),
                "format" => query.raw = value == "raw",
                "lastEventId" => query.last_event_id = Some(value.into_owned()),
                "policy" => query.policy = Some(value.into_owned()),
                "rate" => {
                    let rate = value.parse().map_err(|_| QueryError::Options(OptionsError::Rate))?;
                    query.rate = Some(rate);
                }
                "delta" => {
                    query.delta = Some(match &*value {
                        "1" | "true" => true,
                        "0" | "false" => false,
                        _ => return Err(QueryError::Delta),
                    });
                }
                _ => {}
            }
        }
        Ok(query)
    }

    /// The feeds, and those of `more`; `deltas`: whether they come as deltas where nothing is said of them.
    pub(crate) fn feeds(&mut self, more: Option<Key>, deltas: bool) -> Result<Feeds, QueryError> {
        let asked = RequestedOptions { policy: self.policy.as_deref(), delta: self.delta, rate: self.rate };
        let options = asked.of_feed(deltas).map_err(QueryError::Options)?;
        let mut keys = std::mem::take(&mut self.keys);
        keys.extend(more);
        Ok(Feeds { keys, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::SubscribeOptions;
    use crate::model::Policy;
    use std::time::Duration;

    #[test]
    fn queries() {
        let feeds = |query: &str| ConnectQuery::parse(query)?.feeds(None, true);
        let refused = |query: &str| feeds(query).err().map(|error| error.to_string()).unwrap_or_default();
        let Feeds { keys, options } =
            feeds("feed=a%2Fb&x=1&resourceId=c&rate=2&delta=0&policy=latest").unwrap();
        assert_eq!(keys.iter().map(Key::as_str).collect::<Vec<_>>(), ["a/b", "c"]);
        let interval = Duration::from_millis(500);
        assert_eq!(options, SubscribeOptions { policy: Policy::Latest, deltas: false, interval });
        assert!(feeds("").unwrap().keys.is_empty());
        assert!(refused("feed=a//b").starts_with("feed: the key has an empty segment"));
        assert!(refused("policy=slowly").contains("no policy \"slowly\""));
        for query in ["rate=", "rate=x", "rate=0", "rate=NaN", "rate=2&policy=queue"] {
            assert!(refused(query).contains("rate"), "{query}: {}", refused(query));
        }
        assert_eq!(refused("delta=yes"), "delta is 1 or 0");
        let query = ConnectQuery::parse("format=raw&lastEventId=a!1!2").unwrap();
        assert_eq!((query.raw, query.last_event_id.as_deref()), (true, Some("a!1!2")));
    }
}
