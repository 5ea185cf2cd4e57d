//! JSON strings (RFC 8259 section 7) as SockJS and Primus carry messages in them, written and read.
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

/// Which of eight bytes come first, of those with their bit set in `found`.
const fn first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
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

/// Appends `text` as a JSON string, with its quotes.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str, place: Place) {
    match place {
        Place::Json => Writer::<false, NO_EXTRA>::write(out, text),
        Place::EventStream => Writer::<false, b'%'>::write(out, text),
        Place::Script => Writer::<true, NO_EXTRA>::write(out, text),
        Place::HtmlScript => Writer::<true, b'<'>::write(out, text),
    }
}

/// How far from something to escape the next one is looked for byte by byte. Measured on JSON documents, where there
/// is one every five bytes.
const NEAR_BYTES: usize = 16;

/// A quote is escaped anyway.
const NO_EXTRA: u8 = b'"';

/// Writes strings whose escapes are escaped once more if they are `NESTED`, and in which `EXTRA` is escaped too.
struct Writer<const NESTED: bool, const EXTRA: u8>;

impl<const NESTED: bool, const EXTRA: u8> Writer<NESTED, EXTRA> {
    /// Which bytes need a closer look.
    const LOOK: [bool; 256] = {
        let mut look = [false; 256];
        let mut byte = 0;
        while byte < 0x20 {
            look[byte] = true;
            byte += 1;
        }
        look[b'"' as usize] = true;
        look[b'\\' as usize] = true;
        look[0xe2] = true;
        look[0xef] = true;
        look[EXTRA as usize] = true;
        look
    };

    fn write(out: &mut Vec<u8>, text: &str) {
        out.reserve(text.len() + text.len() / 8 + 4);
        Self::write_quote(out);
        let bytes = text.as_bytes();
        // Everything before `copied` is written; up to `at` all is plain.
        let (mut copied, mut at) = (0, 0);
        while at < bytes.len() {
            while let Some(word) = bytes[at..].first_chunk::<8>() {
                if Self::find(u64::from_le_bytes(*word)) != 0 {
                    break;
                }
                at += 8;
            }
            // Where there is one thing to escape there are mostly others: look at single bytes for a while.
            let mut end = bytes.len().min(at + NEAR_BYTES);
            while at < end {
                if !Self::LOOK[usize::from(bytes[at])] {
                    at += 1;
                    continue;
                }
                out.extend_from_slice(&bytes[copied..at]);
                at += Self::write_escaped(out, &bytes[at..]);
                copied = at;
                end = bytes.len().min(at + NEAR_BYTES);
            }
        }
        out.extend_from_slice(&bytes[copied..]);
        Self::write_quote(out);
    }

    /// Which of eight bytes need a closer look; the lowest bit set is exact.
    fn find(word: u64) -> u64 {
        below(word, 0x20)
            | equal(word, splat(b'"'))
            | equal(word, splat(b'\\'))
            | equal(word, splat(0xe2))
            | equal(word, splat(0xef))
            | equal(word, splat(EXTRA))
    }

    /// Writes the character at the start of `rest`, which [`Self::find`] has found there. Returns its length.
    fn write_escaped(out: &mut Vec<u8>, rest: &[u8]) -> usize {
        match *rest {
            [b'"', ..] => {
                Self::write_backslash(out);
                Self::write_quote(out);
            }
            [b'\\', ..] => {
                Self::write_backslash(out);
                Self::write_backslash(out);
            }
            // Both begin characters of three bytes.
            [first @ (0xe2 | 0xef), second, third, ..] => {
                match mangled(first, second, third) {
                    Some(unit) => Self::write_unit(out, unit),
                    None => out.extend_from_slice(&[first, second, third]),
                }
                return 3;
            }
            [byte @ (0x08 | 0x09 | 0x0a | 0x0c | 0x0d), ..] => {
                Self::write_backslash(out);
                out.push(b"btn_fr"[usize::from(byte) - 8]);
            }
            [byte @ 0..0x20, ..] => Self::write_unit(out, u16::from(byte)),
            [b'%', ..] => out.extend_from_slice(b"%25"),
            [b'<', ..] => out.extend_from_slice(b"\\u003c"),
            [byte, ..] => out.push(byte),
            [] => return 0,
        }
        1
    }

