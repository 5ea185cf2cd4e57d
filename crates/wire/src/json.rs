//! JSON strings (RFC 8259 section 7), written and read: all that SockJS and Primus need of JSON.
//!
//! Writing escapes more than JSON asks: also the characters that browsers are known to change on their way, which the
//! SockJS specification lists (U+200C–200F, U+2028–202F, U+2060–206F, U+FFF0–FFFF), always as lower-case `\uXXXX`.
//!
//! Invariants: text without anything to escape is found eight bytes at a time and copied in one piece; reading and
//! writing are linear in the text's length.

use std::borrow::Cow;

const HEX: &[u8; 16] = b"0123456789abcdef";
const HIGH_BITS: u64 = splat(0x80);

const fn splat(byte: u8) -> u64 {
    0x0101_0101_0101_0101 * byte as u64
}

/// Sets the high bit of bytes of `word` below `limit`, which is at most 0x80. The lowest bit set is exact; a borrow may
/// set false ones above it.
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(splat(limit)) & !word & HIGH_BITS
}

/// Sets the high bit of bytes of `word` equal to those of `bytes`; exact for the lowest, as [`below`].
const fn equal(word: u64, bytes: u64) -> u64 {
    below(word ^ bytes, 1)
}

/// Where `byte_found` is first true in `bytes`; `word_found` says the same of eight bytes, as [`below`] does.
fn position(bytes: &[u8], word_found: impl Fn(u64) -> u64, byte_found: impl Fn(u8) -> bool) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = word_found(u64::from_le_bytes(*word));
        if found != 0 {
            return 8 * at + found.trailing_zeros() as usize / 8;
        }
    }
    8 * words.len() + rest.iter().position(|&byte| byte_found(byte)).unwrap_or(rest.len())
}

/// How a string is escaped for where it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A JSON text by itself.
    Json,
    /// A JSON text in which `%` is written `%25`: SockJS clients pass an event stream's data through `decodeURI`.
    EventStream,
    /// A JSON text inside of a JavaScript string: every backslash is doubled, every quote escaped.
    Script,
    /// The same inside of an HTML script element: `<` is written `\u003c` too, so that nothing ends the element or
    /// changes how its end is found.
    HtmlScript,
}

impl Place {
    fn is_nested(self) -> bool {
        matches!(self, Place::Script | Place::HtmlScript)
    }

    /// What is escaped here besides, and how.
    fn extra(self) -> Option<(u8, &'static [u8])> {
        match self {
            Place::Json | Place::Script => None,
            Place::EventStream => Some((b'%', b"%25")),
            Place::HtmlScript => Some((b'<', b"\\u003c")),
        }
    }

    /// What stands before and after a string.
    fn quote(self) -> &'static [u8] {
        if self.is_nested() { b"\\\"" } else { b"\"" }
    }

    /// What begins an escape.
    fn backslash(self) -> &'static [u8] {
        if self.is_nested() { b"\\\\" } else { b"\\" }
    }
}

/// Appends `text` as a JSON string, with its quotes.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str, place: Place) {
    out.reserve(text.len() + 4);
    out.extend_from_slice(place.quote());
    // A quote is escaped anyway.
    let (extra, extra_escape) = place.extra().unwrap_or((b'"', b""));
    let extras = splat(extra);
    let mut rest = text.as_bytes();
    loop {
        let plain = position(
            rest,
            |word| {
                below(word, 0x20)
                    | equal(word, splat(b'"'))
                    | equal(word, splat(b'\\'))
                    | equal(word, splat(0xe2))
                    | equal(word, splat(0xef))
                    | equal(word, extras)
            },
            |byte| byte < 0x20 || matches!(byte, b'"' | b'\\' | 0xe2 | 0xef) || byte == extra,
        );
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        let Some(&byte) = rest.first() else { break };
        let mut bytes = 1;
        match byte {
            b'"' => {
                out.extend_from_slice(place.backslash());
                out.extend_from_slice(place.quote());
            }
            b'\\' => {
                out.extend_from_slice(place.backslash());
                out.extend_from_slice(place.backslash());
            }
            0xe2 | 0xef => {
                // Both begin characters of three bytes.
                bytes = 3.min(rest.len());
                match mangled(rest) {
                    Some(unit) => write_unit(out, unit, place),
                    None => out.extend_from_slice(&rest[..bytes]),
                }
            }
            0x08 | 0x09 | 0x0a | 0x0c | 0x0d => {
                out.extend_from_slice(place.backslash());
                out.push(b"btn_fr"[usize::from(byte) - 8]);
            }
            0..0x20 => write_unit(out, u16::from(byte), place),
            _ => out.extend_from_slice(extra_escape),
        }
        rest = &rest[bytes..];
    }
    out.extend_from_slice(place.quote());
}

