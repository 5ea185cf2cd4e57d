//! The values of keys (settings): reading them, showing them, and storing them in fields of the options.
//!
//! A setting comes as a TOML value from the file, or as text from the environment. Both go through
//! [`Setting::read`], so that they have the same meaning. A text from the environment is the part between the
//! quotes in the file. This module knows neither names nor locations of keys, so its errors have only the
//! expected and the found value.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use toml::de::DeValue;

/// A setting as it is written.
#[derive(Clone, Copy)]
pub(crate) enum Raw<'a> {
    /// A value of the file.
    Toml(&'a DeValue<'a>),
    /// A text of the environment.
    Text(&'a str),
}

impl<'a> Raw<'a> {
    /// Returns the text. `None` for another type.
    pub(super) fn text(self) -> Option<&'a str> {
        match self {
            Self::Toml(value) => value.as_str(),
            Self::Text(text) => Some(text),
        }
    }

    /// Returns the whole number. In the environment, the text must be its digits. `None` for anything else.
    pub(super) fn integer(self) -> Option<i128> {
        match self {
            Self::Toml(DeValue::Integer(n)) => {
                i128::from_str_radix(&n.as_str().replace('_', ""), n.radix()).ok()
            }
            Self::Toml(_) => None,
            Self::Text(text) => text.trim().parse().ok(),
        }
    }

    /// Returns the whole number of a text that contains only digits.
    pub(super) fn quoted_integer(self) -> Option<u64> {
        self.text()?.trim().parse().ok()
    }

    /// Describes the value for an error.
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

    pub(super) fn mismatch(self, expected: &str) -> String {
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

/// Collects the items of a list, or the mistakes in all of them.
pub(super) fn all<T>(items: impl Iterator<Item = Result<T, String>>) -> Result<Vec<T>, String> {
    let (mut valid, mut wrong) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Ok(item) => valid.push(item),
            Err(text) if wrong.contains(&text) => {}
            Err(text) => wrong.push(text),
        }
    }
    if wrong.is_empty() { Ok(valid) } else { Err(wrong.join("; ")) }
}

/// The value of a key.
pub(crate) trait Setting: Sized + Debug {
    /// Unit of the value, or its possible values; for the reference.
    const UNIT: &'static str;
    /// `true` if the value is a secret.
    const SECRET: bool = false;

    /// Returns the unit as the reference shows it.
    fn unit() -> String {
        Self::UNIT.trim_end_matches(" | ").to_owned()
    }

    /// Reads a value. The error describes the expected value.
    fn read(raw: Raw<'_>) -> Result<Self, String>;

    /// Returns the value as it would be written in the file. Secrets are not shown.
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// Reads a setting and checks its range, if it has one.
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

/// A field that a setting of the type `S` sets.
pub(crate) trait Field<S> {
    fn store(&mut self, setting: &S);
}

/// A field whose value is the default of a setting of the type `S`.
pub(crate) trait Source<S> {
    fn load(&self) -> S;
}

impl<S: Setting + Clone> Field<S> for S {
    fn store(&mut self, setting: &S) {
        self.clone_from(setting);
    }
}

impl<S: Setting + Clone> Source<S> for S {
    fn load(&self) -> S {
        self.clone()
    }
}

/// Declares the type of a setting, the type of its field, and the conversions to the field and, for the
/// default, from the field.
macro_rules! fields {
    ($($setting:ty => $field:ty: $value:ident -> $store:expr $(, $default:ident -> $load:expr)?;)+) => {$(
        impl $crate::config::setting::Field<$setting> for $field {
            fn store(&mut self, $value: &$setting) {
                *self = $store;
            }
        }

        $(impl $crate::config::setting::Source<$setting> for $field {
            fn load(&self) -> $setting {
                let $default = self;
                $load
            }
        })?
    )+};
}
pub(crate) use fields;

impl Setting for bool {
    const UNIT: &'static str = "`true` or `false`";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        match raw {
            Raw::Toml(DeValue::Boolean(b)) => Ok(*b),
            Raw::Text("true") => Ok(true),
            Raw::Text("false") => Ok(false),
            Raw::Toml(DeValue::String(text)) if matches!(&**text, "true" | "false") => {
                Err(format!("{}; write {text} without quotes", raw.mismatch("true or false")))
            }
            _ => Err(raw.mismatch("true or false")),
        }
    }
}

