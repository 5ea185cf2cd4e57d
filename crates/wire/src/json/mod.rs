//! JSON text, RFC 8259, checked and cut into pieces where it lies: no tree, no allocation, no recursion.
//!
//! What a client sends as JSON is passed on as text. So all that is needed here is to be sure that it is JSON
//! ([`check`], [`value_end`]), to find the parts of a list or an object ([`elements`], [`members`]), and to read and
//! write strings.
//!
//! Decisions:
//! * Accepted is what `JSON.parse` accepts, to a depth of [`DEPTH_MAX`]: numbers of any size, names that appear twice,
//!   escaped halves of surrogate pairs. Such a half alone is read as U+FFFD, and passed on as it was written.
//! * The scanner is our own because it runs over every event that a client sends: it bounds the depth, says where
//!   values end and never allocates, which serde_json's `IgnoredAny` doesn't. It takes about half the
//!   time for an event of 64 bytes (60 ns) and three quarters for one of 1 kB, measured with
//!   `crates/wire/examples/socketio_timing.rs` on a busy machine. Property tests hold it against serde_json.
//!
//! Deliberately absent: values of numbers, trees, writing anything but strings.
//!
//! Invariant: every function that takes text which has been checked before takes other text as well, without a panic
//! and in linear time; what it returns then means nothing.

pub(crate) mod carried;
mod scan;
mod string;

use std::borrow::Cow;
use std::fmt;

pub use scan::{check, value_end};
pub(crate) use scan::{is_space, skip_space};
pub(crate) use string::string_is;
pub use string::{string, unescape, write_script_string, write_string};

/// Levels of arrays and objects in each other, counted from 1.
pub const DEPTH_MAX: u32 = 128;

/// Why text is refused. Its writer erred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// It isn't JSON.
    Syntax,
    /// It has more than [`DEPTH_MAX`] levels.
    TooDeep,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Syntax => "the text is not JSON",
            Error::TooDeep => "the JSON is nested too deeply",
        })
    }
}

impl std::error::Error for Error {}

/// The values of a list `1,"two",[3]` (the text between an array's brackets), as text. The list has been checked.
pub fn elements(list: &str) -> Elements<'_> {
    Elements { list, at: 0 }
}

/// Iterator of [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    list: &'a str,
    /// `list[at..]` is still to come.
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

/// The members of an object `{"name":value}`, both as text, the name without its quotes but still escaped. The object
/// has been checked. Nothing, if the text isn't an object.
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

/// The value of an object's member, as text; of several with that name the last one, as `JSON.parse` has it. The object
/// has been checked.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    members(object).filter(|(raw, _)| string_is(raw, name)).last().map(|(_, value)| value)
}

/// The value of an object's member that is a string.
pub fn string_member<'a>(object: &'a str, name: &str) -> Option<Cow<'a, str>> {
    member(object, name).and_then(string)
}

#[cfg(test)]
mod tests;
