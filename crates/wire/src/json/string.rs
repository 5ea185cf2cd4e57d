//! Reading and writing strings.

use std::borrow::Cow;

/// The text of a value that is a string, `None` for another value. The value has been checked.
pub fn string(value: &str) -> Option<Cow<'_, str>> {
    value.strip_prefix('"')?.strip_suffix('"').map(unescape)
}

/// The text that is written as `raw` between quotes. Half a surrogate pair becomes U+FFFD. `raw` has been checked.
pub fn unescape(raw: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return Cow::Borrowed(raw);
    }
    Cow::Owned(Unescaped { rest: raw }.collect())
}

/// Whether `raw`, between quotes, is another way to write `text`.
pub(crate) fn string_is(raw: &str, text: &str) -> bool {
    raw == text || (raw.contains('\\') && Unescaped { rest: raw }.eq(text.chars()))
}

/// The characters that an escaped text stands for.
struct Unescaped<'a> {
    rest: &'a str,
}

impl<'a> Unescaped<'a> {
    fn take(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    /// The UTF-16 unit whose four digits are next.
    fn unit(&self) -> Option<(u16, &'a str)> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        Some((u16::from_str_radix(digits, 16).ok()?, rest))
    }

    fn unicode(&mut self) -> char {
        let Some((first, rest)) = self.unit() else { return char::REPLACEMENT_CHARACTER };
        self.rest = rest;
        if let Ok(char) = char::try_from(u32::from(first)) {
            return char;
        }
        let second =
            rest.strip_prefix("\\u").and_then(|rest| Unescaped { rest }.unit().map(|(unit, _)| unit));
        let pair = second.and_then(|second| char::decode_utf16([first, second]).next()?.ok());
        if pair.is_some() {
            self.rest = rest.get("\\uXXXX".len()..).unwrap_or_default();
        }
        pair.unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

impl Iterator for Unescaped<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self.take()? {
            '\\' => Some(match self.take()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => self.unicode(),
                same => same,
            }),
            char => Some(char),
        }
    }
}

/// Appends `text` as a JSON string, quotes included, escaped as `JSON.stringify` does it.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write(out, text, false);
}

/// Appends `text` as a string that is good in JSON and in JavaScript of any age: U+2028 and U+2029, which end a line
/// there, are escaped as well.
pub fn write_script_string(out: &mut Vec<u8>, text: &str) {
    write(out, text, true);
}

fn write(out: &mut Vec<u8>, text: &str, line_separators: bool) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let bytes = text.as_bytes();
    let (mut at, mut written) = (0, 0);
    while at < bytes.len() {
        let (escape, len): (&[u8], usize) = match &bytes[at..] {
            [b'"', ..] => (b"\\\"", 1),
            [b'\\', ..] => (b"\\\\", 1),
            [b'\n', ..] => (b"\\n", 1),
            [b'\r', ..] => (b"\\r", 1),
            [b'\t', ..] => (b"\\t", 1),
            [8, ..] => (b"\\b", 1),
            [12, ..] => (b"\\f", 1),
            [control @ ..0x20, ..] => {
                let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                (&[b'\\', b'u', b'0', b'0', hex(control >> 4), hex(control & 0xf)], 1)
            }
            [0xe2, 0x80, 0xa8, ..] if line_separators => (b"\\u2028", 3),
            [0xe2, 0x80, 0xa9, ..] if line_separators => (b"\\u2029", 3),
            _ => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(&bytes[written..at]);
        out.extend_from_slice(escape);
        at += len;
        written = at;
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}