/// The character at the start of `bytes`, if it is one that browsers change.
fn mangled(bytes: &[u8]) -> Option<u16> {
    match *bytes {
        [0xe2, 0x80, low @ (0x8c..=0x8f | 0xa8..=0xaf), ..] => Some(0x2000 | u16::from(low & 0x3f)),
        [0xe2, 0x81, low @ 0xa0..=0xaf, ..] => Some(0x2040 | u16::from(low & 0x3f)),
        [0xef, 0xbf, low @ 0xb0..=0xbf, ..] => Some(0xffc0 | u16::from(low & 0x3f)),
        _ => None,
    }
}

fn write_unit(out: &mut Vec<u8>, unit: u16, place: Place) {
    out.extend_from_slice(place.backslash());
    let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xf)];
    out.extend_from_slice(&[b'u', digit(12), digit(8), digit(4), digit(0)]);
}

/// A JSON string as it lies in a text, between its quotes; escapes are well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raw<'b> {
    text: &'b str,
    escaped: bool,
}

/// Reads a string that begins after the quote at the start of `text`, and what follows its end. `None` if it never
/// ends, holds a control character, or an escape that JSON does not know.
pub(crate) fn read_string(text: &str) -> Option<(Raw<'_>, &str)> {
    let text = text.strip_prefix('"')?;
    let bytes = text.as_bytes();
    let (mut at, mut escaped) = (0, false);
    loop {
        at += position(
            &bytes[at..],
            |word| below(word, 0x20) | equal(word, splat(b'"')) | equal(word, splat(b'\\')),
            |byte| byte < 0x20 || matches!(byte, b'"' | b'\\'),
        );
        match bytes.get(at)? {
            b'"' => return Some((Raw { text: &text[..at], escaped }, &text[at + 1..])),
            b'\\' => {
                escaped = true;
                at += match bytes.get(at + 1)? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                    b'u' => {
                        unit(bytes.get(at + 2..)?)?;
                        6
                    }
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
}

/// Four hexadecimal digits.
fn unit(bytes: &[u8]) -> Option<u16> {
    bytes.get(..4)?.iter().try_fold(0, |unit, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(unit << 4 | digit as u16)
    })
}

impl<'b> Raw<'b> {
    /// The string's characters, if none is escaped.
    pub(crate) fn as_plain(self) -> Option<&'b str> {
        (!self.escaped).then_some(self.text)
    }

    /// Whether the string begins with `prefix`, which is ASCII, however it is escaped.
    pub(crate) fn starts_with(self, prefix: &str) -> bool {
        // An escape makes one character of six bytes at most.
        let end = (6 * prefix.len()).min(self.text.len());
        let cut = self.text.floor_char_boundary(end);
        self.text.starts_with(prefix)
            || self.escaped && Raw { text: &self.text[..cut], escaped: true }.unescape().starts_with(prefix)
    }

    /// The string's characters. Half of a surrogate pair becomes U+FFFD, as it does when JavaScript makes UTF-8 of it.
    pub(crate) fn unescape(self) -> Cow<'b, str> {
        if !self.escaped {
            return Cow::Borrowed(self.text);
        }
        let mut text = String::with_capacity(self.text.len());
        self.unescape_to(&mut text);
        Cow::Owned(text)
    }

    /// The same, with `scratch` for what had to be unescaped.
    pub(crate) fn unescape_in<'s>(self, scratch: &'s mut String) -> &'s str
    where
        'b: 's,
    {
        if !self.escaped {
            return self.text;
        }
        scratch.clear();
        self.unescape_to(scratch);
        scratch
    }

    fn unescape_to(self, out: &mut String) {
        let mut rest = self.text;
        while let Some((plain, escape)) = rest.split_once('\\') {
            out.push_str(plain);
            let mut escape = escape.chars();
            match escape.next() {
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('u') => {
                    let bytes = escape.as_str().as_bytes();
                    let high = unit(bytes).unwrap_or(0xfffd);
                    let low = match bytes.get(4..6) {
                        Some(b"\\u") => unit(&bytes[6..]),
                        _ => None,
                    };
                    // A pair is one character, anything else stands alone.
                    let pair = char::decode_utf16([high].into_iter().chain(low)).next();
                    let (character, skipped) = match pair {
                        Some(Ok(character)) if character.len_utf16() == 2 => (character, 10),
                        Some(Ok(character)) => (character, 4),
                        _ => (char::REPLACEMENT_CHARACTER, 4),
                    };
                    out.push(character);
                    escape = escape.as_str().get(skipped..).unwrap_or("").chars();
                }
                Some(character) => out.push(character),
                None => {}
            }
            rest = escape.as_str();
        }
        out.push_str(rest);
    }
}

/// `text` without white space (RFC 8259 section 2) at its start.
pub(crate) fn trim_start(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r'])
}
