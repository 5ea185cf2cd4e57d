//! Placeholders: where attachments belong in a payload.

use std::ops::Range;

use super::Error;
use stentor_json::{self as json, skip_space, string_is};

/// A placeholder in a list of JSON values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// The attachment that it stands for.
    pub number: usize,
    /// Where that number is written in the list.
    pub digits: Range<usize>,
}

/// Checks that every placeholder in `list`, which is known to be JSON, names one of so many attachments.
///
/// # Errors
/// [`Error::BadPlaceholder`]: one doesn't, or has other members than it should.
pub fn check_placeholders(list: &str, attachments: usize) -> Result<(), Error> {
    let mut scan = Placeholders { list, at: 0 };
    while let Some(placeholder) = scan.find()? {
        if placeholder.number >= attachments {
            return Err(Error::BadPlaceholder);
        }
    }
    Ok(())
}

/// The placeholders in a list of JSON values, such as [`Arguments::raw`](super::Arguments::raw) or one argument. Only
/// what came in a packet with attachments is known to have good ones; those that aren't are passed over.
pub fn placeholders(list: &str) -> Placeholders<'_> {
    Placeholders { list, at: 0 }
}

/// Iterator of [`placeholders`].
#[derive(Debug, Clone)]
pub struct Placeholders<'a> {
    list: &'a str,
    at: usize,
}

impl Iterator for Placeholders<'_> {
    type Item = Placeholder;

    fn next(&mut self) -> Option<Placeholder> {
        loop {
            if let Ok(found) = self.find() {
                return found;
            }
        }
    }
}

impl Placeholders<'_> {
    /// The next placeholder. After an error the search can go on.
    fn find(&mut self) -> Result<Option<Placeholder>, Error> {
        let bytes = self.list.as_bytes();
        while let Some(next) = bytes.get(self.at..).and_then(|rest| memchr::memchr2(b'{', b'"', rest)) {
            let start = self.at + next;
            if bytes[start] == b'{' {
                if let Some((placeholder, end)) = exact(self.list, start) {
                    self.at = end;
                    return Ok(Some(placeholder));
                }
                self.at = start + 1;
                continue;
            }
            let end = json::value_end(self.list, start).unwrap_or(bytes.len());
            self.at = end;
            // A member that makes its object a placeholder, but the object isn't as it should be.
            let colon = skip_space(bytes, end);
            if bytes.get(colon) == Some(&b':') && is_name(self.list, start..end, "_placeholder") {
                let value = skip_space(bytes, colon + 1);
                if bytes[value..].starts_with(b"true") {
                    return Err(Error::BadPlaceholder);
                }
            }
        }
        Ok(None)
    }
}

fn is_name(list: &str, quoted: Range<usize>, name: &str) -> bool {
    list.get(quoted.start + 1..quoted.end.saturating_sub(1)).is_some_and(|raw| string_is(raw, name))
}

/// The placeholder that the object at `start` is, and where it ends. Looks at two members at most and never into
/// objects or arrays, so that the whole search is linear.
fn exact(list: &str, start: usize) -> Option<(Placeholder, usize)> {
    let bytes = list.as_bytes();
    let (mut is_placeholder, mut number) = (false, None);
    let mut at = start;
    for end_of_member in [b',', b'}'] {
        let name_start = skip_space(bytes, at + 1);
        if bytes.get(name_start) != Some(&b'"') {
            return None;
        }
        let name_end = json::value_end(list, name_start).ok()?;
        let value_start = skip_space(bytes, skip_space(bytes, name_end) + 1);
        if is_name(list, name_start..name_end, "_placeholder") {
            is_placeholder = bytes.get(value_start..)?.starts_with(b"true");
            if !is_placeholder {
                return None;
            }
            at = value_start + "true".len();
        } else if is_name(list, name_start..name_end, "num") {
            let digits = bytes.get(value_start..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
            at = value_start + digits;
            number = Some((list.get(value_start..at)?.parse().ok()?, value_start..at));
        } else {
            return None;
        }
        at = skip_space(bytes, at);
        if bytes.get(at) != Some(&end_of_member) {
            return None;
        }
    }
    let (number, digits) = number.filter(|_| is_placeholder)?;
    Some((Placeholder { number, digits }, at + 1))
}

/// Appends `list` with its placeholders numbered anew: 0 is the first attachment that has been met, and so on. `taken`
/// gets the old numbers in the new order; what is in it already keeps its place, so that several lists can be joined.
///
/// For a packet that takes over some arguments of another one: its attachments are those in `taken`.
pub fn renumber_placeholders(out: &mut Vec<u8>, list: &str, taken: &mut Vec<usize>) {
    let mut written = 0;
    for Placeholder { number, digits } in placeholders(list) {
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
