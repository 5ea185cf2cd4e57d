//! Keys of feeds: the allowed characters, and the keys that a node accepts.
//!
//! Only this module decides which keys are valid. Every key from a client or a backend goes through a
//! [`KeyRule`]. No key of either [`KeyCharset`] changes the path of an upstream except by its own segments,
//! even if a server behind the upstream decodes the path once more. Texts aren't normalized: different bytes
//! are different keys.

use std::fmt;
use std::sync::Arc;

/// Maximum length of a key in bytes (docs/protocol.md, "Connecting").
pub const KEY_BYTES_MAX: usize = 256;

/// Returns the size of the allocation of a shared text, in bytes.
pub(crate) fn shared_text_bytes(text: &str) -> usize {
    (2 * size_of::<usize>() + text.len()).next_multiple_of(align_of::<usize>())
}

/// The characters that keys may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyCharset {
    /// `[A-Za-z0-9._~@:=+,-]`.
    #[default]
    Ascii,
    /// All characters except `\`, control characters, line and paragraph separators, and characters that
    /// change the direction of text. A `%` must not precede two hexadecimal digits.
    Utf8,
}

/// The key of a feed: 1–256 bytes, non-empty segments of characters of a [`KeyCharset`] joined by `/`. No
/// segment is `.` or `..`, so a key that is appended to an upstream's path never leaves that path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Reason why a text isn't a key. The author of the text is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is empty.
    #[error("the key is empty")]
    Empty,
    /// The text has more than [`KEY_BYTES_MAX`] bytes.
    #[error("the key is longer than {KEY_BYTES_MAX} bytes")]
    TooLong,
    /// An empty segment: a leading, trailing or doubled `/`.
    #[error("the key has an empty segment (a leading, trailing or doubled '/')")]
    EmptySegment,
    /// A segment `.` or `..`.
    #[error("the key has a segment '.' or '..'")]
    DotSegment,
    /// A character outside [`KeyCharset::Ascii`] at this byte, which [`KeyCharset::Utf8`] allows.
    #[error(
        "the key has a character at byte {0} that is none of A-Z a-z 0-9 . _ ~ @ : = + , -; keys = \"utf8\" in [[feeds]] allows others"
    )]
    Character(usize),
    /// A character that no key may contain, at this byte.
    #[error(
        "the key has a character at byte {0} that no key may have: a control character, '\\', or '%' before two hexadecimal digits"
    )]
    Forbidden(usize),
    /// A malformed percent-encoding at this byte: an encoded `/`, invalid UTF-8, or a `%` that isn't followed
    /// by two hexadecimal digits.
    #[error("the key has an invalid or forbidden percent escape at byte {0}")]
    Encoding(usize),
}

impl Key {
    /// Checks a text that has been percent-decoded once, with [`KeyCharset::Ascii`]. (The caller has refused
    /// encoded slashes.)
    ///
    /// # Errors
    /// [`KeyError`] names the rule of [`Key`] that the text breaks.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        Self::parse_as(text, KeyCharset::Ascii)
    }

    /// Checks a text that has been percent-decoded once, with a set of characters.
    ///
    /// # Errors
    /// [`KeyError`] names the rule of [`Key`] that the text breaks.
    pub fn parse_as(text: &str, charset: KeyCharset) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        if let Some(at) = text.bytes().position(|byte| byte != b'/' && !Self::is_plain(byte)) {
            if let Some(at) = forbidden(text) {
                return Err(KeyError::Forbidden(at));
            }
            if charset == KeyCharset::Ascii {
                return Err(KeyError::Character(at));
            }
        }
        for segment in text.split('/') {
            if segment.is_empty() {
                return Err(KeyError::EmptySegment);
            }
            if is_dot_segment(segment) {
                return Err(KeyError::DotSegment);
            }
        }
        Ok(Self(text.into()))
    }

    /// Returns `true` if `byte` is a character of [`KeyCharset::Ascii`] other than the separator `/`.
    pub fn is_plain(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || b"._~@:=+,-".contains(&byte)
    }

    /// Returns `true` if all characters belong to this set.
    pub fn is_of(&self, charset: KeyCharset) -> bool {
        charset == KeyCharset::Utf8 || self.0.bytes().all(|byte| byte == b'/' || Self::is_plain(byte))
    }

    /// Returns the allocated size in bytes: two counters and the text.
    pub(crate) fn allocated_bytes(&self) -> usize {
        shared_text_bytes(&self.0)
    }

    /// Returns the key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_debug())
    }
}

/// Returns the position of the first character that no key may contain.
fn forbidden(text: &str) -> Option<usize> {
    let is_forbidden = |at: usize, c: char| match c {
        '\\' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        '%' => is_escape(&text.as_bytes()[at..]),
        _ => c.is_control(),
    };
    text.char_indices().find(|(at, c)| is_forbidden(*at, *c)).map(|(at, _)| at)
}

