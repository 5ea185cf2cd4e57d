//! The scanner: finds the end of a value, checks its syntax, and reports every value to a [`Visitor`].

use super::bytes::special_from;
use super::{DEPTH_MAX, Error};

/// Maximum of the depth limit of [`scan`].
pub const LEVELS_MAX: usize = 64 * WORDS;
const WORDS: usize = 3;
const _: () = assert!(DEPTH_MAX <= LEVELS_MAX);

/// A value without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `null`
    Null,
    /// `false`
    False,
    /// `true`
    True,
    /// A number of any size.
    Number,
    /// A string.
    String {
        /// `true` if the string has escapes.
        is_escaped: bool,
    },
}

/// Receives the parts that [`scan`] finds, in the order of the text. For each value: [`value`](Self::value),
/// then either [`scalar`](Self::scalar), or [`open`](Self::open), the parts, and [`close`](Self::close). In
/// an object, [`name`](Self::name) comes before each value. `at`, `start` and `end` are offsets in the text.
///
/// Calls that a visitor doesn't need compile to nothing.
pub trait Visitor {
    /// The error that ends the scan early: an error of the text or of the visitor.
    type Error: From<Error>;

    /// A value begins at `at`.
    ///
    /// # Errors
    /// The visitor ends the scan.
    #[inline]
    fn value(&mut self, at: usize) -> Result<(), Self::Error> {
        let _ = at;
        Ok(())
    }

    /// The value is `text[start..end]`.
    #[inline]
    fn scalar(&mut self, scalar: Scalar, start: usize, end: usize) {
        let _ = (scalar, start, end);
    }

    /// The value is an object or an array. Its parts follow.
    #[inline]
    fn open(&mut self, is_object: bool) {
        let _ = is_object;
    }

    /// The innermost object or array ends before `end`.
    #[inline]
    fn close(&mut self, end: usize) {
        let _ = end;
    }

    /// The name of the next member is `text[start..end]`, quotes included.
    #[inline]
    fn name(&mut self, start: usize, end: usize, is_escaped: bool) {
        let _ = (start, end, is_escaped);
    }

    /// Whitespace between two tokens was skipped.
    #[inline]
    fn space(&mut self, bytes: usize) {
        let _ = bytes;
    }
}

/// A visitor that ignores all calls, for checks only.
pub(crate) struct Check;

impl Visitor for Check {
    type Error = Error;
}

/// Returns `true` if JSON treats this byte as whitespace.
#[inline]
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns the position of the first byte from `at` on that isn't whitespace.
#[inline]
pub fn skip_space(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(0..=b' ') => skip_spaces(bytes, at),
        // Programs usually write no whitespace.
        _ => at,
    }
}

#[cold]
fn skip_spaces(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| is_space(*byte)) {
        at += 1;
    }
    at
}

/// Returns `text` without leading whitespace.
#[inline]
pub fn trim_start(text: &str) -> &str {
    match text.as_bytes().first() {
        Some(0..=b' ') => text.trim_start_matches([' ', '\t', '\n', '\r']),
        _ => text,
    }
}

/// Returns `text` without trailing whitespace.
#[inline]
pub fn trim_end(text: &str) -> &str {
    match text.as_bytes().last() {
        Some(0..=b' ') => text.trim_end_matches([' ', '\t', '\n', '\r']),
        _ => text,
    }
}

/// Returns `text` without the ASCII character that it begins with. `None` if it begins with another one. Takes a fifth of the
/// instructions of [`str::strip_prefix`], which calls a function to compare the bytes.
#[inline]
pub fn strip_byte(text: &str, byte: u8) -> Option<&str> {
    if text.as_bytes().first() == Some(&byte) { text.get(1..) } else { None }
}

/// Checks that `text` is one value, optionally with whitespace around it.
///
/// # Errors
/// `text` isn't one value, or is nested deeper than [`DEPTH_MAX`].
pub fn check(text: &str) -> Result<(), Error> {
    end_of_text(text.as_bytes(), value_end(text, 0)?)
}

/// Checks that only whitespace follows `end`.
pub(crate) fn end_of_text(bytes: &[u8], end: usize) -> Result<(), Error> {
    let end = skip_space(bytes, end);
    if end >= bytes.len() { Ok(()) } else { Err(Error::Unexpected(end)) }
}

