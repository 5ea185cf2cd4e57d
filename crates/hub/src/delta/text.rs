//! JSON's tokens (RFC 8259): where a string or a number ends, and what it means to JavaScript.
//!
//! A string's meaning is a sequence of UTF-16 units that may hold surrogates without a partner; it is kept as
//! WTF-8, in which those take three bytes each. The functions that read a *raw* string take what stands between
//! its quotes, and rely on [`string_end`] having passed it.
//!
//! `wire` has a scanner of its own, as neither crate may use the other: that one cuts text of clients, which is passed on
//! as it is, and this one reads documents of upstreams for their value, and tells where they are wrong.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Why a text isn't one JSON value, or not one that is diffed. The upstream erred, or its document is larger
/// than the limits; offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Not UTF-8 from this offset.
    Utf8(usize),
    /// A byte that can't stand at this offset.
    Unexpected(usize),
    /// The text ends before its value does.
    Incomplete,
    /// Nested deeper than [`DEPTH_MAX`](super::DEPTH_MAX) at this offset.
    TooDeep(usize),
    /// More values than [`Options::values_max`](super::Options::values_max), or 2 GiB and more of text.
    TooLarge,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Utf8(at) => write!(f, "not UTF-8 at byte {at}"),
            Self::Unexpected(at) => write!(f, "not JSON at byte {at}"),
            Self::Incomplete => write!(f, "the JSON text ends too early"),
            Self::TooDeep(at) => write!(f, "nested too deep at byte {at}"),
            Self::TooLarge => write!(f, "too large to be compared"),
        }
    }
}

impl std::error::Error for ParseError {}

/// The offset after the string whose opening quote is at `at`, and whether it has escapes.
pub(super) fn string_end(text: &[u8], at: usize) -> Result<(usize, bool), ParseError> {
    let mut i = at + 1;
    let mut escaped = false;
    loop {
        i += plain(&text[i.min(text.len())..]);
        match text.get(i) {
            None => return Err(ParseError::Incomplete),
            Some(b'"') => return Ok((i + 1, escaped)),
            Some(b'\\') => {
                escaped = true;
                i = escape_end(text, i)?;
            }
            Some(0..=0x1f) => return Err(ParseError::Unexpected(i)),
            Some(_) => i += 1,
        }
    }
}

/// How many bytes at the start are nothing special in a string, counted by eights: there may be more.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, _) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The top bit of each byte says that it is below `limit`, for bytes up to the first of which that is true.
        let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let special = (below(word, 0x20) | quote | backslash) & (ONES << 7);
        if special != 0 {
            return i * 8 + (special.trailing_zeros() / 8) as usize;
        }
    }
    words.len() * 8
}

/// The offset after the escape whose backslash is at `at`.
fn escape_end(text: &[u8], at: usize) -> Result<usize, ParseError> {
    match text.get(at + 1) {
        None => Err(ParseError::Incomplete),
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => {
            for i in at + 2..at + 6 {
                match text.get(i) {
                    None => return Err(ParseError::Incomplete),
                    Some(byte) if byte.is_ascii_hexdigit() => {}
                    Some(_) => return Err(ParseError::Unexpected(i)),
                }
            }
            Ok(at + 6)
        }
        Some(_) => Err(ParseError::Unexpected(at + 1)),
    }
}