/// Returns `true` if a server that decodes a text once more finds an escape at its start.
pub fn is_escape(text: &[u8]) -> bool {
    matches!(text, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Returns `true` if a server reads a segment as the parent or the same directory: as it is, without
/// surrounding blanks, or without a suffix from `;` (a parameter of the segment), `?` or `#` on.
pub fn is_dot_segment(segment: &str) -> bool {
    let name = segment.split([';', '?', '#']).next().unwrap_or_default();
    matches!(name.trim(), "." | "..")
}

/// The keys that a node accepts. The default is [`KeyCharset::Ascii`].
#[derive(Clone, Default)]
pub struct KeyRule(
    /// Returns `true` for accepted keys of [`KeyCharset::Utf8`]. `None` accepts none of them.
    Option<Arc<Allows>>,
);

type Allows = dyn Fn(&Key) -> bool + Send + Sync;

impl KeyRule {
    /// Accepts keys of [`KeyCharset::Ascii`], and further keys for which `allows` returns `true`.
    pub fn new(allows: impl Fn(&Key) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(allows)))
    }

    /// Checks a text that has been percent-decoded once. (The caller has refused encoded slashes.)
    ///
    /// # Errors
    /// [`KeyError`] names the rule that the text breaks.
    pub fn parse(&self, text: &str) -> Result<Key, KeyError> {
        let parsed = Key::parse(text);
        let (Some(allows), Err(KeyError::Character(_))) = (&self.0, &parsed) else { return parsed };
        let key = Key::parse_as(text, KeyCharset::Utf8)?;
        if allows(&key) { Ok(key) } else { parsed }
    }
}

impl fmt::Debug for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "KeyRule(utf8)" } else { "KeyRule(ascii)" })
    }
}

#[cfg(test)]
mod tests {
    use super::KeyError::*;
    use super::*;

    /// Checks the results with each set of characters.
    fn check(text: &str, ascii: Result<(), KeyError>, utf8: Result<(), KeyError>) {
        for (charset, expect) in [(KeyCharset::Ascii, ascii), (KeyCharset::Utf8, utf8)] {
            match Key::parse_as(text, charset) {
                Ok(key) => {
                    assert_eq!((key.as_str(), expect), (text, Ok(())), "{charset:?}");
                    assert!(key.is_of(charset) && key.is_of(KeyCharset::Ascii) == ascii.is_ok(), "{text:?}");
                }
                Err(error) => assert_eq!(Err(error), expect, "{text:?} {charset:?}"),
            }
        }
    }

    #[test]
    fn keys_of_either_charset() {
        let check = |text: &str, expect| check(text, expect, expect);
        check("matchesfeed/8/matchcentre", Ok(()));
        check("a.b_c~d@e:f=g+h,i-j", Ok(()));
        check("...", Ok(()));
        check("", Err(Empty));
        check(&"k".repeat(256), Ok(()));
        check(&"k".repeat(257), Err(TooLong));
        check("/a", Err(EmptySegment));
        check("a/", Err(EmptySegment));
        check("a//b", Err(EmptySegment));
        check("a/../b", Err(DotSegment));
        check(".", Err(DotSegment));
    }

    #[test]
    fn keys_as_they_are_in_apis() {
        let check = |text: &str, at| check(text, Err(Character(at)), Ok(()));
        check("S\u{e3}o Paulo", 1);
        check("users/o'brien@example.com", 7);
        check("a b", 1);
        check("50%", 2);
        check("50%/2", 2);
        check("%2", 0);
        check("%g0", 0);
        check("* and {x} or \"q\" <b>!#?;&|^`$()[]", 0);
        check("a/ /b", 2);
        check("a/..b;c", 5);
        check("\u{1f980}", 0);
        check("a\u{301}", 1);
        check(&"\u{e9}".repeat(128), 0);
        check("http://x?y".trim_start_matches("http://"), 1);
    }

    #[test]
    fn forbidden_keys() {
        let forbidden = |text: &str, at| check(text, Err(Forbidden(at)), Err(Forbidden(at)));
        forbidden("a%2fb", 1);
        forbidden("a/%2E%2e", 2);
        forbidden("a%252fb", 1);
        forbidden("\u{e9}%41", 2);
        forbidden("a\\b", 1);
        forbidden("a\r\nb", 1);
        let controls = (0..' ' as u32).chain(0x7f..=0x9f).chain([0x61c, 0x200e, 0x200f]);
        for c in controls.chain(0x2028..=0x202e).chain(0x2066..=0x2069).filter_map(char::from_u32) {
            forbidden(&format!("a{c}b"), 1);
        }
        for (segment, at) in
            [(".. ", 2), (" .", 0), ("..;", 2), ("..;x=1", 2), (".?x", 1), ("..#", 2), ("..\u{a0}", 2)]
        {
            check(&format!("a/{segment}/b"), Err(Character(2 + at)), Err(DotSegment));
        }
        check(&"\u{e9}".repeat(129), Err(TooLong), Err(TooLong));
        check("a b//c", Err(Character(1)), Err(EmptySegment));
    }

    #[test]
    fn a_rule_decides_on_keys_of_the_wider_charset_only() {
        let rule = KeyRule::new(|key| key.as_str().starts_with("city/"));
        let parsed = |rule: &KeyRule, text| rule.parse(text).map(|key| key.as_str().to_owned());
        assert_eq!(parsed(&rule, "city/S\u{e3}o"), Ok("city/S\u{e3}o".into()));
        assert_eq!(parsed(&rule, "town/S\u{e3}o"), Err(Character(6)));
        assert_eq!(parsed(&rule, "town/x"), Ok("town/x".into()));
        assert_eq!(parsed(&rule, "city/ /.."), Err(DotSegment));
        assert_eq!(parsed(&rule, "city/\n"), Err(Forbidden(5)));
        assert_eq!(parsed(&KeyRule::default(), "city/S\u{e3}o"), Err(Character(6)));
        assert!(Character(6).to_string().ends_with("keys = \"utf8\" in [[feeds]] allows others"));
    }
}
