//! Placeholders: where attachments belong in a payload.

use std::ops::Range;

use super::Error;
use stentor_json::{self as json, DEPTH_MAX, Scalar, Visitor, skip_space, string_is};

/// A placeholder in a list of JSON values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// The attachment that it stands for.
    pub number: usize,
    /// Place of that number in the list.
    pub digits: Range<usize>,
    /// Place of the whole object, with all its members.
    pub object: Range<usize>,
}

/// Checks that every placeholder in `list`, which is known to be JSON, names one of so many attachments.
///
/// # Errors
/// [`Error::BadPlaceholder`]: one doesn't.
pub fn check_placeholders(list: &str, attachments: usize) -> Result<(), Error> {
    let found = Finder::of(list);
    let is_known = |placeholder: &Placeholder| placeholder.number < attachments;
    if found.bad > 0 || !found.placeholders.iter().all(is_known) {
        Err(Error::BadPlaceholder)
    } else {
        Ok(())
    }
}

/// The placeholders in a list of JSON values, such as [`Arguments::raw`](super::Arguments::raw) or one argument, in order. Only
/// what came in a packet with attachments is known to have good ones; those that aren't are passed over.
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

/// An array or object that has begun.
struct Open {
    start: usize,
    /// Name of the member whose value comes next.
    member: Member,
    is_placeholder: bool,
    number: Option<(usize, Range<usize>)>,
    /// Good and bad placeholders before it.
    before: (usize, usize),
}

/// Finds placeholders as socket.io-parser does: objects whose `_placeholder` is true, whatever else they have. All of such an object
/// stands for the attachment, also placeholders in other members.
struct Finder<'a> {
    list: &'a str,
    placeholders: Vec<Placeholder>,
    /// Number of placeholders that name no attachment.
    bad: usize,
    open: Vec<Open>,
    /// Start of the value that comes next.
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

/// A whole number that isn't negative, however it is written.
fn index(text: &str) -> Option<usize> {
    /// The greatest number below which a double represents each.
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

/// Appends `list` with its placeholders numbered anew: 0 is the first attachment that has been met, and so on. `taken`
/// gets the old numbers in the new order; what is in it already keeps its place, so that several lists can be joined.
///
/// For a packet that takes over some arguments of another one: its attachments are those in `taken`.
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
