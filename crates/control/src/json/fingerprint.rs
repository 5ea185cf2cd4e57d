//! A keyed 128-bit fingerprint of a JSON value as JavaScript sees it: numbers are doubles (`-0` is `0`), strings
//! are what their escapes mean, the order of names doesn't matter and the last of duplicate names wins.
//!
//! Two texts of the same value have the same fingerprint. Two different values share one with probability
//! 2⁻¹²⁸ for anybody who doesn't know the keys, which are drawn at random when the process starts; so a
//! fingerprint per document replaces a kept parse tree, and the old text is never parsed again.
//!
//! Works on text that [`super::minify()`] has passed: valid, without whitespace, nested at most
//! [`super::DEPTH_MAX`] deep, so that it may recurse. On other text it gives a meaningless answer, no panic.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// What a value looks like from far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint([u64; 2]);

/// Makes fingerprints that may be compared with each other: two SipHash keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fingerprints([RandomState; 2]);

/// Both hashes at once. Each kind of value opens with a tag, so that `"1"` and `1` differ.
struct Mix<H>([H; 2]);

impl<H: Hasher> Mix<H> {
    fn bytes(&mut self, bytes: &[u8]) {
        for hasher in &mut self.0 {
            hasher.write(bytes);
        }
    }

    fn print(&mut self, print: Fingerprint) {
        for word in print.0 {
            self.bytes(&word.to_ne_bytes());
        }
    }

    fn finish(self) -> Fingerprint {
        Fingerprint(self.0.map(|hasher| hasher.finish()))
    }
}

impl Fingerprints {
    /// The fingerprint of a minified text.
    pub(crate) fn of(&self, minified: &[u8]) -> Fingerprint {
        let mut walk = Walk { prints: self, text: minified, at: 0, unescaped: Vec::new() };
        walk.value()
    }

    fn mix(&self, tag: u8) -> Mix<impl Hasher + use<>> {
        let mut mix = Mix([self.0[0].build_hasher(), self.0[1].build_hasher()]);
        mix.bytes(&[tag]);
        mix
    }
}

struct Walk<'a> {
    prints: &'a Fingerprints,
    text: &'a [u8],
    at: usize,
    unescaped: Vec<u8>,
}

impl Walk<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn value(&mut self) -> Fingerprint {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string(),
            Some(b't' | b'f' | b'n') => self.literal(),
            _ => self.number(),
        }
    }

    fn object(&mut self) -> Fingerprint {
        self.at += 1;
        let mut members: Vec<(Fingerprint, Fingerprint)> = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'}' => {
                    self.at += 1;
                    break;
                }
                b',' => self.at += 1,
                _ => {
                    let name = self.string();
                    self.at += 1; // the colon
                    let value = self.value();
                    members.push((name, value));
                }
            }
        }
        // The sort is stable: of equal names, the one written last stays last, and wins.
        members.sort_by_key(|(name, _)| *name);
        let mut mix = self.prints.mix(b'{');
        for (i, (name, value)) in members.iter().enumerate() {
            if members.get(i + 1).is_none_or(|(next, _)| next != name) {
                mix.print(*name);
                mix.print(*value);
            }
        }
        mix.finish()
    }

    fn array(&mut self) -> Fingerprint {
        self.at += 1;
        let mut mix = self.prints.mix(b'[');
        while let Some(byte) = self.peek() {
            match byte {
                b']' => {
                    self.at += 1;
                    break;
                }
                b',' => self.at += 1,
                _ => {
                    let element = self.value();
                    mix.print(element);
                }
            }
        }
        mix.finish()
    }

    fn literal(&mut self) -> Fingerprint {
        let first = self.peek().unwrap_or(b'n');
        self.at += if first == b'f' { 5 } else { 4 };
        self.prints.mix(first).finish()
    }

    fn number(&mut self) -> Fingerprint {
        let from = self.at;
        self.at += 1;
        while let Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') = self.peek() {
            self.at += 1;
        }
        let text = self.text.get(from..self.at).unwrap_or_default();
        // Rust's parser rounds to the nearest double, and too large to infinity, as JavaScript's does.
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        let number = if number == 0.0 { 0.0 } else { number };
        let mut mix = self.prints.mix(b'0');
        mix.bytes(&number.to_bits().to_ne_bytes());
        mix.finish()
    }

    fn string(&mut self) -> Fingerprint {
        self.at += 1;
        let from = self.at;
        let rest = self.text.get(from..).unwrap_or_default();
        let mut mix = self.prints.mix(b'"');
        let stop = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        if rest.get(stop) != Some(&b'\\') {
            self.at = from + stop + 1;
            mix.bytes(&rest[..stop]);
        } else {
            self.at = from;
            self.unescape();
            mix.bytes(&self.unescaped);
        }
        mix.finish()
    }

    /// Reads a string with escapes up to behind its closing quote, to WTF-8: JavaScript's strings may hold
    /// surrogates that have no partner.
    fn unescape(&mut self) {
        self.unescaped.clear();
        let mut high: Option<u16> = None;
        while let Some(byte) = self.peek() {
            self.at += 1;
            let unit = match byte {
                b'"' => break,
                b'\\' => {
                    let escape = self.peek().unwrap_or(b'"');
                    self.at += 1;
                    match escape {
                        b'b' => 0x08,
                        b'f' => 0x0c,
                        b'n' => 0x0a,
                        b'r' => 0x0d,
                        b't' => 0x09,
                        b'u' => {
                            let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
                            self.at += 4;
                            digits.iter().fold(0u16, |unit, digit| {
                                (unit << 4) | char::from(*digit).to_digit(16).unwrap_or(0) as u16
                            })
                        }
                        other => u16::from(other),
                    }
                }
                raw => {
                    self.flush(high.take());
                    self.unescaped.push(raw);
                    continue;
                }
            };
            match (high.take(), unit) {
                (Some(first), 0xdc00..=0xdfff) => {
                    let point = 0x1_0000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(unit) - 0xdc00);
                    let mut utf8 = [0; 4];
                    if let Some(c) = char::from_u32(point) {
                        self.unescaped.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
                    }
                }
                (before, 0xd800..=0xdbff) => {
                    self.flush(before);
                    high = Some(unit);
                }
                (before, _) => {
                    self.flush(before);
                    self.flush(Some(unit));
                }
            }
        }
        self.flush(high);
    }

    /// Appends one UTF-16 unit on its own, a lonely surrogate as three bytes.
    fn flush(&mut self, unit: Option<u16>) {
        let Some(unit) = unit else { return };
        let [_, low] = unit.to_be_bytes();
        if unit < 0x80 {
            self.unescaped.push(low);
            return;
        }
        let tail = |shift: u16| 0x80 | ((unit >> shift) & 0x3f) as u8;
        if unit < 0x800 {
            self.unescaped.extend([0xc0 | (unit >> 6) as u8, tail(0)]);
        } else {
            self.unescaped.extend([0xe0 | (unit >> 12) as u8, tail(6), tail(0)]);
        }
    }
}
