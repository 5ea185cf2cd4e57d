//! The meaning of strings in JavaScript.
//!
//! A string's meaning is a sequence of UTF-16 units that may contain unpaired surrogates. It is stored as
//! WTF-8, in which each of these takes three bytes. Functions that take a *raw* string expect the text
//! between its quotes, already accepted by the scanner.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Reason why a text can't be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text isn't one JSON value, or is nested too deep.
    #[error(transparent)]
    NotJson(#[from] stentor_json::Error),
    /// The text has more values than [`Options::values_max`](super::Options::values_max), or at least 2 GiB.
    #[error("too large to be compared")]
    TooLarge,
}

/// Decodes a raw string to WTF-8.
pub(crate) fn decoded(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    stentor_json::unescape_to_wtf8(&mut out, raw);
    Cow::Owned(out)
}

/// Returns `true` if two raw strings have the same meaning.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a == b || ((a.contains(&b'\\') || b.contains(&b'\\')) && decoded(a) == decoded(b))
}

/// Orders raw strings. Strings with the same meaning are equal.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if a == b { Ordering::Equal } else { decoded(a).cmp(&decoded(b)) }
}

/// Appends WTF-8 as a reference token of a JSON Pointer (RFC 6901, section 3), escaped for a JSON string.
pub(crate) fn write_pointer_token(decoded: &[u8], out: &mut Vec<u8>) {
    for part in decoded.split_inclusive(|byte| matches!(byte, b'~' | b'/')) {
        let (plain, escape): (_, &[u8]) = match part {
            [plain @ .., b'~'] => (plain, b"~0"),
            [plain @ .., b'/'] => (plain, b"~1"),
            plain => (plain, b""),
        };
        stentor_json::write_wtf8(out, plain);
        out.extend_from_slice(escape);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_the_same_meaning_as_in_javascript() {
        let check = |raw: &str, means: &[u8], encoded: &str| {
            assert_eq!(&*decoded(raw.as_bytes()), means, "{raw}");
            let mut out = Vec::new();
            write_pointer_token(means, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), encoded);
        };
        check("", b"", "");
        check(r"\u0041\u00e9\u20AC", "Aé€".as_bytes(), "Aé€");
        check(r"\ud83d\ude00", "😀".as_bytes(), "😀");
        check(r"\ud83d", b"\xed\xa0\xbd", r"\ud83d");
        check(r"\ude00~\ud83d", b"\xed\xb8\x80~\xed\xa0\xbd", r"\ude00~0\ud83d");
    }

    #[test]
    fn pointers_escape_tildes_and_slashes() {
        let check = |name: &str, token: &str| {
            let mut out = Vec::new();
            write_pointer_token(name.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), token);
        };
        check("a/b", "a~1b");
        check("~1", "~01");
        check("~/", "~0~1");
        check("", "");
        check("q\"\\\u{1}\t", "q\\\"\\\\\\u0001\\t");
    }
}