    fn write_quote(out: &mut Vec<u8>) {
        if NESTED {
            out.extend_from_slice(b"\\\"");
        } else {
            out.push(b'"');
        }
    }

    fn write_backslash(out: &mut Vec<u8>) {
        if NESTED {
            out.extend_from_slice(b"\\\\");
        } else {
            out.push(b'\\');
        }
    }

    fn write_unit(out: &mut Vec<u8>, unit: u16) {
        Self::write_backslash(out);
        let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xf)];
        out.extend_from_slice(&[b'u', digit(12), digit(8), digit(4), digit(0)]);
    }
}

/// The character of these bytes, if it is one that browsers change.
fn mangled(first: u8, second: u8, third: u8) -> Option<u16> {
    let base = match (first, second, third) {
        (0xe2, 0x80, 0x8c..=0x8f | 0xa8..=0xaf) => 0x2000,
        (0xe2, 0x81, 0xa0..=0xaf) => 0x2040,
        (0xef, 0xbf, 0xb0..=0xbf) => 0xffc0,
        _ => return None,
    };
    Some(base | u16::from(third & 0x3f))
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
        while let Some(word) = bytes[at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let found = below(word, 0x20) | equal(word, splat(b'"')) | equal(word, splat(b'\\'));
            at += if found == 0 { 8 } else { first(found) };
            if found != 0 {
                break;
            }
        }
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
            0..0x20 => return None,
            // At the end, where there are no eight bytes.
            _ => at += 1,
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
        let mut text = String::new();
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
        self.unescape_to(scratch);
        scratch
    }

    fn unescape_to(self, text: &mut String) {
        let mut out = std::mem::take(text).into_bytes();
        out.clear();
        out.reserve(self.text.len());
        let mut rest = self.text.as_bytes();
        // As in writing: eight bytes are copied, then those after a backslash are taken back.
        while let Some(word) = rest.first_chunk::<8>() {
            out.extend_from_slice(word);
            let found = equal(u64::from_le_bytes(*word), splat(b'\\'));
            if found == 0 {
                rest = &rest[8..];
            } else {
                let plain = first(found);
                out.truncate(out.len() - 8 + plain);
                rest = unescape_one(&mut out, &rest[plain..]);
            }
        }
        while let [byte, after @ ..] = rest {
            if *byte == b'\\' {
                rest = unescape_one(&mut out, rest);
            } else {
                out.push(*byte);
                rest = after;
            }
        }
        // Whole characters have been copied and written, so nothing is lost here.
        *text = String::from_utf8(out).unwrap_or_default();
    }
}

/// Writes the character that the escape at the start of `rest` stands for. Returns what follows it.
fn unescape_one<'b>(out: &mut Vec<u8>, rest: &'b [u8]) -> &'b [u8] {
    let Some((&[_, kind], after)) = rest.split_first_chunk::<2>() else { return &[] };
    out.push(match kind {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => {
            let high = unit(after);
            let low = match after.get(4..6) {
                Some(b"\\u") => unit(&after[6..]),
                _ => None,
            };
            // A pair is one character, anything else stands alone.
            let character = char::decode_utf16(high.into_iter().chain(low)).next();
            let character = character.and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER);
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return after.get(if character.len_utf16() == 2 { 10 } else { 4 }..).unwrap_or(&[]);
        }
        quote_or_slash => quote_or_slash,
    });
    after
}

/// `text` without white space (RFC 8259 section 2) at its start.
pub(crate) fn trim_start(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r'])
}
