//! Findings: the mistakes in a configuration, and values that are valid but likely not intended.
//!
//! Each finding has its location. If a key is written there, the finding also has the key and its value, unless the value may be secret.

use std::collections::HashMap;
use std::fmt;

/// The location of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SourceLocation {
    /// A line of the file, counted from 1.
    Line(String, usize),
    /// The file, at any line.
    File(String),
    /// An environment variable.
    Variable(String),
    /// The command-line flag of this key.
    Flag(&'static str),
    /// The default: the value isn't set anywhere.
    Default,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(file, line) => write!(f, "{file}:{line}: "),
            Self::File(file) => write!(f, "{file}: "),
            Self::Variable(name) => write!(f, "{name}: "),
            Self::Flag(key) => write!(f, "--{key}: "),
            Self::Default => Ok(()),
        }
    }
}

/// A key as it is written at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenKey {
    pub(crate) section: String,
    pub(crate) key: String,
    /// The value as it is written, shortened. `None` if it may be secret.
    pub(crate) value: Option<String>,
}

impl WrittenKey {
    /// Maximum length of a shown value in characters.
    const VALUE_CHARS_MAX: usize = 60;

    pub(super) fn new(section: &str, key: &str, value: &str, is_secret: bool) -> Self {
        // The user part and the query of a URL may be secret.
        let is_private = is_secret || value.contains(['@', '?']) || is_mistyped_url(value);
        let line: String = value.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = match line.char_indices().nth(Self::VALUE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        };
        let value = (!is_private).then_some(shown);
        Self { section: section.into(), key: key.into(), value }
    }
}

/// Returns `true` if a value begins with a scheme, but isn't a URL: any part of it may be a password. `host:port` is none.
fn is_mistyped_url(value: &str) -> bool {
    let quotes: &[char] = &['"', '\'', '[', ']', ' '];
    let Some((scheme, rest)) = value.trim_matches(quotes).split_once(':') else { return false };
    let is_port = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && !rest.starts_with("//") && !is_port
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// The server doesn't start.
    Error,
    /// The server starts, but likely doesn't do what is intended.
    Warning,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A mistake in the configuration, or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Location of the mistake.
    pub(crate) location: SourceLocation,
    /// The key that is written at the location. `None` for the head of a section, and for a default.
    pub(crate) written: Option<WrittenKey>,
    /// The mistake, and the correction if it is known.
    pub(crate) text: String,
}

impl Finding {
    /// Returns the mistake with the value of its key.
    pub(crate) fn message(&self) -> String {
        let concerns_key = |written: &&WrittenKey| self.text.contains(&written.key);
        let value = self.written.as_ref().filter(concerns_key).and_then(|written| written.value.as_ref());
        match value.filter(|value| !self.names(value)) {
            Some(value) => format!("{}; found {value}", self.text),
            None => self.text.clone(),
        }
    }

    /// Returns `true` if the text already contains the value, or an item of it.
    fn names(&self, value: &str) -> bool {
        let mut items = value.split('"').skip(1).step_by(2).filter(|item| !item.is_empty());
        self.text.contains(value.trim_matches('\''))
            || self.text.contains("found ")
            || items.any(|item| self.text.contains(item))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.location, self.message())
    }
}

/// The locations of keys, for findings after the configuration was loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locations {
    /// Locations of the keys that were set. A repeated section has the name `feeds[N]`, and an entry without
    /// a key for its header.
    pub(super) keys: HashMap<(String, &'static str), SourceLocation>,
    /// The keys at their locations, also if their values are invalid.
    pub(super) written: HashMap<SourceLocation, WrittenKey>,
}

impl Locations {
    /// Returns the location of a key.
    pub(super) fn of(&self, section: &str, key: &'static str) -> SourceLocation {
        self.keys.get(&(section.into(), key)).cloned().unwrap_or(SourceLocation::Default)
    }

    /// Makes a warning about a key.
    pub(crate) fn warning(&self, section: &str, key: &'static str, text: String) -> Finding {
        let location = self.of(section, key);
        let written = self.written.get(&location).cloned();
        Finding { severity: Severity::Warning, location, written, text }
    }
}

/// All findings of a configuration that has mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Finding>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, finding) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            let prefix = if finding.severity == Severity::Warning { "warning: " } else { "" };
            write!(f, "{prefix}{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
