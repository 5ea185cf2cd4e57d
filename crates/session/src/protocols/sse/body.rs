//! The body of a request that names more feeds than fit into a URL: `{"feeds":{"KEY":"ID",…}}`. `ID` is the id of the last
//! event of the feed that the client has received, or `null`. Like any other id, it is a hint and never trusted.

use super::{StreamFeed, TOO_MANY_FEEDS, position_of};
use crate::model::KeyRule;
use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use stentor_wire::sse::Positions;

#[derive(Deserialize)]
struct StreamBody<'b> {
    #[serde(borrow)]
    feeds: &'b RawValue,
}

/// Reads the members of `feeds`. Stops with an error at the first member above the maximum.
struct FeedsVisitor<'r> {
    keys: &'r KeyRule,
    feeds_max: usize,
}

impl<'de> Visitor<'de> for FeedsVisitor<'_> {
    type Value = Vec<StreamFeed>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a member for each feed")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut feeds = Vec::new();
        while let Some((key, id)) = members.next_entry::<String, Option<String>>()? {
            if feeds.len() == self.feeds_max {
                return Err(A::Error::custom(TOO_MANY_FEEDS));
            }
            let key = self.keys.parse(&key).map_err(A::Error::custom)?;
            let position = id.and_then(|id| position_of(Positions::parse(&id), &key));
            feeds.push((key, position));
        }
        Ok(feeds)
    }
}

/// Reads a body with at most `feeds_max` feeds. `keys` is the rule for valid keys.
///
/// # Errors
/// Texts for people.
pub(super) fn feeds(body: &[u8], keys: &KeyRule, feeds_max: usize) -> Result<Vec<StreamFeed>, String> {
    let read = serde_json::from_slice::<StreamBody<'_>>(body).and_then(|body| {
        let mut feeds = serde_json::Deserializer::from_str(body.feeds.get());
        feeds.deserialize_map(FeedsVisitor { keys, feeds_max })
    });
    read.map_err(|error| format!("the body isn't {{\"feeds\":{{\"KEY\":\"ID\"}}}}: {error}"))
}