/// The offset after the number that begins at `at`.
pub(super) fn number_end(text: &[u8], at: usize) -> Result<usize, ParseError> {
    let digits = |from: usize| {
        let end = from + text[from.min(text.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        match (end > from, from < text.len()) {
            (true, _) => Ok(end),
            (false, true) => Err(ParseError::Unexpected(from)),
            (false, false) => Err(ParseError::Incomplete),
        }
    };
    let mut i = at + usize::from(text.get(at) == Some(&b'-'));
    i = if text.get(i) == Some(&b'0') { i + 1 } else { digits(i)? };
    if text.get(i) == Some(&b'.') {
        i = digits(i + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(i) {
        i = digits(i + 1 + usize::from(matches!(text.get(i + 1), Some(b'+' | b'-'))))?;
    }
    Ok(i)
}

/// What JavaScript makes of a number: the nearest double, infinite if too large.
pub(super) fn number(text: &[u8]) -> f64 {
    // Whole numbers below 10¹⁵ are themselves; most numbers are.
    if text.len() <= 15 && text.iter().all(u8::is_ascii_digit) {
        return text.iter().fold(0u64, |number, digit| number * 10 + u64::from(digit - b'0')) as f64;
    }
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// What a raw string means, in WTF-8.
pub(super) fn decoded(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    decode(raw, &mut out);
    Cow::Owned(out)
}

/// Appends what a raw string means, in WTF-8.
pub(super) fn decode(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        if *first != b'\\' {
            out.push(*first);
            rest = tail;
            continue;
        }
        let (unit, after) = escape(rest);
        rest = after;
        if (0xd800..0xdc00).contains(&unit) && rest.starts_with(b"\\u") {
            let (low, after) = escape(rest);
            if (0xdc00..0xe000).contains(&low) {
                push_code(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00), out);
                rest = after;
                continue;
            }
        }
        push_code(unit, out);
    }
}

/// The UTF-16 unit that the escape at the start of `raw` means, and what follows it.
fn escape(raw: &[u8]) -> (u32, &[u8]) {
    let Some((&[_, letter], rest)) = raw.split_first_chunk() else { return (0, &[]) };
    let unit = match letter {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => 0x0a,
        b'r' => 0x0d,
        b't' => 0x09,
        b'u' => {
            let (digits, rest) = rest.split_at(rest.len().min(4));
            let unit = digits
                .iter()
                .fold(0, |unit, digit| (unit << 4) | char::from(*digit).to_digit(16).unwrap_or(0));
            return (unit, rest);
        }
        other => u32::from(other),
    };
    (unit, rest)
}

/// Appends a code point in UTF-8's scheme, surrogates included.
fn push_code(code: u32, out: &mut Vec<u8>) {
    let tail = |shift: u32| 0x80 | ((code >> shift) & 0x3f) as u8;
    match code {
        0..0x80 => out.push(code as u8),
        0x80..0x800 => out.extend([0xc0 | (code >> 6) as u8, tail(0)]),
        0x800..0x1_0000 => out.extend([0xe0 | (code >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend([0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}

/// Whether two raw strings mean the same.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    a == b || ((a.contains(&b'\\') || b.contains(&b'\\')) && decoded(a) == decoded(b))
}

/// An order of raw strings in which equal ones are those that mean the same.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if a == b { Ordering::Equal } else { decoded(a).cmp(&decoded(b)) }
}

/// Appends WTF-8 as it stands between a JSON string's quotes. What has no partner is escaped, so that the result
/// is UTF-8. With `pointer`, it becomes a reference token of a JSON Pointer (RFC 6901, section 3).
pub(super) fn encode(decoded: &[u8], pointer: bool, out: &mut Vec<u8>) {
    let mut rest = decoded;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'~' if pointer => out.extend(b"~0"),
            b'/' if pointer => out.extend(b"~1"),
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            0x0a => out.extend(b"\\n"),
            0x00..0x20 => push_escape(u32::from(*byte), out),
            // In UTF-8, 0xed is followed by at most 0x9f: what is higher is a surrogate.
            0xed => match rest {
                [second @ 0xa0..=0xbf, third, after @ ..] => {
                    push_escape(0xd000 | u32::from(second & 0x3f) << 6 | u32::from(third & 0x3f), out);
                    rest = after;
                }
                _ => out.push(*byte),
            },
            _ => out.push(*byte),
        }
    }
}

fn push_escape(unit: u32, out: &mut Vec<u8>) {
    out.extend(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(b"0123456789abcdef"[(unit >> shift) as usize & 0xf]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_mean_what_they_mean_to_javascript() {
        let check = |raw: &str, means: &[u8], encoded: &str| {
            assert_eq!(
                string_end(format!("\"{raw}\"").as_bytes(), 0),
                Ok((raw.len() + 2, raw.contains('\\')))
            );
            assert_eq!(&*decoded(raw.as_bytes()), means, "{raw}");
            let mut out = Vec::new();
            encode(means, false, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), encoded);
        };
        check("", b"", "");
        check("é😀", "é😀".as_bytes(), "é😀");
        check(r#"\"\\\/\b\f\n\r\t"#, b"\"\\/\x08\x0c\n\r\t", r#"\"\\/\u0008\u000c\n\u000d\u0009"#);
        check(r"\u0041\u00e9\u20AC", "Aé€".as_bytes(), "Aé€");
        check(r"\ud83d\ude00", "😀".as_bytes(), "😀");
        check(r"\ud83d", b"\xed\xa0\xbd", r"\ud83d");
        check(r"\ude00\ud83d", b"\xed\xb8\x80\xed\xa0\xbd", r"\ude00\ud83d");
        check(r"\ud83d\ud83d\ude00", b"\xed\xa0\xbd\xf0\x9f\x98\x80", r"\ud83d😀");
        check(r"\ud83dx\ude00", b"\xed\xa0\xbdx\xed\xb8\x80", r"\ud83dx\ude00");
        check("\u{d7ff}", "\u{d7ff}".as_bytes(), "\u{d7ff}");
    }

    /// A special byte, wherever it stands, and whatever is around it.
    #[test]
    fn strings_end_where_they_end() {
        for len in 0..40 {
            for filler in ["x", "\u{7f}", "é", " ", "#", "!", "]", "["] {
                let inside = filler.repeat(len);
                let end = inside.len() + 1;
                let check = |after: &str, expect| {
                    assert_eq!(string_end(format!("\"{inside}{after}").as_bytes(), 0), expect, "{inside}");
                };
                check("\"", Ok((end + 1, false)));
                check("\"\"\u{1f}\\\"", Ok((end + 1, false)));
                check("\\\"xxxxxxxxx\"", Ok((end + 12, true)));
                check("\u{1f}\"xxxxxxxxxxx", Err(ParseError::Unexpected(end)));
                check("", Err(ParseError::Incomplete));
            }
        }
    }

    #[test]
    fn pointers_escape_what_they_must() {
        let check = |name: &str, token: &str| {
            let mut out = Vec::new();
            encode(name.as_bytes(), true, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), token);
        };
        check("a/b", "a~1b");
        check("~1", "~01");
        check("", "");
        check("q\"\\\u{1}", "q\\\"\\\\\\u0001");
    }

    #[test]
    fn broken_strings_and_numbers_are_refused() {
        let string = |text: &str, expect| assert_eq!(string_end(text.as_bytes(), 0).map(|_| ()), Err(expect));
        string("\"", ParseError::Incomplete);
        string("\"\\", ParseError::Incomplete);
        string("\"\\u12", ParseError::Incomplete);
        string("\"\\u12x4\"", ParseError::Unexpected(5));
        string("\"\\x\"", ParseError::Unexpected(2));
        string("\"\n\"", ParseError::Unexpected(1));
        let end = |text: &str, expect| assert_eq!(number_end(text.as_bytes(), 0), expect, "{text}");
        end("0", Ok(1));
        end("01", Ok(1));
        end("-12.50e+3,", Ok(9));
        end("-", Err(ParseError::Incomplete));
        end("-x", Err(ParseError::Unexpected(1)));
        end("1.", Err(ParseError::Incomplete));
        end("1.e3", Err(ParseError::Unexpected(2)));
        end("1e", Err(ParseError::Incomplete));
        end("1e+", Err(ParseError::Incomplete));
    }

    #[test]
    fn numbers_are_doubles() {
        let check = |text: &str, expect: f64| assert_eq!(number(text.as_bytes()), expect, "{text}");
        check("999999999999999", 999_999_999_999_999.0);
        check("9007199254740993", 9_007_199_254_740_992.0);
        check("-0", 0.0);
        check("0.1e1", 1.0);
        check("1e400", f64::INFINITY);
        check("1e-400", 0.0);
    }
}
