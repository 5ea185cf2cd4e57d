//! The body of a request that names more feeds than fit into a URL: `{"feeds":{"KEY":"ID",…}}`. `ID` is the id of the last
//! event of the feed that the client has received, or `null`. Like any other id, it is a hint and never trusted.

use super::{StreamFeed, TOO_MANY_FEEDS, position_of};
use crate::model::KeyRule;
use std::fmt::Display;
use stentor_json as json;
use stentor_wire::sse::Positions;

/// Reads a body with at most `feeds_max` feeds. `keys` is the rule for valid keys.
///
/// # Errors
/// Texts for people.
pub(super) fn feeds(body: &[u8], keys: &KeyRule, feeds_max: usize) -> Result<Vec<StreamFeed>, String> {
    let wrong = |error: &dyn Display| format!("the body isn't {{\"feeds\":{{\"KEY\":\"ID\"}}}}: {error}");
    let text = str::from_utf8(body).map_err(|error| wrong(&error))?;
    json::check(text).map_err(|error| wrong(&error))?;
    let object = json::member(text, "feeds").filter(|feeds| feeds.starts_with('{'));
    let object = object.ok_or_else(|| wrong(&"it has no object `feeds`"))?;
    let mut feeds = Vec::new();
    for (key, id) in json::members(object) {
        if feeds.len() == feeds_max {
            return Err(wrong(&TOO_MANY_FEEDS));
        }
        let key = keys.parse(&json::unescape(key)).map_err(|error| wrong(&error))?;
        let id = match id {
            "null" => None,
            id => Some(json::string(id).ok_or_else(|| wrong(&"an id is a string or null"))?),
        };
        let position = id.and_then(|id| position_of(Positions::parse(&id), &key));
        feeds.push((key, position));
    }
    Ok(feeds)
}
