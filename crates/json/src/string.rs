//! Decodes strings.
//!
//! A *raw* string is the text between the quotes, escapes included. Its meaning is a sequence of UTF-16
//! units, which may contain unpaired surrogates. If the result is UTF-8, an unpaired surrogate becomes
//! U+FFFD, as in JavaScript's `TextEncoder`. WTF-8 keeps it, in three bytes.

use super::Error;
use super::bytes::{equal, first};
use super::scan::string_end;
use std::borrow::Cow;

/// Returns the text of a string value, `None` for another value. The value must be checked.
pub fn string(value: &str) -> Option<Cow<'_, str>> {
    value.strip_prefix('"')?.strip_suffix('"').map(unescape)
}

/// Returns the text of a raw string, which must be checked.
pub fn unescape(raw: &str) -> Cow<'_, str> {
    RawString { raw, is_escaped: memchr::memchr(b'\\', raw.as_bytes()).is_some() }.unescape()
}

/// Returns `true` if a raw string, which must be checked, means `text`.
pub fn string_is(raw: &str, text: &str) -> bool {
    raw == text || (raw.contains('\\') && rest_after(raw.as_bytes(), text.as_bytes()) == Some(b""))
}

/// Appends the meaning of a raw string, which must be checked, in WTF-8.
pub fn unescape_to_wtf8(out: &mut Vec<u8>, raw: &[u8]) {
    decode(out, raw, |code| code);
}

/// Replaces escaped unpaired surrogates with U+FFFD in a checked text. Parsers other than JavaScript's refuse
/// them. The length is unchanged.
pub fn replace_lone_surrogates(text: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &text[at..]) {
        at += found;
        let (code, rest) = escape(&text[at..]);
        let end = text.len() - rest.len();
        if is_surrogate(code) {
            text[at + 2..end].copy_from_slice(b"fffd");
        }
        at = end;
    }
}

/// A string as written in a text, without its quotes. Its escapes are well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawString<'a> {
    raw: &'a str,
    is_escaped: bool,
}

impl<'a> RawString<'a> {
    /// Reads the string that `text` begins with. Returns it and the text after it.
    ///
    /// # Errors
    /// `text` doesn't begin with a quote, or the string has a control character or an escape that JSON
    /// doesn't know.
    pub fn read(text: &'a str) -> Result<(Self, &'a str), Error> {
        if text.as_bytes().first() != Some(&b'"') {
            return Err(if text.is_empty() { Error::Incomplete } else { Error::Unexpected(0) });
        }
        let (end, is_escaped) = string_end(text.as_bytes(), 0)?;
        Ok((RawString { raw: &text[1..end - 1], is_escaped }, &text[end..]))
    }

    /// Returns the text if it has no escapes.
    pub fn as_plain(self) -> Option<&'a str> {
        (!self.is_escaped).then_some(self.raw)
    }

    /// Returns `true` if the text begins with `prefix`, however it is escaped.
    #[inline]
    pub fn starts_with(self, prefix: &str) -> bool {
        // The first byte alone excludes most strings.
        let may_be = prefix.bytes().next().is_none_or(|first| self.raw.as_bytes().first() == Some(&first));
        (may_be && self.raw.starts_with(prefix))
            || (self.is_escaped && rest_after(self.raw.as_bytes(), prefix.as_bytes()).is_some())
    }

    /// Returns the text.
    pub fn unescape(self) -> Cow<'a, str> {
        if !self.is_escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut text = String::new();
        self.decode_in(&mut text);
        Cow::Owned(text)
    }

    /// Returns the text, in `scratch` if it has escapes.
    pub fn unescape_in<'s>(self, scratch: &'s mut String) -> &'s str
    where
        'a: 's,
    {
        if !self.is_escaped {
            return self.raw;
        }
        self.decode_in(scratch);
        scratch
    }

    fn decode_in(self, text: &mut String) {
        let mut out = std::mem::take(text).into_bytes();
        out.clear();
        let replaced = u32::from(char::REPLACEMENT_CHARACTER);
        decode(&mut out, self.raw.as_bytes(), |code| if is_surrogate(code) { replaced } else { code });
        // Only complete characters were appended, so this succeeds.
        *text = String::from_utf8(out).unwrap_or_default();
    }
}

