//! Writes strings.
//!
//! Text without characters to escape is found eight or 16 bytes at a time and copied in one piece. Writing is
//! linear in the text's length.

use super::bytes::{equal, is_ascii, plain_start, special};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The characters that are escaped in addition to quotes, backslashes and control characters. They depend on
/// how the string travels to its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escaping {
    /// No others, as in `JSON.stringify`.
    Json,
    /// U+2028 and U+2029, which end a line in JavaScript before 2019.
    Script,
    /// The characters that old browsers change in transit, as listed in the SockJS specification:
    /// U+200C–200F,
    /// U+2028–202F, U+2060–206F, U+FFF0–FFFF.
    Transit,
    /// Like `Transit`, and `%` as `%25`: SockJS clients pass an event stream's data through `decodeURI`.
    TransitEventStream,
    /// Like `Transit`, within a JavaScript string: every backslash is doubled, every quote escaped.
    TransitScript,
    /// Like `TransitScript`, within an HTML script element: `<` becomes `\u003c`, so that no text ends the
    /// element or changes how its end is found.
    TransitHtmlScript,
}

/// Appends `text` as a JSON string, quotes included, escaped as in `JSON.stringify`.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    Writer::<0>::string(out, text.as_bytes());
}

/// Returns `true` if `text` is the same within a JSON string, without escapes. For short texts, such as names.
#[inline]
pub fn is_plain(text: &str) -> bool {
    !text.bytes().any(|byte| Writer::<0>::SUSPECT[usize::from(byte)])
}

/// Appends `text` as a JSON string, quotes included.
#[inline]
pub fn write_escaped(out: &mut Vec<u8>, text: &str, escaping: Escaping) {
    let text = text.as_bytes();
    match escaping {
        Escaping::Json => Writer::<0>::string(out, text),
        Escaping::Script => Writer::<LINES>::string(out, text),
        Escaping::Transit => Writer::<TRANSIT>::string(out, text),
        Escaping::TransitEventStream => Writer::<{ TRANSIT | PERCENT }>::string(out, text),
        Escaping::TransitScript => Writer::<{ TRANSIT | NESTED }>::string(out, text),
        Escaping::TransitHtmlScript => Writer::<{ TRANSIT | NESTED | LESS_THAN }>::string(out, text),
    }
}

/// Appends WTF-8, as decoded by [`unescape_to_wtf8`](super::unescape_to_wtf8), as a raw string without
/// quotes. An unpaired surrogate is escaped, so that the result is UTF-8.
pub fn write_wtf8(out: &mut Vec<u8>, text: &[u8]) {
    Writer::<SURROGATES>::raw(out, text);
}

/// Rule bit of [`Writer`]: escapes are escaped once more.
const NESTED: u8 = 1;
/// U+2028 and U+2029 are escaped.
const LINES: u8 = 2;
/// The characters of [`Escaping::Transit`] are escaped.
const TRANSIT: u8 = 4;
/// `%` is escaped.
const PERCENT: u8 = 8;
/// `<` is escaped.
const LESS_THAN: u8 = 16;
/// Surrogates are escaped.
const SURROGATES: u8 = 32;

/// Number of bytes after an escaped character that are searched one by one, and maximum size of a text that is searched only
/// so. Measured on JSON documents with an escaped character every five bytes.
const NEAR_BYTES: usize = 16;

/// Writes strings under these rules.
struct Writer<const RULES: u8>;

impl<const RULES: u8> Writer<RULES> {
    const fn has(rule: u8) -> bool {
        RULES & rule != 0
    }

    /// `true` for a byte that may start a character to escape.
    const SUSPECT: [bool; 256] = {
        let mut suspect = [false; 256];
        let mut byte = 0;
        while byte < 0x20 {
            suspect[byte] = true;
            byte += 1;
        }
        suspect[b'"' as usize] = true;
        suspect[b'\\' as usize] = true;
        suspect[b'%' as usize] = Self::has(PERCENT);
        suspect[b'<' as usize] = Self::has(LESS_THAN);
        suspect[0xe2] = Self::has(LINES | TRANSIT);
        suspect[0xef] = Self::has(TRANSIT);
        suspect[0xed] = Self::has(SURROGATES);
        suspect
    };

    /// Marks the suspect bytes among eight. The lowest mark is exact.
    #[inline]
    fn find(word: u64) -> u64 {
        let mut found = special(word);
        if Self::has(PERCENT) {
            found |= equal(word, b'%');
        }
        if Self::has(LESS_THAN) {
            found |= equal(word, b'<');
        }
        if is_ascii(word) {
            return found;
        }
        if Self::has(LINES | TRANSIT) {
            found |= equal(word, 0xe2);
        }
        if Self::has(TRANSIT) {
            found |= equal(word, 0xef);
        }
        if Self::has(SURROGATES) {
            found |= equal(word, 0xed);
        }
        found
    }