/// Returns the end of the value that begins, optionally after whitespace, at `start`: the offset after its
/// last byte. The text after it isn't checked, but a number extends as far as possible.
///
/// # Errors
/// No value begins at `start`, or it is nested deeper than [`DEPTH_MAX`].
pub fn value_end(text: &str, start: usize) -> Result<usize, Error> {
    scan(text.as_bytes(), start, DEPTH_MAX, &mut Check)
}

/// Checks that `text` is one or more values with commas between them, such as the content of an array. Returns the end of
/// the first value, and `true` if that is a string with escapes. Strings in the list, the most frequent arguments of events,
/// take half the time of [`scan`].
///
/// # Errors
/// `text` isn't a list of values, or is nested deeper than the content of an array may be.
#[inline]
pub fn check_list(text: &str) -> Result<(usize, bool), Error> {
    let bytes = text.as_bytes();
    let first = element_end(bytes, skip_space(bytes, 0))?;
    let (mut at, _) = first;
    loop {
        at = skip_space(bytes, at);
        match bytes.get(at) {
            None => return Ok(first),
            Some(b',') => (at, _) = element_end(bytes, skip_space(bytes, at + 1))?,
            Some(_) => return Err(Error::Unexpected(at)),
        }
    }
}

/// Returns the end of the value of a list that begins at `at`, and `true` if it is a string with escapes.
#[inline(always)]
fn element_end(bytes: &[u8], at: usize) -> Result<(usize, bool), Error> {
    if bytes.get(at) == Some(&b'"') { string_end(bytes, at) } else { Ok((other_end(bytes, at)?, false)) }
}

/// Like [`element_end`], for values other than strings.
#[inline(never)]
fn other_end(bytes: &[u8], at: usize) -> Result<usize, Error> {
    scan(bytes, at, DEPTH_MAX - 1, &mut Check)
}

/// The open arrays and objects.
struct Nesting {
    depth: usize,
    /// `true` if the innermost one is an object.
    in_object: bool,
    /// A bit for each level: 1 for an object, 0 for an array.
    objects: [u64; WORDS],
}

impl Nesting {
    #[inline]
    fn push(&mut self, is_object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if let Some(word) = self.objects.get_mut(word) {
            *word = *word & !(1 << bit) | u64::from(is_object) << bit;
        }
        self.depth += 1;
        self.in_object = is_object;
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        let Some(parent) = self.depth.checked_sub(1) else { return };
        let word = self.objects.get(parent / 64).copied().unwrap_or_default();
        self.in_object = word >> (parent % 64) & 1 == 1;
    }
}

/// Reports the parts of the value that begins, optionally after whitespace, at `start` to `visitor`. Returns
/// the end of the value, like [`value_end`]. The text must be UTF-8. `depth_max` is at most [`LEVELS_MAX`].
///
/// # Errors
/// No value begins at `start`, it is nested deeper than `depth_max`, or the visitor ends the scan.
#[inline]
pub fn scan<V: Visitor>(
    bytes: &[u8],
    start: usize,
    depth_max: usize,
    visitor: &mut V,
) -> Result<usize, V::Error> {
    let depth_max = depth_max.min(LEVELS_MAX);
    let mut at = start;
    let mut nesting = Nesting { depth: 0, in_object: false, objects: [0; WORDS] };
    loop {
        at = skip(bytes, at, visitor);
        visitor.value(at)?;
        let start = at;
        match bytes.get(at) {
            Some(b'"') => {
                let (end, is_escaped) = string_end(bytes, at)?;
                at = end;
                visitor.scalar(Scalar::String { is_escaped }, start, end);
            }
            Some(open @ (b'{' | b'[')) => {
                if nesting.depth == depth_max {
                    return Err(Error::TooDeep(at).into());
                }
                let is_object = *open == b'{';
                visitor.open(is_object);
                at = skip(bytes, at + 1, visitor);
                if bytes.get(at) == Some(&if is_object { b'}' } else { b']' }) {
                    at += 1;
                    visitor.close(at);
                } else {
                    nesting.push(is_object);
                    if is_object {
                        at = name_end(bytes, at, visitor)?;
                    }
                    continue;
                }
            }
            Some(b'-' | b'0'..=b'9') => {
                at = number_end(bytes, at)?;
                visitor.scalar(Scalar::Number, start, at);
            }
            Some(b't') => {
                at = word_end(bytes, at, b"true")?;
                visitor.scalar(Scalar::True, start, at);
            }
            Some(b'f') => {
                at = word_end(bytes, at, b"false")?;
                visitor.scalar(Scalar::False, start, at);
            }
            Some(b'n') => {
                at = word_end(bytes, at, b"null")?;
                visitor.scalar(Scalar::Null, start, at);
            }
            _ => return Err(unexpected(bytes, at).into()),
        }
        // A value has ended. The containers around it may end too.
        loop {
            if nesting.depth == 0 {
                return Ok(at);
            }
            at = skip(bytes, at, visitor);
            match (bytes.get(at), nesting.in_object) {
                (Some(b','), false) => {
                    at += 1;
                    break;
                }
                (Some(b','), true) => {
                    at = skip(bytes, at + 1, visitor);
                    at = name_end(bytes, at, visitor)?;
                    break;
                }
                (Some(b']'), false) | (Some(b'}'), true) => {
                    at += 1;
                    visitor.close(at);
                    nesting.pop();
                }
                _ => return Err(unexpected(bytes, at).into()),
            }
        }
    }
}

