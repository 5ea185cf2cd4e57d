//! The keys of an upstream: keys with a prefix, or keys that match a template.

use super::RouteError;
use stentor_hub::{Key, KeyCharset};

/// Maximum number of characters in a placeholder's name.
const NAME_CHARS_MAX: usize = 32;

/// A set of keys.
#[derive(Clone, Debug)]
pub(crate) enum KeyPattern {
    /// Keys that begin with this text.
    Prefix(String),
    /// Keys with as many segments as the template, each of which matches. `names` are the placeholders.
    Template { segments: Vec<Segment>, names: Vec<String> },
}

/// A pattern for a segment of a key. The placeholders' names are in the order of the segments.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    /// Exactly this text.
    Text(String),
    /// Any text with this start and end, and at least one character in between.
    Value { before: String, after: String },
    /// This segment and all segments after it (`{rest*}`).
    Rest,
}

/// The specificity of a pattern: length in bytes of the text before the first placeholder, kind, and length
/// in bytes of all text. A more specific pattern has a greater rank.
type Rank = (usize, u8, usize);

impl KeyPattern {
    /// Makes a pattern from `prefix`, or from the template `key` if it isn't empty. Their texts must have
    /// only characters of `charset`.
    pub(crate) fn new(prefix: &str, key: &str, charset: KeyCharset) -> Result<Self, RouteError> {
        match (prefix, key) {
            (prefix, "") => {
                let error = |error: stentor_hub::KeyError| RouteError {
                    field: "prefix",
                    text: error.to_string().replace("the key", "the prefix"),
                };
                // Checks that the prefix is the start of a valid key.
                Key::parse_as(&format!("{prefix}x"), charset).map_err(error)?;
                Ok(Self::Prefix(prefix.into()))
            }
            ("", key) => template(key, charset).map_err(|text| RouteError { field: "key", text }),
            _ => {
                Err(RouteError { field: "key", text: "a feed has either a prefix or a key, not both".into() })
            }
        }
    }

    /// Returns the names of the placeholders. `None` for a prefix.
    pub(crate) fn names(&self) -> Option<&[String]> {
        match self {
            Self::Prefix(_) => None,
            Self::Template { names, .. } => Some(names),
        }
    }

    pub(crate) fn fits(&self, key: &Key) -> bool {
        self.values(key).is_some()
    }

    /// Returns the values of the placeholders in this key, each of at least one byte. `None` if the pattern
    /// doesn't match the key.
    pub(crate) fn values<'k>(&self, key: &'k Key) -> Option<Vec<&'k str>> {
        let mut rest = Some(key.as_str());
        let segments = match self {
            Self::Prefix(prefix) => return key.as_str().starts_with(prefix.as_str()).then(Vec::new),
            Self::Template { segments, .. } => segments,
        };
        let mut values = Vec::new();
        for segment in segments {
            let text = rest?;
            if matches!(segment, Segment::Rest) {
                values.push(text);
                return Some(values);
            }
            let (one, more) = match text.split_once('/') {
                Some((one, more)) => (one, Some(more)),
                None => (text, None),
            };
            rest = more;
            match segment {
                Segment::Text(text) if text == one => {}
                Segment::Value { before, after } => {
                    let value = one.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
                    values.push(Some(value).filter(|value| !value.is_empty())?);
                }
                _ => return None,
            }
        }
        rest.is_none().then_some(values)
    }

    pub(crate) fn rank(&self) -> Rank {
        let segments = match self {
            Self::Prefix(prefix) => return (prefix.len(), 0, prefix.len()),
            Self::Template { segments, .. } => segments,
        };
        let (mut first, mut all, mut open) = (0, segments.len() - 1, false);
        for (i, segment) in segments.iter().enumerate() {
            let slash = usize::from(i > 0);
            let (before, after) = match segment {
                Segment::Text(text) => (text.len(), 0),
                Segment::Value { before, after } => (before.len(), after.len()),
                Segment::Rest => (0, 0),
            };
            all += before + after;
            if !open {
                first += slash + before;
            }
            open |= !matches!(segment, Segment::Text(_));
        }
        let kind = if matches!(segments.last(), Some(Segment::Rest)) { 1 } else { 2 };
        (first, kind, all)
    }

    /// Returns the pattern as a text without the names of its placeholders.
    pub(crate) fn shape(&self) -> String {
        let segments = match self {
            Self::Prefix(prefix) => return format!("{prefix}{{}}*"),
            Self::Template { segments, .. } => segments,
        };
        let shapes = segments.iter().map(|segment| match segment {
            Segment::Text(text) => text.clone(),
            Segment::Value { before, after } => format!("{before}{{}}{after}"),
            Segment::Rest => "{*}".into(),
        });
        shapes.collect::<Vec<_>>().join("/")
    }
}

fn template(key: &str, charset: KeyCharset) -> Result<KeyPattern, String> {
    let wrong = |why: &str| format!("{why}: {key:?}");
    let (mut segments, mut names, mut sample) = (Vec::new(), Vec::new(), String::new());
    let mut rest = Some(key);
    while let Some(text) = rest {
        let (one, more) = match text.split_once('/') {
            Some((one, more)) => (one, Some(more)),
            None => (text, None),
        };
        rest = more;
        let Some((before, tail)) = one.split_once('{') else {
            if one.contains('}') {
                return Err(wrong("a } has no {"));
            }
            sample += &format!("/{one}");
            segments.push(Segment::Text(one.into()));
            continue;
        };
        let (name, after) = tail.split_once('}').ok_or_else(|| wrong("a { has no }"))?;
        let (name, is_rest) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
        if !is_name(name) {
            return Err(wrong("a placeholder is { }, with 1 to 32 of a-z 0-9 _ in between"));
        }
        if before.contains('}') || after.contains('}') && !after.contains('{') {
            return Err(wrong("a } has no {"));
        }
        if after.contains('{') {
            return Err(wrong("a segment may have only one placeholder"));
        }
        if is_rest && !(before.is_empty() && after.is_empty() && rest.is_none()) {
            return Err(wrong(&format!("{{{name}*}} must be the whole last segment")));
        }
        if names.iter().any(|known| known == name) {
            return Err(format!("two placeholders have the name {name:?}"));
        }
        names.push(name.to_owned());
        sample += &format!("/{before}x{after}");
        segments.push(match is_rest {
            true => Segment::Rest,
            false => Segment::Value { before: before.into(), after: after.into() },
        });
    }
    let sample = sample.strip_prefix('/').unwrap_or_default();
    Key::parse_as(sample, charset).map_err(|error| wrong(&error.to_string()))?;
    Ok(KeyPattern::Template { segments, names })
}

/// Returns `true` for a valid name of a placeholder.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(allowed)
}
