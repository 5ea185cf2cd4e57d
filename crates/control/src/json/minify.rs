//! One pass over a text that checks it and moves everything but whitespace to its front.
//!
//! Invariant: `0 <= write <= read <= text.len()`; what lies before `write` is the minified text so far.

use super::{DEPTH_MAX, JsonError};

/// The open arrays (false) and objects (true), one bit each.
#[derive(Default)]
struct Nesting {
    bits: u128,
    depth: usize,
}

// One bit per level must be enough.
const _: () = assert!(DEPTH_MAX <= 128);

impl Nesting {
    fn push(&mut self, object: bool, at: usize) -> Result<(), JsonError> {
        if self.depth == DEPTH_MAX {
            return Err(JsonError::TooDeep(at));
        }
        self.bits = (self.bits << 1) | u128::from(object);
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.bits >>= 1;
        self.depth -= 1;
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.bits & 1 == 1
    }
}

/// What may come next.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    Value,
    ValueOrClose,
    NameOrClose,
    Name,
    Colon,
    CommaOrClose,
    Nothing,
}

/// Checks that `text` is one JSON value and takes its whitespace away (and a byte order mark before it, which
/// JavaScript's `Response.json` skips as well). Spellings stay as they are. No recursion, no allocation.
pub(crate) fn minify(mut text: Vec<u8>) -> Result<Vec<u8>, JsonError> {
    if let Err(error) = std::str::from_utf8(&text) {
        return Err(JsonError::Utf8(error.valid_up_to()));
    }
    let mut read = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let mut write = 0;
    let mut nesting = Nesting::default();
    let mut expect = Expect::Value;
    while let Some(&byte) = text.get(read) {
        let from = read;
        match (expect, byte) {
            (_, b' ' | b'\n' | b'\r' | b'\t') => {
                read += 1;
                continue;
            }
            (Expect::Value | Expect::ValueOrClose, b'{') => {
                nesting.push(true, read)?;
                expect = Expect::NameOrClose;
                read += 1;
            }
            (Expect::Value | Expect::ValueOrClose, b'[') => {
                nesting.push(false, read)?;
                expect = Expect::ValueOrClose;
                read += 1;
            }
            (Expect::Value | Expect::ValueOrClose, b'"') => {
                read = string_end(&text, read)?;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b'-' | b'0'..=b'9') => {
                read = number_end(&text, read)?;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b't') => {
                read = literal_end(&text, read, b"true")?;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b'f') => {
                read = literal_end(&text, read, b"false")?;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b'n') => {
                read = literal_end(&text, read, b"null")?;
                expect = after_value(&nesting);
            }
            (Expect::NameOrClose | Expect::Name, b'"') => {
                read = string_end(&text, read)?;
                expect = Expect::Colon;
            }
            (Expect::Colon, b':') => {
                expect = Expect::Value;
                read += 1;
            }
            (Expect::CommaOrClose, b',') => {
                expect = if nesting.in_object() { Expect::Name } else { Expect::Value };
                read += 1;
            }
            (Expect::CommaOrClose | Expect::NameOrClose, b'}') if nesting.in_object() => {
                nesting.pop();
                expect = after_value(&nesting);
                read += 1;
            }
            (Expect::CommaOrClose | Expect::ValueOrClose, b']') if !nesting.in_object() => {
                nesting.pop();
                expect = after_value(&nesting);
                read += 1;
            }
            _ => return Err(JsonError::Unexpected(read)),
        }
        if write != from {
            text.copy_within(from..read, write);
        }
        write += read - from;
    }
    if expect != Expect::Nothing {
        return Err(JsonError::Incomplete);
    }
    text.truncate(write);
    Ok(text)
}

fn after_value(nesting: &Nesting) -> Expect {
    if nesting.depth == 0 { Expect::Nothing } else { Expect::CommaOrClose }
}

/// The offset after the string whose opening quote is at `at`.
fn string_end(text: &[u8], at: usize) -> Result<usize, JsonError> {
    let mut i = at + 1;
    loop {
        match text.get(i) {
            None => return Err(JsonError::Incomplete),
            Some(b'"') => return Ok(i + 1),
            Some(b'\\') => match text.get(i + 1) {
                None => return Err(JsonError::Incomplete),
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => i += 2,
                Some(b'u') => {
                    for j in i + 2..i + 6 {
                        match text.get(j) {
                            None => return Err(JsonError::Incomplete),
                            Some(byte) if byte.is_ascii_hexdigit() => {}
                            Some(_) => return Err(JsonError::Unexpected(j)),
                        }
                    }
                    i += 6;
                }
                Some(_) => return Err(JsonError::Unexpected(i + 1)),
            },
            Some(0..=0x1f) => return Err(JsonError::Unexpected(i)),
            Some(_) => i += 1,
        }
    }
}

/// The offset after the number that begins at `at`.
fn number_end(text: &[u8], at: usize) -> Result<usize, JsonError> {
    let digits = |mut i: usize| {
        match text.get(i) {
            None => return Err(JsonError::Incomplete),
            Some(byte) if byte.is_ascii_digit() => {}
            Some(_) => return Err(JsonError::Unexpected(i)),
        }
        while text.get(i).is_some_and(u8::is_ascii_digit) {
            i += 1;
        }
        Ok(i)
    };
    let mut i = at + usize::from(text.get(at) == Some(&b'-'));
    i = if text.get(i) == Some(&b'0') { i + 1 } else { digits(i)? };
    if text.get(i) == Some(&b'.') {
        i = digits(i + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(i) {
        i += 1;
        i += usize::from(matches!(text.get(i), Some(b'+' | b'-')));
        i = digits(i)?;
    }
    Ok(i)
}

fn literal_end(text: &[u8], at: usize, literal: &[u8]) -> Result<usize, JsonError> {
    for (i, expect) in literal.iter().enumerate() {
        match text.get(at + i) {
            None => return Err(JsonError::Incomplete),
            Some(byte) if byte == expect => {}
            Some(_) => return Err(JsonError::Unexpected(at + i)),
        }
    }
    Ok(at + literal.len())
}

/// Whether a text that is known to be JSON stays within [`DEPTH_MAX`].
pub(crate) fn is_shallow(text: &[u8]) -> bool {
    let mut depth = 0usize;
    let mut i = 0;
    while let Some(&byte) = text.get(i) {
        match byte {
            b'"' => {
                let Ok(end) = string_end(text, i) else { return false };
                i = end;
                continue;
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return false;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        i += 1;
    }
    true
}