    #[inline]
    fn string(out: &mut Vec<u8>, text: &[u8]) {
        Self::quote(out);
        // Short texts, such as names, usually need no escapes.
        if text.len() <= NEAR_BYTES && !text.iter().any(|byte| Self::SUSPECT[usize::from(*byte)]) {
            out.extend_from_slice(text);
        } else {
            out.reserve(text.len() + text.len() / 8 + 4);
            Self::raw(out, text);
        }
        Self::quote(out);
    }

    #[inline(never)]
    fn raw(out: &mut Vec<u8>, bytes: &[u8]) {
        // The text before `copied` is written; the text up to `at` needs no escapes.
        let (mut copied, mut at) = (0, 0);
        while at < bytes.len() {
            if !Self::has(PERCENT | LESS_THAN) {
                at += plain_start(&bytes[at..]);
            }
            while let Some(word) = bytes[at..].first_chunk::<8>() {
                if Self::find(u64::from_le_bytes(*word)) != 0 {
                    break;
                }
                at += 8;
            }
            // Characters to escape usually come in groups, so single bytes are examined for a while.
            let mut end = bytes.len().min(at + NEAR_BYTES);
            while at < end {
                if !Self::SUSPECT[usize::from(bytes[at])] {
                    at += 1;
                    continue;
                }
                out.extend_from_slice(&bytes[copied..at]);
                at += Self::suspect(out, &bytes[at..]);
                copied = at;
                end = bytes.len().min(at + NEAR_BYTES);
            }
        }
        out.extend_from_slice(&bytes[copied..]);
    }

    /// Writes the character at the start of `rest`, which begins with a suspect byte. Returns its length.
    fn suspect(out: &mut Vec<u8>, rest: &[u8]) -> usize {
        match *rest {
            [b'"', ..] => {
                Self::backslash(out);
                Self::quote(out);
            }
            [b'\\', ..] => {
                Self::backslash(out);
                Self::backslash(out);
            }
            // All three start characters of three bytes.
            [first @ (0xe2 | 0xed | 0xef), second, third, ..] => {
                match Self::forbidden(first, second, third) {
                    Some(unit) => Self::unit(out, unit),
                    None => out.extend_from_slice(&[first, second, third]),
                }
                return 3;
            }
            [byte @ (0x08 | 0x09 | 0x0a | 0x0c | 0x0d), ..] => {
                Self::backslash(out);
                out.push(b"btn_fr"[usize::from(byte) - 8]);
            }
            [byte @ 0..0x20, ..] => Self::unit(out, u16::from(byte)),
            [b'%', ..] => out.extend_from_slice(b"%25"),
            [b'<', ..] => out.extend_from_slice(b"\\u003c"),
            [byte, ..] => out.push(byte),
            [] => return 0,
        }
        1
    }

    /// Returns the UTF-16 unit of these bytes if the rules escape it.
    fn forbidden(first: u8, second: u8, third: u8) -> Option<u16> {
        let (base, is_forbidden) = match (first, second, third) {
            (0xe2, 0x80, 0xa8..=0xa9) => (0x2000, Self::has(LINES | TRANSIT)),
            (0xe2, 0x80, 0x8c..=0x8f | 0xaa..=0xaf) => (0x2000, Self::has(TRANSIT)),
            (0xe2, 0x81, 0xa0..=0xaf) => (0x2040, Self::has(TRANSIT)),
            (0xef, 0xbf, 0xb0..=0xbf) => (0xffc0, Self::has(TRANSIT)),
            // In UTF-8, 0xed is followed by at most 0x9f.
            (0xed, 0xa0..=0xbf, _) => (0xd000 | u16::from(second & 0x3f) << 6, Self::has(SURROGATES)),
            _ => return None,
        };
        is_forbidden.then_some(base | u16::from(third & 0x3f))
    }

    fn quote(out: &mut Vec<u8>) {
        if Self::has(NESTED) {
            out.extend_from_slice(b"\\\"");
        } else {
            out.push(b'"');
        }
    }

    fn backslash(out: &mut Vec<u8>) {
        if Self::has(NESTED) {
            out.extend_from_slice(b"\\\\");
        } else {
            out.push(b'\\');
        }
    }

    fn unit(out: &mut Vec<u8>, unit: u16) {
        Self::backslash(out);
        let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xf)];
        out.extend_from_slice(&[b'u', digit(12), digit(8), digit(4), digit(0)]);
    }
}
