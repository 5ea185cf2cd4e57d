//! The parts of arrays and objects, as text.

use super::scan::{skip_space, value_end};
use super::string::{string, string_is};
use std::borrow::Cow;

/// Iterates over the values of a list `1,"two",[3]` (the text between an array's brackets), as text. The list
/// must be checked.
pub fn elements(list: &str) -> Elements<'_> {
    Elements { list, at: 0 }
}

/// Iterator of [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    list: &'a str,
    /// The unread rest is `list[at..]`.
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.list.as_bytes();
        let start = skip_space(bytes, self.at);
        if start >= bytes.len() {
            return None;
        }
        let end = value_end(self.list, start).unwrap_or(bytes.len());
        self.at = skip_space(bytes, end) + 1;
        self.list.get(start..end)
    }
}

/// Iterates over the members of an object `{"name":value}`, both parts as text. The name is without its
/// quotes, but still escaped. The object must be checked. Empty if the text isn't an object.
pub fn members(object: &str) -> Members<'_> {
    let bytes = object.as_bytes();
    let start = skip_space(bytes, 0);
    let at = if bytes.get(start) == Some(&b'{') { start + 1 } else { bytes.len() };
    Members { object, at }
}

/// Iterator of [`members`].
#[derive(Debug, Clone)]
pub struct Members<'a> {
    object: &'a str,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        let bytes = self.object.as_bytes();
        let name_start = skip_space(bytes, self.at);
        if bytes.get(name_start) != Some(&b'"') {
            return None;
        }
        let name_end = value_end(self.object, name_start).ok()?;
        let start = skip_space(bytes, skip_space(bytes, name_end) + 1);
        let end = value_end(self.object, start).ok()?;
        self.at = skip_space(bytes, end) + 1;
        Some((self.object.get(name_start + 1..name_end - 1)?, self.object.get(start..end)?))
    }
}

/// Returns the value of an object's member, as text. The last of several members with the same name counts,
/// as in `JSON.parse`. The object must be checked.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    members(object).filter(|(raw, _)| string_is(raw, name)).last().map(|(_, value)| value)
}

/// Returns the value of an object's member if it is a string.
pub fn string_member<'a>(object: &'a str, name: &str) -> Option<Cow<'a, str>> {
    member(object, name).and_then(string)
}
