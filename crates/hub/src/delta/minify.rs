//! JSON texts checked and stripped of whitespace where they lie, for what is passed on and not compared.
//!
//! One pass moves everything but whitespace to the text's front; no recursion, no allocation.
//!
//! Invariant: `0 <= write <= read <= text.len()`; what lies before `write` is the minified text so far.

use super::tape::DEPTH_MAX;
use super::text::{ParseError, number_end, string_end};

/// The open arrays (false) and objects (true), one bit each.
#[derive(Default)]
struct Nesting {
    bits: u128,
    depth: usize,
}

// One bit per level must be enough.
const _: () = assert!(DEPTH_MAX <= 128);

impl Nesting {
    fn push(&mut self, object: bool, at: usize) -> Result<(), ParseError> {
        if self.depth == DEPTH_MAX {
            return Err(ParseError::TooDeep(at));
        }
        self.bits = (self.bits << 1) | u128::from(object);
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.bits >>= 1;
        self.depth -= 1;
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.bits & 1 == 1
    }
}

/// What may come next.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    Value,
    ValueOrClose,
    NameOrClose,
    Name,
    Colon,
    CommaOrClose,
    Nothing,
}

/// What JavaScript's `Response.json` skips at the start of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The text after a byte order mark, if there is one.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Checks that `text` is one JSON value, perhaps after a byte order mark, and takes the whitespace away. Spellings
/// stay as they are. A text may be larger here than what is compared.
///
/// # Errors
///
/// The text is no JSON, or is nested deeper than [`DEPTH_MAX`].
pub fn minify(mut text: Vec<u8>) -> Result<Vec<u8>, ParseError> {
    if let Err(error) = std::str::from_utf8(&text) {
        return Err(ParseError::Utf8(error.valid_up_to()));
    }
    let mut read = text.len() - without_mark(&text).len();
    let mut write = 0;
    let mut nesting = Nesting::default();
    let mut expect = Expect::Value;
    while let Some(&byte) = text.get(read) {
        let from = read;
        match (expect, byte) {
            (_, b' ' | b'\n' | b'\r' | b'\t') => {
                read += 1;
                continue;
            }
            (Expect::Value | Expect::ValueOrClose, b'{') => {
                nesting.push(true, read)?;
                expect = Expect::NameOrClose;
                read += 1;
            }
            (Expect::Value | Expect::ValueOrClose, b'[') => {
                nesting.push(false, read)?;
                expect = Expect::ValueOrClose;
                read += 1;
            }
            (Expect::Value | Expect::ValueOrClose, b'"') => {
                read = string_end(&text, read)?.0;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b'-' | b'0'..=b'9') => {
                read = number_end(&text, read)?;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b't') => {
                read = literal_end(&text, read, b"true")?;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b'f') => {
                read = literal_end(&text, read, b"false")?;
                expect = after_value(&nesting);
            }
            (Expect::Value | Expect::ValueOrClose, b'n') => {
                read = literal_end(&text, read, b"null")?;
                expect = after_value(&nesting);
            }
            (Expect::NameOrClose | Expect::Name, b'"') => {
                read = string_end(&text, read)?.0;
                expect = Expect::Colon;
            }
            (Expect::Colon, b':') => {
                expect = Expect::Value;
                read += 1;
            }
            (Expect::CommaOrClose, b',') => {
                expect = if nesting.in_object() { Expect::Name } else { Expect::Value };
                read += 1;
            }
            (Expect::CommaOrClose | Expect::NameOrClose, b'}') if nesting.in_object() => {
                nesting.pop();
                expect = after_value(&nesting);
                read += 1;
            }
            (Expect::CommaOrClose | Expect::ValueOrClose, b']') if !nesting.in_object() => {
                nesting.pop();
                expect = after_value(&nesting);
                read += 1;
            }
            _ => return Err(ParseError::Unexpected(read)),
        }
        if write != from {
            text.copy_within(from..read, write);
        }
        write += read - from;
    }
    if expect != Expect::Nothing {
        return Err(ParseError::Incomplete);
    }
    text.truncate(write);
    Ok(text)
}

fn after_value(nesting: &Nesting) -> Expect {
    if nesting.depth == 0 { Expect::Nothing } else { Expect::CommaOrClose }
}

fn literal_end(text: &[u8], at: usize, literal: &[u8]) -> Result<usize, ParseError> {
    for (i, expect) in literal.iter().enumerate() {
        match text.get(at + i) {
            None => return Err(ParseError::Incomplete),
            Some(byte) if byte == expect => {}
            Some(_) => return Err(ParseError::Unexpected(at + i)),
        }
    }
    Ok(at + literal.len())
}

