//! JSON texts (RFC 8259) from strangers: checked and stripped of whitespace without recursion, and compared
//! as JavaScript would compare what it parsed.
//!
//! No value is built: a document stays the text it is, numbers and strings keep their spelling. Nesting
//! deeper than [`DEPTH_MAX`] is refused, so whoever parses what passed here may recurse.

mod fingerprint;
mod minify;
#[cfg(test)]
mod tests;

pub(crate) use fingerprint::{Fingerprint, Fingerprints};
pub(crate) use minify::{is_shallow, minify};

use std::fmt;

/// How many arrays and objects may be open at once (DESIGN.md, "Feeds").
pub const DEPTH_MAX: usize = 128;

/// Why a text isn't the JSON that was promised. Always the fault of whoever wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonError {
    /// The bytes aren't UTF-8 from this offset on.
    Utf8(usize),
    /// It ends in the middle of a value, or is empty.
    Incomplete,
    /// A byte at this offset that may not be there.
    Unexpected(usize),
    /// More than [`DEPTH_MAX`] arrays and objects inside each other, at this offset.
    TooDeep(usize),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utf8(at) => write!(f, "not UTF-8 at byte {at}"),
            Self::Incomplete => write!(f, "it ends in the middle of a value"),
            Self::Unexpected(at) => write!(f, "unexpected at byte {at}"),
            Self::TooDeep(at) => write!(f, "nested deeper than {DEPTH_MAX} at byte {at}"),
        }
    }
}

impl std::error::Error for JsonError {}