/// Like [`skip_space`], but reports the whitespace to the visitor.
#[inline]
fn skip<V: Visitor>(bytes: &[u8], at: usize, visitor: &mut V) -> usize {
    let end = skip_space(bytes, at);
    if end > at {
        visitor.space(end - at);
    }
    end
}

/// Returns the error for the byte at `at`, or for the end of the text.
#[cold]
fn unexpected(bytes: &[u8], at: usize) -> Error {
    if at < bytes.len() { Error::Unexpected(at) } else { Error::Incomplete }
}

/// Returns the position after a member's name and its colon.
#[inline(always)]
fn name_end<V: Visitor>(bytes: &[u8], at: usize, visitor: &mut V) -> Result<usize, Error> {
    if bytes.get(at) != Some(&b'"') {
        return Err(unexpected(bytes, at));
    }
    let (end, is_escaped) = string_end(bytes, at)?;
    visitor.name(at, end, is_escaped);
    let colon = skip(bytes, end, visitor);
    if bytes.get(colon) == Some(&b':') { Ok(colon + 1) } else { Err(unexpected(bytes, colon)) }
}

fn word_end(bytes: &[u8], at: usize, word: &[u8]) -> Result<usize, Error> {
    let end = at + word.len();
    if bytes.get(at..end) == Some(word) {
        return Ok(end);
    }
    let same = bytes[at..].iter().zip(word).take_while(|(byte, expected)| byte == expected).count();
    Err(unexpected(bytes, at + same))
}

fn number_end(bytes: &[u8], mut at: usize) -> Result<usize, Error> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits_end(bytes, at)? };
    if bytes.get(at) == Some(&b'.') {
        at = digits_end(bytes, at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(bytes.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits_end(bytes, at)?;
    }
    Ok(at)
}

/// Returns the position after one or more digits.
fn digits_end(bytes: &[u8], start: usize) -> Result<usize, Error> {
    let mut at = start;
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(unexpected(bytes, at)) }
}

/// Returns the position after the string whose opening quote is at `at`, and whether it has escapes. Always
/// inlined, like [`name_end`]: otherwise checking an event takes 8 % longer
/// (`crates/wire/benches/socketio_timing.rs`).
#[inline(always)]
pub(crate) fn string_end(bytes: &[u8], at: usize) -> Result<(usize, bool), Error> {
    let (mut at, mut is_escaped) = (at + 1, false);
    loop {
        at = special_from(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok((at + 1, is_escaped)),
            Some(b'\\') => {
                is_escaped = true;
                at = escape_end(bytes, at + 1)?;
            }
            _ => return Err(unexpected(bytes, at)),
        }
    }
}

/// Returns the position after an escape; `at` is the position after its backslash.
fn escape_end(bytes: &[u8], at: usize) -> Result<usize, Error> {
    match bytes.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') => {
            let digits = &bytes[at + 1..];
            match digits.iter().take(4).take_while(|byte| byte.is_ascii_hexdigit()).count() {
                4 => Ok(at + 5),
                count => Err(unexpected(bytes, at + 1 + count)),
            }
        }
        _ => Err(unexpected(bytes, at)),
    }
}