/// Appends the meaning of a raw string. `map` maps each code point, in particular unpaired surrogates.
fn decode(out: &mut Vec<u8>, raw: &[u8], map: impl Fn(u32) -> u32) {
    out.reserve(raw.len());
    let mut rest = raw;
    // Copies eight bytes, then removes those from a backslash on.
    while let Some(word) = rest.first_chunk::<8>() {
        out.extend_from_slice(word);
        let found = equal(u64::from_le_bytes(*word), b'\\');
        if found == 0 {
            rest = &rest[8..];
        } else {
            let plain = first(found);
            out.truncate(out.len() - 8 + plain);
            let (code, after) = escape(&rest[plain..]);
            push_code(out, map(code));
            rest = after;
        }
    }
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte == b'\\' {
            let (code, after) = escape_after_backslash(rest);
            push_code(out, map(code));
            rest = after;
        } else {
            out.push(*byte);
        }
    }
}

/// Returns the rest of a raw string after a start that means `text`; `None` if it starts differently.
fn rest_after<'r>(mut raw: &'r [u8], mut text: &[u8]) -> Option<&'r [u8]> {
    while let [byte, after @ ..] = text {
        let [next, raw_after @ ..] = raw else { return None };
        if *next == b'\\' {
            let (code, raw_after) = escape_after_backslash(raw_after);
            let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            text = text.strip_prefix(character.encode_utf8(&mut [0; 4]).as_bytes())?;
            raw = raw_after;
        } else if next == byte {
            (text, raw) = (after, raw_after);
        } else {
            return None;
        }
    }
    Some(raw)
}

/// Returns the code point of the escape at the start of `raw` (two escapes for a surrogate pair), and the
/// text after it.
fn escape(raw: &[u8]) -> (u32, &[u8]) {
    escape_after_backslash(raw.get(1..).unwrap_or_default())
}

fn escape_after_backslash(raw: &[u8]) -> (u32, &[u8]) {
    let [letter, rest @ ..] = raw else { return (u32::from(char::REPLACEMENT_CHARACTER), raw) };
    let code = match letter {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => 0x0a,
        b'r' => 0x0d,
        b't' => 0x09,
        b'u' => return unicode(rest),
        other => u32::from(*other),
    };
    (code, rest)
}

/// Returns the code point with these digits, and the text after it.
fn unicode(digits: &[u8]) -> (u32, &[u8]) {
    let Some((high, rest)) = unit(digits) else { return (u32::from(char::REPLACEMENT_CHARACTER), &[]) };
    if (0xd800..0xdc00).contains(&high)
        && let Some((low @ 0xdc00..0xe000, rest)) = rest.strip_prefix(b"\\u").and_then(unit)
    {
        return (0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), rest);
    }
    (high, rest)
}

/// Returns the UTF-16 unit with four hexadecimal digits, and the text after them.
fn unit(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = bytes.split_first_chunk::<4>()?;
    let unit = digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?));
    Some((unit?, rest))
}

fn is_surrogate(code: u32) -> bool {
    (0xd800..0xe000).contains(&code)
}

/// Appends a code point in UTF-8's scheme, surrogates included.
fn push_code(out: &mut Vec<u8>, code: u32) {
    let tail = |shift: u32| 0x80 | ((code >> shift) & 0x3f) as u8;
    match code {
        0..0x80 => out.push(code as u8),
        0x80..0x800 => out.extend([0xc0 | (code >> 6) as u8, tail(0)]),
        0x800..0x1_0000 => out.extend([0xe0 | (code >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend([0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}