/// Whether a text that is known to be JSON is nested no deeper than [`DEPTH_MAX`].
pub fn is_shallow(text: &[u8]) -> bool {
    let mut depth = 0usize;
    let mut i = 0;
    while let Some(&byte) = text.get(i) {
        match byte {
            b'"' => {
                let Ok((end, _)) = string_end(text, i) else { return false };
                i = end;
                continue;
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return false;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minified(text: &str) -> Result<String, ParseError> {
        minify(text.as_bytes().to_vec()).map(|out| String::from_utf8(out).unwrap())
    }

    #[test]
    fn whitespace_goes_and_spelling_stays() {
        fn check(text: &str, expect: &str) {
            assert_eq!(minified(text).as_deref(), Ok(expect), "{text:?}");
            assert_eq!(minified(expect).as_deref(), Ok(expect), "twice: {text:?}");
        }
        check("null", "null");
        check(" true\r\n", "true");
        check("\u{feff}{}", "{}");
        check("[ ]", "[]");
        check("{ }", "{}");
        check("[1 , 2.50e+3,-0]", "[1,2.50e+3,-0]");
        check(
            "{ \"a b\" : \" c\\n\\u00e9\\\\\" ,\t\"d\":[ [ ] , {\"e\" :false} ] }",
            r#"{"a b":" c\n\u00e9\\","d":[[],{"e":false}]}"#,
        );
        check(r#""\ud800""#, r#""\ud800""#);
        check("  \"\u{2028} é \"  ", "\"\u{2028} é \"");
        check("12345678901234567890123456789", "12345678901234567890123456789");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        fn check(text: &str, expect: ParseError) {
            assert_eq!(minified(text), Err(expect), "{text:?}");
        }
        use ParseError::*;
        check("", Incomplete);
        check("  ", Incomplete);
        check("{", Incomplete);
        check("[1,", Incomplete);
        check("\"a", Incomplete);
        check("\"a\\", Incomplete);
        check("\"\\u12", Incomplete);
        check("tru", Incomplete);
        check("-", Incomplete);
        check("1.", Incomplete);
        check("1e", Incomplete);
        check("nul}", Unexpected(3));
        check("01", Unexpected(1));
        check("+1", Unexpected(0));
        check(".5", Unexpected(0));
        check("1.e3", Unexpected(2));
        check("[1,]", Unexpected(3));
        check("[,1]", Unexpected(1));
        check("{\"a\":1,}", Unexpected(7));
        check("{\"a\"}", Unexpected(4));
        check("{a:1}", Unexpected(1));
        check("{\"a\":1]", Unexpected(6));
        check("[1}", Unexpected(2));
        check("]", Unexpected(0));
        check("}", Unexpected(0));
        check("1 2", Unexpected(2));
        check("{} {}", Unexpected(3));
        check("\"a\nb\"", Unexpected(2));
        check("\"\\x\"", Unexpected(2));
        check("\"\\u12g4\"", Unexpected(5));
        check("NaN", Unexpected(0));
        check("<html>", Unexpected(0));
        assert_eq!(minify(b"\"\xff\"".to_vec()), Err(Utf8(1)));
    }

    #[test]
    fn depth_is_bounded_without_recursion() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(minified(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(minified(&nested(DEPTH_MAX + 1)), Err(ParseError::TooDeep(DEPTH_MAX)));
        assert_eq!(minified(&"{\"a\":".repeat(100_000)), Err(ParseError::TooDeep(5 * DEPTH_MAX)));
        assert!(is_shallow(nested(DEPTH_MAX).as_bytes()));
        assert!(!is_shallow(nested(DEPTH_MAX + 1).as_bytes()));
        assert!(is_shallow(format!("[\"{}\\\"\",1]", "[".repeat(1000)).as_bytes()));
        // Objects and arrays in turn keep apart what they are, down to the deepest level.
        let mixed = |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
        assert!(minified(&mixed("[{\"a\":", "}]", DEPTH_MAX / 2)).is_ok());
        assert!(minified(&mixed("[{\"a\":", "]}", DEPTH_MAX / 2)).is_err());
    }

    /// No prefix of a text that needs its last byte is a whole one, and none panics.
    #[test]
    fn every_prefix_is_incomplete() {
        let text = r#"{"a\u00e9\"":[1.5e-3,true,false,null,{"b":[]},"\ud83d\ude00"],"c":-0}"#;
        for end in 0..text.len() {
            assert_eq!(minified(&text[..end]), Err(ParseError::Incomplete), "{end}");
        }
        assert!(minified(text).is_ok());
    }
}
