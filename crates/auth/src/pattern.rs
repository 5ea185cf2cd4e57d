//! Patterns of topics.
//!
//! `/` and `:` separate segments, both in the keys of feeds and in the names of rooms. A segment of a pattern
//! is
//!
//! | segment | matches |
//! |---|---|
//! | text | itself |
//! | `*` | any one segment that isn't empty |
//! | `{claim}`, also with text around it | the claim's value, if the value is one segment |
//! | `**`, at the end | the non-empty rest of the name |
//!
//! A claim's value is compared with the segment as text: the value never acts as a wildcard, and a value with
//! a separator matches no segment. Therefore a user named `7:admin` gains no permission from `user:{sub}`.

use crate::attributes::Attributes;
use std::fmt;

/// Maximum length of a pattern in bytes. No topic has a longer name.
pub(crate) const PATTERN_BYTES_MAX: usize = 256;

/// Reason why a text isn't a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is empty or too long.
    #[error("a pattern has 1 to 256 bytes")]
    Length,
    /// A brace is unpaired.
    #[error("{0:?} has a {{ without a }}, or a }} without a {{")]
    Brace(String),
    /// A pair of braces has no claim name between them.
    #[error("{0:?} has no claim name between {{ and }}")]
    NoClaim(String),
    /// A segment has two claims. Its text could be split between them in several ways.
    #[error("{0:?} has two claims in one segment; separate them with / or :")]
    TwoClaims(String),
    /// A `*` stands next to other characters.
    #[error("{0:?} has a * next to other characters: * stands for a whole segment, between / or :")]
    Star(String),
    /// A `**` isn't at the end.
    #[error("{0:?} has ** before its end; write * for each segment")]
    Rest(String),
}

/// A segment of a pattern, with the separator that follows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    /// Literal text, with its separator.
    Text(Box<str>),
    /// `*`: any non-empty segment.
    Any(End),
    /// `{claim}`, with the text before and after it.
    Claim { before: Box<str>, claim: Box<str>, after: Box<str>, end: End },
    /// `**`: the rest of the name.
    Rest,
}

/// The separator after a segment. `None` at the end.
pub(crate) type End = Option<char>;

/// A pattern of topics.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    pub(crate) segments: Vec<Segment>,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

pub(crate) fn is_separator(c: char) -> bool {
    c == '/' || c == ':'
}

/// Iterates over the segments of a topic's name, each with its separator.
pub(crate) fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split_inclusive(is_separator)
}

