//! The types that a setting can have, and how each is read and shown.
//!
//! A setting comes as a TOML value from the file, or as text from the environment; both go through
//! [`Setting::read`], so that they mean the same. Text is what stands between the quotes in the file.
//! Nothing here knows a key's name or place: errors say what was expected and what was found.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use stentor_control::{RESERVED_HEADERS, TOKEN_BYTES_MIN};
use toml::de::DeValue;

/// A setting as it was written.
#[derive(Clone, Copy)]
pub(crate) enum Raw<'a> {
    /// In the file.
    Toml(&'a DeValue<'a>),
    /// In the environment.
    Text(&'a str),
}

impl<'a> Raw<'a> {
    /// The text, where it is one.
    fn text(self) -> Option<&'a str> {
        match self {
            Self::Toml(value) => value.as_str(),
            Self::Text(text) => Some(text),
        }
    }

    /// The whole number that it is or, in the environment, spells.
    fn integer(self) -> Option<i128> {
        match self {
            Self::Toml(DeValue::Integer(n)) => {
                i128::from_str_radix(&n.as_str().replace('_', ""), n.radix()).ok()
            }
            Self::Toml(_) => None,
            Self::Text(text) => text.trim().parse().ok(),
        }
    }

    /// What it is, for an error.
    fn found(self) -> String {
        match self {
            Self::Toml(DeValue::String(text)) => quoted(text),
            Self::Text(text) => quoted(text),
            Self::Toml(DeValue::Integer(n)) => format!("the number {}", n.as_str()),
            Self::Toml(DeValue::Float(n)) => format!("the number {}", n.as_str()),
            Self::Toml(DeValue::Boolean(b)) => b.to_string(),
            Self::Toml(DeValue::Datetime(_)) => "a date".into(),
            Self::Toml(DeValue::Array(_)) => "an array".into(),
            Self::Toml(DeValue::Table(_)) => "a table".into(),
        }
    }

    fn mismatch(self, expected: &str) -> String {
        format!("expected {expected}, found {}", self.found())
    }
}

