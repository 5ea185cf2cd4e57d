//! Ignored places: a change at these places alone doesn't count as a change of the document.
//!
//! A place is a JSON Pointer (RFC 6901) in which `*` stands for every member of an object and for every
//! element of an array. A value at such a place may change, appear and disappear.
//!
//! Two functions determine whether a document has changed elsewhere. [`Ignored::judge`] reads a patch, which
//! is cheap, but gives no definite answer if the patch replaces, adds or moves a value that contains an
//! ignored place. [`Walk::differs`] compares two parsed documents, and is always exact.
//!
//! Invariant: there are at most [`Ignored::POINTERS_MAX`] pointers, so that a set of them fits into a
//! [`PointerSet`].

use super::tape::{Kind, NodeId};
use super::text;
use super::walk::Walk;
use std::borrow::Cow;

/// Places whose changes are ignored. Empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(Vec<Vec<Segment>>);

/// A segment of a pointer, between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// `*`: any member or element.
    Any,
    /// A member's name, or an element's index.
    Part {
        /// The name in UTF-8.
        name: Vec<u8>,
        /// The name as [`Writer`](super::write::Writer) writes it into a path.
        token: Vec<u8>,
        index: Option<usize>,
    },
}

/// Reason for refusing a pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// There are too many pointers: this many.
    #[error("at most {max} pointers are allowed, found {0}", max = Ignored::POINTERS_MAX)]
    TooMany(usize),
    /// A pointer is too long: this many bytes.
    #[error("a pointer may have at most {max} bytes, found one of {0}", max = Ignored::POINTER_BYTES_MAX)]
    TooLong(usize),
    /// A pointer isn't empty and doesn't begin with a slash.
    #[error("expected a JSON pointer, which begins with a slash, such as \"/meta/age\"; found {0:?}")]
    NoSlash(String),
    /// A `~` isn't followed by `0` or `1`.
    #[error("a ~ in a JSON pointer is written ~0, and a slash in a name ~1: {0:?}")]
    Tilde(String),
    /// A `*` stands next to other characters.
    #[error("a * stands for a whole name or index, between slashes: {0:?}")]
    Star(String),
    /// A pointer covers the complete document or all of its members.
    #[error("the document would never change with {0:?}")]
    Everything(String),
}

/// A set of pointers, one bit each.
#[derive(Clone, Copy)]
pub(crate) struct PointerSet(u32);

/// A child of a value: a member with its raw name, or an element with its index.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    Name(&'a [u8]),
    Index(usize),
}

/// Whether a patch changes only ignored places. A patch has the first of these verdicts that one of its operations has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The patch also changes places that aren't ignored.
    Changed,
    /// The patch possibly changes ignored places only.
    Unsure,
    /// The patch changes ignored places only.
    Ignored,
}

impl Ignored {
    /// Maximum number of pointers.
    pub const POINTERS_MAX: usize = 32;
    /// Maximum length of a pointer in bytes.
    pub const POINTER_BYTES_MAX: usize = 256;

