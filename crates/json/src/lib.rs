//! JSON text (RFC 8259): checked, cut into parts, unescaped, escaped and minified. No tree, no recursion, no I/O.
//!
//! ```
//! let text = r#"{"id": 7, "name": "Ada \u2665"}"#;
//! stentor_json::check(text)?;
//! assert_eq!(stentor_json::member(text, "id"), Some("7"));
//! assert_eq!(stentor_json::string_member(text, "name").as_deref(), Some("Ada ♥"));
//! assert_eq!(stentor_json::minify(text.into())?, br#"{"id":7,"name":"Ada \u2665"}"#);
//! # Ok::<(), stentor_json::Error>(())
//! ```
//!
//! | task | functions |
//! |---|---|
//! | check, find the end of a value | [`check`], [`check_list`], [`value_end`], [`depth`] |
//! | follow every value | [`scan()`] with a [`Visitor`] |
//! | cut into parts | [`elements`], [`members`], [`member`], [`string_member`] |
//! | read strings | [`RawString`], [`string()`], [`unescape`], [`string_is`] |
//! | write strings | [`write_string`], [`write_escaped`], [`is_plain`] |
//! | remove whitespace | [`minify()`], [`minify_to`], [`without_space`] |
//! | skip over much checked text | [`mask`], [`Strings`] |
//!
//! Decisions:
//! * The scanner accepts the same texts as `JSON.parse`: numbers of any size, duplicate names, escaped
//!   unpaired surrogates. Arrays and objects may be nested [`DEPTH_MAX`] levels deep.
//! * The scanner is our own because it runs over every event of every client. It bounds the depth, reports
//!   the ends of values and the position of an error, and never allocates. It takes 0.7× the time of
//!   serde_json's `IgnoredAny` for an event of 64 bytes and 0.8× for one of 1 kB
//!   (`crates/wire/benches/socketio_timing.rs`). Property tests compare the two.
//! * The crate doesn't interpret numbers and builds no values. Equality of values is `stentor-delta`'s
//!   concern.
//!
//! Invariant: functions that expect checked text accept any other text as well, without a panic and in linear
//! time. The result is then meaningless.
#![forbid(unsafe_code)]

mod blocks;
mod bytes;
mod escape;
mod minify;
mod number;
mod parts;
mod scan;
mod string;

use std::fmt;

pub use blocks::{BLOCK_BYTES, Strings, mask};
pub use escape::{Escaping, is_plain, write_escaped, write_string, write_wtf8};
pub use minify::{depth, minify, minify_to, without_byte_order_mark, without_space};
pub use number::number_text;
pub use parts::{Elements, Members, elements, member, members, string_member};
pub use scan::{
    LEVELS_MAX, Scalar, Visitor, check, check_list, is_space, scan, skip_space, strip_byte, trim_end,
    trim_start, value_end,
};
pub use string::{RawString, replace_lone_surrogates, string, string_is, unescape, unescape_to_wtf8};

/// Maximum depth of arrays and objects; `[]` has depth 1.
pub const DEPTH_MAX: usize = 128;

/// Reason why a text isn't a JSON value. The author of the text is at fault. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The text isn't UTF-8 from this offset.
    Utf8(usize),
    /// The byte at this offset isn't allowed there.
    Unexpected(usize),
    /// The text ends before its value does.
    Incomplete,
    /// The array or object at this offset is nested deeper than [`DEPTH_MAX`].
    TooDeep(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utf8(at) => write!(f, "not UTF-8 at byte {at}"),
            Self::Unexpected(at) => write!(f, "not JSON at byte {at}"),
            Self::Incomplete => f.write_str("the JSON text ends too early"),
            Self::TooDeep(at) => write!(f, "nested too deep at byte {at}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
