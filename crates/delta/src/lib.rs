//! JSON Patch (RFC 6902) on texts: compares two versions of a document, and applies patches.
//!
//! ```
//! use stentor_delta::{ApplyLimits, Delta, Differ, Options, Seed, apply};
//!
//! let old = br#"{"matches":[{"id":7,"score":[0,0]},{"id":8,"score":[2,1]}]}"#;
//! let new = br#"{"matches":[{"id":7,"score":[0,0]},{"id":8,"score":[2,2]}]}"#;
//!
//! // Draw the seed at random when the process starts.
//! let differ = Differ::new(Options::default(), Seed([1, 2]));
//! let Delta::Patch(patch) = differ.diff(&differ.parse(old)?, &differ.parse(new)?).delta else {
//!     panic!("the patch is shorter than the document");
//! };
//! assert_eq!(patch, br#"[{"op":"replace","path":"/matches/1/score/1","value":2}]"#);
//! assert_eq!(apply(old, &patch, ApplyLimits::default())?, new);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Values are compared as in JavaScript: the last of duplicate names counts; the order of names and the
//! spelling don't matter. Numbers are the exception: they are equal if their exact decimal values are, not
//! their doubles, so that a change in the last of 19 digits counts. Values in a patch keep their spelling,
//! without whitespace.
//!
//! Applying a patch to the old value always gives the new one: equal hashes are confirmed by comparison
//! before a value is left out of a patch. Patches consist of `add`, `remove`, `replace` and `move`. There is
//! no `test`, because receivers know their version by its offset. There is no `copy`, because equal values
//! elsewhere in the document aren't searched for.
//!
//! **Bounds.** Both documents are parsed for one comparison. A parsed document takes 24 bytes per value (a
//! value takes at least two bytes of text, usually 13 to 20), for at most [`Options::values_max`] values.
//! Matching two completely different arrays takes about as much again. In total, real documents take two to
//! three times the size of their texts, the densest ones (`[0,1,…`) 26 times. Time is counted in steps, at
//! most [`Options::steps_per_byte`] for each byte of both texts. Once they are used up, values that still
//! differ are replaced as a whole. Documents are nested at most [`DEPTH_MAX`] levels deep.
//!
//! **Modules.** `lockstep` compares two texts as far as possible without parsing them. For the rest, `tape`
//! is the parsed form; `walk` descends two tapes; `object` and `array` match members and elements, guided by
//! `identity` and `matching`; `ignored` detects changes that don't count; `order` turns an array's plan into
//! operations and `write` writes them. `apply` applies patches, `join` joins them.
#![forbid(unsafe_code)]

mod apply;
mod array;
mod hash;
mod identity;
mod ignored;
mod join;
mod lockstep;
mod matching;
mod number;
mod object;
mod order;
mod tape;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod walk;
mod write;

pub use apply::{ApplyError, ApplyLimits, apply};
pub use hash::Seed;
pub use ignored::{Ignored, PointerError};
pub use join::join;
pub use stentor_json::DEPTH_MAX;
pub use tape::Parsed;
pub use text::ParseError;

use hash::Keys;
use ignored::Verdict;
use lockstep::Unsure;
use std::borrow::Cow;
use walk::{Walk, Work};
use write::Writer;

/// Options of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Names of members that identify the objects of an array, tried in this order before `id` and similar
    /// names.
    pub identity: Vec<String>,
    /// Places whose changes alone don't count. They are sent together with other changes.
    pub ignored: Ignored,
    /// A patch is used if it is shorter than this percentage of the new document without whitespace.
    pub patch_percent_max: u32,
    /// Maximum number of values in a document, on all levels.
    pub values_max: usize,
    /// Steps (a few nanoseconds each) allowed for each byte of both texts.
    pub steps_per_byte: u32,
}

impl Default for Options {
    /// Returns no names, no places, 100 %, 2²⁰ values, 16 steps.
    fn default() -> Self {
        Self {
            identity: Vec::new(),
            ignored: Ignored::default(),
            patch_percent_max: 100,
            values_max: 1 << 20,
            steps_per_byte: 16,
        }
    }
}

/// The delta for a receiver of the old document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// The value is the same, except at places of [`Options::ignored`].
    Unchanged,
    /// A JSON Patch: an array of operations.
    Patch(Vec<u8>),
    /// The new document: a patch would be longer than [`Options::patch_percent_max`] allows.
    Snapshot,
}

/// A delta and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// The delta.
    pub delta: Delta,
    /// Steps spent on the comparison, without parsing.
    pub steps: u64,
}

/// A new version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<'t> {
    /// The text without whitespace.
    pub text: Cow<'t, [u8]>,
    /// The delta from the previous version.
    pub diff: Diff,
}