    /// Reads pointers such as `/generated_at` and `/items/*/age`.
    ///
    /// # Errors
    ///
    /// The first wrong pointer, or too many of them.
    pub fn parse(pointers: &[String]) -> Result<Self, PointerError> {
        if pointers.len() > Self::POINTERS_MAX {
            return Err(PointerError::TooMany(pointers.len()));
        }
        pointers.iter().map(|pointer| parse(pointer)).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the set of all pointers.
    fn all(&self) -> PointerSet {
        PointerSet(self.0.iter().fold(0, |set, _| set << 1 | 1))
    }

    /// Returns the pointers of `set` that continue to this child, after their first `depth` segments led to
    /// its parent. `None` if a pointer ends there.
    fn below(&self, set: PointerSet, depth: usize, part: Part<'_>) -> Option<PointerSet> {
        let name = match part {
            Part::Name(raw) => text::decoded(raw),
            Part::Index(_) => Cow::default(),
        };
        let mut below = PointerSet(0);
        for (number, pointer) in self.0.iter().enumerate() {
            let is_reached = match (pointer.get(depth), part) {
                _ if set.0 >> number & 1 == 0 => false,
                (Some(Segment::Any), _) => true,
                (Some(Segment::Part { name: own, .. }), Part::Name(_)) => **own == *name,
                (Some(Segment::Part { index: own, .. }), Part::Index(index)) => *own == Some(index),
                (None, _) => false,
            };
            if is_reached && pointer.len() == depth + 1 {
                return None;
            }
            below.0 |= u32::from(is_reached) << number;
        }
        Some(below)
    }

    /// Determines where a patch of this crate changes a document.
    pub(crate) fn judge(&self, patch: &[u8]) -> Verdict {
        match std::str::from_utf8(patch) {
            Ok("[]") => Verdict::Ignored,
            Ok(patch) if !self.0.is_empty() => {
                let operations = stentor_json::elements(&patch[1..patch.len() - 1]);
                let mut least = Verdict::Ignored;
                for operation in operations {
                    least = least.min(self.judge_operation(operation));
                    if least == Verdict::Changed {
                        break;
                    }
                }
                least
            }
            _ => Verdict::Changed,
        }
    }

    fn judge_operation(&self, operation: &str) -> Verdict {
        let verdicts = stentor_json::members(operation).map(|(name, value)| match name {
            "path" | "from" => {
                let path = &value[1..value.len() - 1];
                let verdicts = self.0.iter().map(|pointer| judge_path(pointer, path));
                verdicts.max().unwrap_or(Verdict::Changed)
            }
            // Any other operation shifts the indices of later elements.
            "op" if value != "\"replace\"" => Verdict::Unsure,
            _ => Verdict::Ignored,
        });
        verdicts.min().unwrap_or(Verdict::Unsure)
    }
}

/// Determines whether a path, as it stands between quotes in a patch, is at or below a pointer's place.
fn judge_path(pointer: &[Segment], path: &str) -> Verdict {
    let mut tokens = path.split('/').skip(1);
    let mut verdict = Verdict::Ignored;
    for segment in pointer {
        // Without a further token, the path's value contains the place.
        let Some(found) = tokens.next() else { return Verdict::Unsure };
        match segment {
            Segment::Any => {}
            Segment::Part { token, .. } if **token == *found.as_bytes() => {}
            // Indices in a patch refer to the array after the earlier operations.
            Segment::Part { index: Some(_), .. } if found.bytes().all(|b| b.is_ascii_digit()) => {
                verdict = Verdict::Unsure;
            }
            Segment::Part { .. } => return Verdict::Changed,
        }
    }
    verdict
}

fn parse(pointer: &str) -> Result<Vec<Segment>, PointerError> {
    if pointer.len() > Ignored::POINTER_BYTES_MAX {
        return Err(PointerError::TooLong(pointer.len()));
    }
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(PointerError::NoSlash(pointer.into()));
    }
    let segments = pointer.split('/').skip(1).map(|segment| {
        if segment.split('~').skip(1).any(|escape| !escape.starts_with(['0', '1'])) {
            return Err(PointerError::Tilde(pointer.into()));
        }
        match segment {
            "*" => Ok(Segment::Any),
            _ if segment.contains('*') => Err(PointerError::Star(pointer.into())),
            _ => Ok(part(&segment.replace("~1", "/").replace("~0", "~"))),
        }
    });
    let segments = segments.collect::<Result<Vec<_>, _>>()?;
    match segments[..] {
        [] | [Segment::Any] => Err(PointerError::Everything(pointer.into())),
        _ => Ok(segments),
    }
}

fn part(name: &str) -> Segment {
    let mut token = Vec::new();
    text::write_pointer_token(name.as_bytes(), &mut token);
    // An index has no leading zeros (RFC 6901, section 4).
    let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
    Segment::Part { name: name.into(), token, index }
}

impl Walk<'_> {
    /// Returns `true` if the documents, which differ, also differ at places that aren't ignored.
    pub(crate) fn differ(&mut self) -> bool {
        self.differs(0, 0, self.options.ignored.all(), 0)
    }

    /// Returns `true` if two different values also differ at places that aren't ignored. The first `depth`
    /// segments of these pointers lead to the values.
    fn differs(&mut self, old: NodeId, new: NodeId, pointers: PointerSet, depth: usize) -> bool {
        let kind = self.old.kind(old);
        if pointers.0 == 0 || kind != self.new.kind(new) {
            return true;
        }
        let (olds, news, ignored) = (self.old, self.new, &self.options.ignored);
        let is_kept = |part| ignored.below(pointers, depth, part).is_some();
        match kind {
            Kind::Object => {
                let members = self.members(old, new);
                members.removed.iter().any(|&id| is_kept(Part::Name(olds.name(id))))
                    || members.added.iter().any(|&id| is_kept(Part::Name(news.name(id))))
                    || members.both.iter().any(|&(old, new)| {
                        self.differs_below(Part::Name(news.name(new)), old, new, pointers, depth)
                    })
            }
            Kind::Array => {
                let (mut olds, mut news) = (olds.children(old), news.children(new));
                for index in 0.. {
                    let part = Part::Index(index);
                    let differs = match (olds.next(), news.next()) {
                        (None, None) => return false,
                        (Some(old), Some(new)) => self.differs_below(part, old, new, pointers, depth),
                        _ => is_kept(part),
                    };
                    if differs {
                        return true;
                    }
                }
                false
            }
            _ => true,
        }
    }

    fn differs_below(
        &mut self,
        part: Part<'_>,
        old: NodeId,
        new: NodeId,
        pointers: PointerSet,
        depth: usize,
    ) -> bool {
        if self.same(old, new) {
            return false;
        }
        self.work.charge(self.options.ignored.0.len());
        let below = self.options.ignored.below(pointers, depth, part);
        below.is_some_and(|pointers| self.differs(old, new, pointers, depth + 1))
    }
}
