//! Placeholders: positions of attachments in a payload.

use std::ops::Range;

use super::Error;
use stentor_json::{self as json, DEPTH_MAX, Scalar, Visitor, skip_space, string_is};

/// A placeholder in a list of JSON values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// Number of the attachment to which it refers.
    pub number: usize,
    /// Position of that number in the list.
    pub digits: Range<usize>,
    /// Position of the complete object.
    pub object: Range<usize>,
}

/// Checks that every placeholder in `list`, which must be JSON, refers to one of the `attachments`.
///
/// # Errors
/// [`Error::BadPlaceholder`] if a placeholder doesn't.
pub fn check_placeholders(list: &str, attachments: usize) -> Result<(), Error> {
    let found = Finder::of(list);
    let is_known = |placeholder: &Placeholder| placeholder.number < attachments;
    if found.bad > 0 || !found.placeholders.iter().all(is_known) {
        Err(Error::BadPlaceholder)
    } else {
        Ok(())
    }
}

/// Returns the placeholders in a list of JSON values, such as [`Arguments::raw`](super::Arguments::raw) or
/// one argument, in order. Malformed placeholders are skipped; only a packet with attachments is known to
/// have none.
pub fn placeholders(list: &str) -> std::vec::IntoIter<Placeholder> {
    Finder::of(list).placeholders.into_iter()
}

/// A member of a placeholder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Mark,
    Number,
    Other,
}

/// An unfinished array or object.
struct Open {
    start: usize,
    /// Name of the member whose value follows.
    member: Member,
    is_placeholder: bool,
    number: Option<(usize, Range<usize>)>,
    /// Number of valid and of bad placeholders before it.
    before: (usize, usize),
}

/// Finds placeholders as socket.io-parser does: objects whose `_placeholder` is true, with any other members.
/// The complete object stands for the attachment, including placeholders in other members.
struct Finder<'a> {
    list: &'a str,
    placeholders: Vec<Placeholder>,
    /// Number of placeholders that refer to no attachment.
    bad: usize,
    open: Vec<Open>,
    /// Start of the next value.
    start: usize,
}

impl<'a> Finder<'a> {
    fn of(list: &'a str) -> Self {
        let mut found = Self { list, placeholders: Vec::new(), bad: 0, open: Vec::new(), start: 0 };
        let mut at = 0;
        while let Ok(end) = json::scan(list.as_bytes(), at, DEPTH_MAX, &mut found) {
            let comma = skip_space(list.as_bytes(), end);
            if list.as_bytes().get(comma) != Some(&b',') {
                break;
            }
            at = comma + 1;
        }
        found
    }
}

/// Reads a non-negative whole number in any JSON notation.
fn index(text: &str) -> Option<usize> {
    /// Every whole number below this one is a double.
    const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        let is_index = number.fract() == 0.0 && (0.0..=INTEGER_MAX).contains(&number);
        is_index.then_some(number as usize)
    })
}

impl Visitor for Finder<'_> {
    type Error = json::Error;

    fn value(&mut self, at: usize) -> Result<(), json::Error> {
        self.start = at;
        Ok(())
    }

    fn scalar(&mut self, scalar: Scalar, start: usize, end: usize) {
        let Some(open) = self.open.last_mut() else { return };
        match open.member {
            Member::Mark => open.is_placeholder = scalar == Scalar::True,
            Member::Number => {
                let text = self.list.get(start..end).filter(|_| scalar == Scalar::Number);
                open.number = text.and_then(index).map(|number| (number, start..end));
            }
            Member::Other => {}
        }
    }

    fn open(&mut self, _is_object: bool) {
        match self.open.last_mut() {
            Some(parent) if parent.member == Member::Mark => parent.is_placeholder = false,
            Some(parent) if parent.member == Member::Number => parent.number = None,
            _ => {}
        }
        self.open.push(Open {
            start: self.start,
            member: Member::Other,
            is_placeholder: false,
            number: None,
            before: (self.placeholders.len(), self.bad),
        });
    }

    fn close(&mut self, end: usize) {
        let Some(Open { start, is_placeholder: true, number, before, .. }) = self.open.pop() else { return };
        self.placeholders.truncate(before.0);
        self.bad = before.1;
        match number {
            Some((number, digits)) => {
                self.placeholders.push(Placeholder { number, digits, object: start..end });
            }
            None => self.bad += 1,
        }
    }

    fn name(&mut self, start: usize, end: usize, _is_escaped: bool) {
        let Some(open) = self.open.last_mut() else { return };
        let raw = self.list.get(start + 1..end.saturating_sub(1)).unwrap_or_default();
        open.member = if string_is(raw, "_placeholder") {
            Member::Mark
        } else if string_is(raw, "num") {
            Member::Number
        } else {
            Member::Other
        };
    }
}

/// Appends `list` with its placeholders renumbered: 0 is the first attachment that occurs, and so on. `taken`
/// receives the old numbers in the new order. Entries that it already has keep their place, so that several
/// lists can be concatenated.
///
/// For a packet that takes over some arguments of another packet: its attachments are the ones in `taken`.
pub fn renumber_placeholders(out: &mut Vec<u8>, list: &str, taken: &mut Vec<usize>) {
    let mut written = 0;
    for Placeholder { number, digits, .. } in placeholders(list) {
        let place = taken.iter().position(|old| *old == number).unwrap_or_else(|| {
            taken.push(number);
            taken.len() - 1
        });
        out.extend_from_slice(&list.as_bytes()[written..digits.start]);
        out.extend_from_slice(itoa::Buffer::new().format(place).as_bytes());
        written = digits.end;
    }
    out.extend_from_slice(&list.as_bytes()[written..]);
}

/// Appends the placeholder of an attachment.
pub fn write_placeholder(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(b"{\"_placeholder\":true,\"num\":");
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.push(b'}');
}