/// Compares documents. It has no state besides its options.
#[derive(Clone, Debug)]
pub struct Differ {
    options: Options,
    keys: Keys,
}

impl Differ {
    /// Makes a differ. `seed` seeds the hashes. Patches of the same two documents differ by seed only if
    /// hashes of different values collide.
    pub fn new(options: Options, seed: Seed) -> Self {
        Self { options, keys: Keys::new(seed) }
    }

    /// Parses one JSON value (RFC 8259, in UTF-8, without a byte order mark).
    ///
    /// # Errors
    ///
    /// The text isn't JSON, is nested too deep or has too many values.
    pub fn parse<'t>(&self, text: &'t [u8]) -> Result<Parsed<'t>, ParseError> {
        Parsed::parse(text, &self.keys, self.options.values_max)
    }

    /// Returns the new version of a document. `old` is the text that this function returned for the previous
    /// version, if there is one.
    ///
    /// Does the same as [`parse`](Self::parse) and [`diff`](Self::diff) in less time: the common parts of
    /// both texts aren't parsed. The patch may differ from theirs.
    ///
    /// # Errors
    ///
    /// The same as for [`parse`](Self::parse).
    pub fn update<'t>(&self, old: Option<&[u8]>, new: &'t [u8]) -> Result<Update<'t>, ParseError> {
        let Some(old) = old else {
            let diff = Diff { delta: Delta::Snapshot, steps: 0 };
            return Ok(Update { text: self.parse(new)?.into_minified(), diff });
        };
        if let Some(update) = self.update_in_place(old, new, usize::MAX) {
            return Ok(update);
        }
        let parsed = self.parse(new)?;
        let diff = self.parse(old).ok().map(|old| self.diff(&old, &parsed));
        let diff = diff.unwrap_or(Diff { delta: Delta::Snapshot, steps: 0 });
        Ok(Update { text: parsed.into_minified(), diff })
    }

    /// Does the same as [`update`](Self::update), if no more than `parse_bytes_max` bytes of both texts must be
    /// parsed for it. `None` otherwise, and if `new` isn't JSON. Takes time in proportion to the lengths of the
    /// texts: in a release build about a microsecond for a kilobyte, and five if `new` has much whitespace.
    pub fn update_in_place<'t>(
        &self,
        old: &[u8],
        new: &'t [u8],
        parse_bytes_max: usize,
    ) -> Option<Update<'t>> {
        let compare = |new: &[u8]| lockstep::compare(&self.options, &self.keys, old, new, parse_bytes_max);
        let (text, compared) = match compare(new) {
            Err(Unsure::Space) => {
                let text = stentor_json::without_space(new)?;
                let compared = compare(&text);
                (Cow::Owned(text), compared)
            }
            compared => (Cow::Borrowed(new), compared),
        };
        let (writer, steps) = compared.ok()?;
        let is_long = writer.len() > self.patch_bytes_max(text.len());
        let patch = writer.finish();
        let delta = match self.options.ignored.judge(&patch) {
            Verdict::Ignored => Delta::Unchanged,
            Verdict::Changed if is_long => Delta::Snapshot,
            Verdict::Changed => Delta::Patch(patch),
            Verdict::Unsure => return None,
        };
        Some(Update { text, diff: Diff { delta, steps } })
    }

    /// Returns the maximum size of a patch for a new document of this size.
    fn patch_bytes_max(&self, bytes: usize) -> usize {
        let percent = self.options.patch_percent_max as usize;
        (bytes.saturating_mul(percent) / 100).saturating_sub(1)
    }

    /// Returns the delta from `old` to `new`.
    ///
    /// # Panics
    ///
    /// If one of the documents was parsed by a differ with another seed.
    pub fn diff(&self, old: &Parsed<'_>, new: &Parsed<'_>) -> Diff {
        assert!(*old.keys() == self.keys && *new.keys() == self.keys, "parsed with another seed");
        let work = Work::for_bytes(&self.options, old.minified().len() + new.minified().len());
        let mut walk = Walk { old, new, options: &self.options, writer: Writer::new(), work };
        let delta = walk.root(self.patch_bytes_max(new.minified().len()));
        Diff { delta, steps: walk.work.done }
    }
}

impl Walk<'_> {
    fn root(&mut self, limit: usize) -> Delta {
        if self.same(0, 0) || !self.differ() {
            return Delta::Unchanged;
        }
        match self.value(0, 0, limit) {
            Ok(()) => Delta::Patch(std::mem::replace(&mut self.writer, Writer::new()).finish()),
            Err(_) => Delta::Snapshot,
        }
    }
}