/// Splits a segment of a topic's name into its text and its separator.
pub(crate) fn split(part: &str) -> (&str, End) {
    match part.strip_suffix(is_separator) {
        Some(text) => (text, part.chars().next_back()),
        None => (part, None),
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Returns the mistake in the text.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if !(1..=PATTERN_BYTES_MAX).contains(&text.len()) {
            return Err(PatternError::Length);
        }
        let (mut segments, mut start, mut in_braces) = (Vec::new(), 0, false);
        for (at, c) in text.char_indices() {
            match c {
                '{' | '}' if in_braces == (c == '{') => return Err(PatternError::Brace(text.into())),
                '{' => in_braces = true,
                '}' => in_braces = false,
                // Within braces, separators are part of the claim's name, which may be a URL.
                c if is_separator(c) && !in_braces => {
                    segments.push(segment(text, &text[start..at], Some(c))?);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if in_braces {
            return Err(PatternError::Brace(text.into()));
        }
        if start < text.len() {
            segments.push(segment(text, &text[start..], None)?);
        }
        Ok(Self { text: text.into(), segments })
    }

    /// Returns `true` if a name matches, for a client with these attributes.
    pub fn matches(&self, name: &str, attributes: Option<&Attributes>) -> bool {
        self.matches_by(name, &|claim, value| has(attributes, claim, value))
    }

    /// Like [`Self::matches`]. `has` returns `true` if a claim has a value.
    pub(crate) fn matches_by(&self, name: &str, has: &dyn Fn(&str, &str) -> bool) -> bool {
        let mut rest = name;
        for segment in &self.segments {
            if *segment == Segment::Rest {
                return !rest.is_empty();
            }
            let Some(part) = parts(rest).next() else { return false };
            if !segment.matches(part, has) {
                return false;
            }
            rest = &rest[part.len()..];
        }
        rest.is_empty()
    }
}

impl Segment {
    /// Returns `true` if a segment of a name, with its separator, matches. `**` never matches a single
    /// segment.
    pub(crate) fn matches(&self, part: &str, has: &dyn Fn(&str, &str) -> bool) -> bool {
        let (value, found) = split(part);
        match self {
            Self::Text(text) => **text == *part,
            Self::Any(end) => !value.is_empty() && *end == found,
            Self::Claim { before, claim, after, end } => {
                let value = value.strip_prefix(&**before).and_then(|value| value.strip_suffix(&**after));
                *end == found && value.is_some_and(|value| has(claim, value))
            }
            Self::Rest => false,
        }
    }
}

/// Returns `true` if a client's claim has this value. Anonymous clients have no claims.
pub(crate) fn has(attributes: Option<&Attributes>, claim: &str, value: &str) -> bool {
    attributes.is_some_and(|attributes| attributes.values(claim).any(|own| own == value))
}

/// Reads the segment `part` of the pattern `text`.
fn segment(text: &str, part: &str, end: End) -> Result<Segment, PatternError> {
    let with_end = || part.chars().chain(end).collect::<String>().into_boxed_str();
    match (part, end) {
        ("*", end) => return Ok(Segment::Any(end)),
        ("**", None) => return Ok(Segment::Rest),
        ("**", Some(_)) => return Err(PatternError::Rest(text.into())),
        _ => {}
    }
    let Some((before, rest)) = part.split_once('{') else {
        let text = with_end();
        return if part.contains('*') {
            Err(PatternError::Star(text.into()))
        } else {
            Ok(Segment::Text(text))
        };
    };
    // The braces have been checked before, so they are paired.
    let (claim, after) = rest.split_once('}').unwrap_or((rest, ""));
    if after.contains('{') {
        return Err(PatternError::TwoClaims(part.into()));
    }
    if claim.is_empty() {
        return Err(PatternError::NoClaim(part.into()));
    }
    if before.contains('*') || after.contains('*') {
        return Err(PatternError::Star(part.into()));
    }
    Ok(Segment::Claim { before: before.into(), claim: claim.into(), after: after.into(), end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::{Actions, Recipients};
    use crate::tree::Tree;

    #[test]
    fn patterns_match_segments() {
        let attributes = Attributes::parse(
            r#"{"sub":"42","org":{"id":7},"teams":["red","blue"],"bad":"a/b","star":"*","none":"","two":"x:y",
                "https://x.test/role":"admin","ratio":0.5,"flag":true}"#,
        )
        .unwrap();
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let parsed = Pattern::parse(pattern).unwrap();
            for name in yes {
                assert!(parsed.matches(name, Some(&attributes)), "{pattern} {name}");
            }
            for name in no {
                assert!(!parsed.matches(name, Some(&attributes)), "{pattern} {name}");
            }
        };
        check(
            "user/{sub}",
            &["user/42"],
            &["user/43", "user/", "user", "user/42/x", "user:42", "/user/42", "user/{sub}"],
        );
        check("user:{sub}:inbox", &["user:42:inbox"], &["user:42", "user:42:", "user:42/inbox"]);
        check("user-{sub}", &["user-42"], &["user-", "user-421", "42"]);
        check("{sub}.x", &["42.x"], &["42", ".x", "42.xx"]);
        check("org/{org.id}/*", &["org/7/a"], &["org/7/", "org/7/a/b", "org/8/a"]);
        check("team/{teams}", &["team/red", "team/blue"], &["team/green", "team/red,blue"]);
        check("{https://x.test/role}/all", &["admin/all"], &["user/all"]);
        check("public/**", &["public/a", "public/a/b:c"], &["public/", "public", "publicity/a"]);
        check("**", &["a", "a/b"], &[""]);
        check("*", &["a"], &["a/b", "a/", ""]);
        check("a/", &["a/"], &["a", "a/b"]);
        // A claim's value is compared as text, and never acts as a pattern.
        check("x/{bad}", &[], &["x/a/b", "x/a", "x/"]);
        check("x/{star}", &["x/*"], &["x/a"]);
        check("x/{none}", &[], &["x/", "x"]);
        check("x:{two}", &[], &["x:x:y", "x:x"]);
        check("x/{ratio}", &[], &["x/0.5"]);
        check("x/{flag}", &[], &["x/true"]);
        check("x/{missing}", &[], &["x/", "x/missing"]);
        assert!(!Pattern::parse("user/{sub}").unwrap().matches("user/42", None));
    }

    /// In the names of topics, special characters of patterns are plain text.
    #[test]
    fn names_are_texts_and_no_patterns() {
        let attributes = Attributes::parse(r#"{"sub":"42","name":"S\u00e3o Paulo","star":"*"}"#).unwrap();
        let actions = Actions::parse(&["subscribe"]).unwrap();
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let parsed = Pattern::parse(pattern).unwrap();
            let mut tree = Tree::default();
            tree.insert(&parsed, actions, Recipients::Users);
            for (names, expect) in [(yes, true), (no, false)] {
                for name in names {
                    let allowed = tree.actions(name, Some(&attributes)) == actions;
                    let matches = parsed.matches(name, Some(&attributes));
                    assert_eq!((matches, allowed), (expect, expect), "{pattern} {name}");
                }
            }
        };
        check("user/42", &["user/42"], &["user/*", "*", "**", "*/42", "user/**", "user/{sub}"]);
        check("user/{sub}", &["user/42"], &["user/*", "user/**", "user/{sub}", "user/ 42", "user/%34%32"]);
        check("city/{name}", &["city/S\u{e3}o Paulo"], &["city/Sa\u{303}o Paulo", "city/S\u{e3}o", "city/*"]);
        check("x/{star}", &["x/*"], &["x/a", "x/**"]);
        check("public/*", &["public/*", "public/**", "public/ "], &["public/*/x", "*/a"]);
        check("S\u{e3}o Paulo/**", &["S\u{e3}o Paulo/*"], &["**", "*/a"]);
    }

    #[test]
    fn wrong_patterns_are_refused() {
        let check = |pattern: &str, expect: &str| {
            let error = Pattern::parse(pattern).unwrap_err().to_string();
            assert!(error.contains(expect), "{pattern}: {error}");
        };
        check("", "1 to 256 bytes");
        check(&"a".repeat(257), "1 to 256 bytes");
        check("user/{sub", "a { without a }");
        check("user/sub}", "a { without a }");
        check("user/{{sub}}", "a { without a }");
        check("user/{}", "no claim name");
        check("{a}{b}", "two claims");
        check("match-*", "a * next to other characters");
        check("{a}*", "a * next to other characters");
        check("**/a", "** before its end");
        check("***", "a * next to other characters");
    }
}