impl Setting for usize {
    const UNIT: &'static str = "number";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let n = raw.integer().ok_or_else(|| match raw.quoted_integer() {
            Some(n) => format!("{}; write {n} without quotes", raw.mismatch("a whole number")),
            None => raw.mismatch("a whole number"),
        })?;
        Self::try_from(n).map_err(|_| raw.mismatch("a whole number, not negative and below 2^63"))
    }
}

impl Setting for String {
    const UNIT: &'static str = "text";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        raw.text().map(Into::into).ok_or_else(|| raw.mismatch("a text in quotes"))
    }
}

impl Setting for SocketAddr {
    const UNIT: &'static str = "address and port";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let parsed = raw.text().and_then(|text| text.parse().ok());
        parsed.ok_or_else(|| raw.mismatch(r#"an address such as "127.0.0.1:8000" or "[::1]:8000""#))
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

impl<T: Setting> Setting for Vec<T> {
    const UNIT: &'static str = "list";

    fn unit() -> String {
        format!("list of {}", T::unit())
    }

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        match raw {
            Raw::Toml(DeValue::Array(items)) => {
                all(items.iter().map(|item| T::read(Raw::Toml(item.get_ref()))))
            }
            Raw::Toml(DeValue::String(text)) => {
                Err(format!("{}; write [{}]", raw.mismatch("an array"), quoted(text)))
            }
            Raw::Toml(_) => Err(raw.mismatch("an array")),
            Raw::Text("") => Ok(Self::new()),
            Raw::Text(text) => all(text.split(',').map(|item| T::read(Raw::Text(item.trim())))),
        }
    }

    fn show(&self) -> String {
        format!("[{}]", self.iter().map(T::show).collect::<Vec<_>>().join(", "))
    }
}

/// Declares an enum of words, which are the same in the file, the environment and the command line. After
/// `=>` comes the enum of the options that has the same variants.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident $(=> $field:ty)? { $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
        pub(crate) enum $name { $( $(#[doc = $doc])+ $variant, )+ }

        impl $name {
            /// Returns the word as it is written.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl $crate::config::setting::Setting for $name {
            const UNIT: &'static str = concat!($("`", $word, "` | "),+);

            fn read(raw: $crate::config::setting::Raw<'_>) -> Result<Self, String> {
                $crate::config::setting::word(raw, &[$($word),+], &[$(Self::$variant),+])
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

        $crate::config::setting::choice!(@field $name [$($field)?] $($variant)+);
    };
    (@field $name:ident [] $($variant:ident)+) => {};
    (@field $name:ident [$field:ty] $($variant:ident)+) => {
        impl $crate::config::setting::Field<$name> for $field {
            fn store(&mut self, setting: &$name) {
                *self = match setting { $( $name::$variant => Self::$variant, )+ }
            }
        }

        impl $crate::config::setting::Source<$name> for $field {
            fn load(&self) -> $name {
                match self { $( Self::$variant => $name::$variant, )+ }
            }
        }
    };
}
pub(crate) use choice;

/// Reads one of `words`. Returns the element of `values` at the same position.
pub(crate) fn word<T: Copy>(raw: Raw<'_>, words: &[&str], values: &[T]) -> Result<T, String> {
    let expected = || words.iter().map(|w| format!("{w:?}")).collect::<Vec<_>>().join(" or ");
    let found = raw.text().and_then(|text| words.iter().position(|word| *word == text));
    found.and_then(|at| values.get(at).copied()).ok_or_else(|| raw.mismatch(&expected()))
}