/// Quotes a text for an error, shortened to 60 characters.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// Something that can stand behind a key.
pub(crate) trait Setting: Sized {
    /// What it is measured in, or which values it has; for the reference.
    fn unit() -> String;
    /// Reads it, or says what was expected.
    fn read(raw: Raw<'_>) -> Result<Self, String>;
    /// As it would be written in the file. Secrets are not shown.
    fn show(&self) -> String;
}

/// Reads a setting and checks its range, where it has one.
pub(crate) fn read_within<T: Setting + PartialOrd>(
    raw: Raw<'_>,
    range: Option<RangeInclusive<T>>,
) -> Result<T, String> {
    let value = T::read(raw)?;
    match range {
        Some(range) if !range.contains(&value) => Err(format!(
            "{} is out of range: {} to {}",
            value.show(),
            range.start().show(),
            range.end().show()
        )),
        _ => Ok(value),
    }
}

impl Setting for bool {
    fn unit() -> String {
        "`true` or `false`".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        match raw {
            Raw::Toml(DeValue::Boolean(b)) => Ok(*b),
            Raw::Text("true") => Ok(true),
            Raw::Text("false") => Ok(false),
            _ => Err(raw.mismatch("true or false")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for usize {
    fn unit() -> String {
        "number".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let n = raw.integer().ok_or_else(|| raw.mismatch("a whole number"))?;
        Self::try_from(n).map_err(|_| raw.mismatch("a whole number, not negative and below 2^63"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A number of bytes. Written with a decimal (`1MB`) or binary (`64KiB`) unit, or as a plain integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) usize);

impl Bytes {
    /// Units from large to small, so that the first that divides is the one to show.
    const UNITS: [(&'static str, usize); 7] = [
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1000),
        ("B", 1),
    ];

    /// `n` times 1024 bytes.
    pub(crate) const fn kib(n: usize) -> Self {
        Self(n << 10)
    }

    /// `n` times 1024² bytes.
    pub(crate) const fn mib(n: usize) -> Self {
        Self(n << 20)
    }
}

const BYTES_EXPECTED: &str = r#"a size such as "1MB", "64KiB" or 65536"#;

impl Setting for Bytes {
    fn unit() -> String {
        "bytes".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let wrong = || raw.mismatch(BYTES_EXPECTED);
        if let Some(n) = raw.integer() {
            return usize::try_from(n).map(Self).map_err(|_| wrong());
        }
        let (number, unit) = split_unit(raw.text().ok_or_else(wrong)?).ok_or_else(wrong)?;
        let same = |name: &str| name.eq_ignore_ascii_case(unit);
        let (_, factor) = Self::UNITS.iter().find(|(name, _)| same(name)).ok_or_else(wrong)?;
        let number = usize::try_from(number).map_err(|_| wrong())?;
        number.checked_mul(*factor).map(Self).ok_or_else(wrong)
    }

    fn show(&self) -> String {
        for (name, factor) in Self::UNITS {
            if self.0 != 0 && self.0.is_multiple_of(factor) && factor > 1 {
                return format!("\"{}{name}\"", self.0 / factor);
            }
        }
        self.0.to_string()
    }
}

const DURATION_EXPECTED: &str = r#"a duration such as "25s", "300ms", "5min" or "1h""#;

impl Setting for Duration {
    fn unit() -> String {
        "duration".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let wrong = || raw.mismatch(DURATION_EXPECTED);
        if let Some(n) = raw.integer() {
            return Err(format!("{}; a unit is missing: \"{n}s\"?", wrong()));
        }
        let (number, unit) = split_unit(raw.text().ok_or_else(wrong)?).ok_or_else(wrong)?;
        let factor_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "min" | "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        number.checked_mul(factor_ms).map(Self::from_millis).ok_or_else(wrong)
    }

    fn show(&self) -> String {
        let ms = self.as_millis();
        for (factor_ms, unit) in [(3_600_000, "h"), (60_000, "min"), (1000, "s")] {
            if ms >= factor_ms && ms.is_multiple_of(factor_ms) {
                return format!("\"{}{unit}\"", ms / factor_ms);
            }
        }
        format!("\"{ms}ms\"")
    }
}

/// Splits `25s` or `25 s` into the number and its unit. A fraction is none: `1500ms` says it.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

impl Setting for String {
    fn unit() -> String {
        "text".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        raw.text().map(Into::into).ok_or_else(|| raw.mismatch("a text in quotes"))
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Setting for SocketAddr {
    fn unit() -> String {
        "address and port".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let parsed = raw.text().and_then(|text| text.parse().ok());
        parsed.ok_or_else(|| raw.mismatch(r#"an address such as "127.0.0.1:8000" or "[::1]:8000""#))
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

/// A secret: read, passed on, never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Setting for Secret {
    fn unit() -> String {
        "text".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        String::read(raw).map(Self)
    }

    fn show(&self) -> String {
        "(secret)".into()
    }
}

/// The token of the admin port, where it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(crate) struct Token(pub(crate) Option<Secret>);

impl Setting for Token {
    fn unit() -> String {
        "text".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or("expected a text in quotes")?;
        if text.len() < TOKEN_BYTES_MIN || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!(
                "a token needs at least {TOKEN_BYTES_MIN} printable ASCII characters without spaces"
            ));
        }
        Ok(Self(Some(Secret(text.into()))))
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or("none".into(), Secret::show)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn unit() -> String {
        format!("list of {}", T::unit())
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        match raw {
            Raw::Toml(DeValue::Array(items)) => {
                items.iter().map(|item| T::read(Raw::Toml(item.get_ref()))).collect()
            }
            Raw::Toml(_) => Err(raw.mismatch("an array")),
            Raw::Text("") => Ok(Self::new()),
            Raw::Text(text) => text.split(',').map(|item| T::read(Raw::Text(item.trim()))).collect(),
        }
    }

    fn show(&self) -> String {
        format!("[{}]", self.iter().map(T::show).collect::<Vec<_>>().join(", "))
    }
}

/// Where pages may come from: `https://host[:port]`, `https://*.host[:port]` or `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct Origin(String);

impl Origin {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the data plane takes it for one.
    fn is_valid(text: &str) -> bool {
        stentor_edge::Origins::parse(&[text]).is_ok()
    }
}

impl Setting for Origin {
    fn unit() -> String {
        "origins".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let wrong =
            || raw.mismatch(r#"an origin such as "https://example.com", "https://*.example.com" or "*""#);
        let text = raw.text().ok_or_else(wrong)?;
        if !Self::is_valid(text) {
            return Err(match text.strip_suffix('/').filter(|t| Self::is_valid(t)) {
                Some(without) => format!("an origin has no path: write {without:?}, not {text:?}"),
                None => wrong(),
            });
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Names and values of request headers, in the order of the names. A value may name variables of the environment, as
/// `${NAME}`, until [`Headers::fill`] has put in what they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(crate) struct Headers(pub(crate) Vec<(String, Secret)>);

impl Headers {
    /// Puts in what the variables hold, and says what is wrong with them. Never shows what one holds.
    pub(crate) fn fill(&mut self, variables: &HashMap<String, String>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (header, value) in &mut self.0 {
            let mut text = String::new();
            for piece in pieces(value.reveal()) {
                match piece {
                    Ok(Piece::Text(plain)) => text.push_str(plain),
                    Ok(Piece::Variable(name)) => match variables.get(name).map(String::as_str) {
                        None | Some("") => wrong.push(format!(
                            "the header {header:?} needs the environment variable {name}, which is not set"
                        )),
                        Some(held) if hyper::header::HeaderValue::from_str(held).is_err() => wrong.push(format!(
                            "the environment variable {name}, for the header {header:?}, has characters that are not allowed in a header \
                             (a line break at its end?)"
                        )),
                        Some(held) => text.push_str(held),
                    },
                    // Told when it was read.
                    Err(_) => {}
                }
            }
            *value = Secret(text);
        }
        wrong
    }
}

/// A part of a value.
enum Piece<'a> {
    Text(&'a str),
    /// The name between `${` and `}`.
    Variable(&'a str),
}

/// Cuts a value at its `${NAME}`; an error is one that isn't closed, or whose name can't be one.
fn pieces(text: &str) -> impl Iterator<Item = Result<Piece<'_>, &'static str>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.filter(|text| !text.is_empty())?;
        let Some(after) = text.strip_prefix("${") else {
            let end = text.find("${").unwrap_or(text.len());
            rest = text.get(end..);
            return Some(Ok(Piece::Text(&text[..end])));
        };
        let Some((name, more)) = after.split_once('}') else {
            rest = None;
            return Some(Err("has a ${ without a }"));
        };
        rest = Some(more);
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let is_name = is_name && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        Some(if is_name {
            Ok(Piece::Variable(name))
        } else {
            Err("has a ${…} that is not a valid variable name")
        })
    })
}

impl Setting for Headers {
    fn unit() -> String {
        "table of texts".into()
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let Raw::Toml(DeValue::Table(table)) = raw else {
            return Err(raw.mismatch(r#"a table such as { Authorization = "Bearer …" }"#));
        };
        let mut headers = Vec::new();
        for (name, value) in table {
            let name = name.get_ref().to_ascii_lowercase();
            if hyper::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(format!("{name:?} is no name of a header"));
            }
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(format!("the header {name:?} is set by the fetcher itself"));
            }
            let Some(text) = value.get_ref().as_str() else {
                return Err(format!("the header {name:?} has no text in quotes"));
            };
            if hyper::header::HeaderValue::from_str(text).is_err() {
                return Err(format!("the header {name:?} has characters that no header can have"));
            }
            if let Some(wrong) = pieces(text).find_map(Result::err) {
                return Err(format!("the header {name:?} {wrong}"));
            }
            headers.push((name, Secret(text.into())));
        }
        Ok(Self(headers))
    }

    fn show(&self) -> String {
        let names = self.0.iter().map(|(name, value)| {
            let variables = pieces(value.reveal()).filter_map(|piece| match piece {
                Ok(Piece::Variable(variable)) => Some(format!("${{{variable}}}")),
                _ => None,
            });
            match variables.collect::<Vec<_>>() {
                none if none.is_empty() => format!("{name} = {}", value.show()),
                some => format!("{name} = (secret with {})", some.join(", ")),
            }
        });
        match names.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "none".into(),
            some => format!("{{ {some} }}"),
        }
    }
}

/// An enum of words, which the file, the environment and the command line spell alike. After `=>`, the enum of the options
/// with the same variants.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident $(=> $field:ty)? { $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
        pub(crate) enum $name { $( $(#[doc = $doc])+ $variant, )+ }

        impl $name {
            /// As it is written.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl $crate::config::value::Setting for $name {
            fn unit() -> String {
                [$(concat!("`", $word, "`")),+].join(" | ")
            }

            fn read(raw: $crate::config::value::Raw<'_>) -> Result<Self, String> {
                $crate::config::value::word(raw, &[$($word),+], &[$(Self::$variant),+])
            }

            fn show(&self) -> String {
                format!("{:?}", self.as_str())
            }
        }

        impl clap::ValueEnum for $name {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$variant),+]
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                let help = match self { $( Self::$variant => concat!($($doc),+), )+ };
                Some(clap::builder::PossibleValue::new(self.as_str()).help(help.trim().trim_end_matches('.')))
            }
        }

        $crate::config::value::choice!(@field $name [$($field)?] $($variant)+);
    };
    (@field $name:ident [] $($variant:ident)+) => {};
    (@field $name:ident [$field:ty] $($variant:ident)+) => {
        impl $crate::config::options::Field<$name> for $field {
            fn store(&mut self, setting: &$name) {
                *self = match setting { $( $name::$variant => Self::$variant, )+ }
            }
        }

        impl $crate::config::options::Source<$name> for $field {
            fn load(&self) -> $name {
                match self { $( Self::$variant => $name::$variant, )+ }
            }
        }
    };
}
pub(crate) use choice;

/// Reads one of `words`, which stands for the one of `values` at the same place.
pub(crate) fn word<T: Copy>(raw: Raw<'_>, words: &[&str], values: &[T]) -> Result<T, String> {
    let expected = || words.iter().map(|w| format!("{w:?}")).collect::<Vec<_>>().join(" or ");
    let found = raw.text().and_then(|text| words.iter().position(|word| *word == text));
    found.and_then(|at| values.get(at).copied()).ok_or_else(|| raw.mismatch(&expected()))
}
