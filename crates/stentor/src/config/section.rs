//! A section of the configuration: a struct, its defaults and its reference, from one table.

use super::value::Raw;

/// One key, as the reference shows it.
#[derive(Clone, Debug)]
pub(crate) struct KeyInfo {
    /// Its name, unique within the section.
    pub(crate) name: &'static str,
    /// What it is measured in, or which values it has.
    pub(crate) unit: String,
    /// What it is unless set, as the file would say it.
    pub(crate) default: String,
    /// Its least and largest value, where it is bounded.
    pub(crate) range: Option<String>,
    /// What it means.
    pub(crate) doc: String,
}

/// A section: `[name]` in the file.
pub(crate) trait Section: Default {
    /// Between the brackets.
    const NAME: &'static str;
    /// What it is about.
    fn doc() -> String;
    /// Its keys, in the order of the reference.
    fn keys() -> Vec<KeyInfo>;
    /// Sets `key`. `None`: there is no such key.
    fn set(&mut self, key: &str, raw: Raw<'_>) -> Option<Result<(), String>>;
    /// The values of all keys as the file would say them, in the order of [`Section::keys`].
    fn show(&self) -> Vec<(&'static str, String)>;
}

/// Lines of a doc comment as one paragraph.
pub(crate) fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a section. Each key: doc comment, `name: Type = default`, and `in least..=largest` where it
/// is bounded. This is the only place where a key is declared and described.
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])+
        [$section:ident] $name:ident {
            $( $(#[doc = $doc:literal])+ $key:ident : $ty:ty = $default:expr $(, in $range:expr)? ; )+
        }
    ) => {
        $(#[doc = $section_doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            $( $(#[doc = $doc])+ pub(crate) $key: $ty, )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )+ }
            }
        }

        impl $crate::config::section::Section for $name {
            const NAME: &'static str = stringify!($section);

            fn doc() -> String {
                $crate::config::section::paragraph(&[$($section_doc),+])
            }

            fn keys() -> Vec<$crate::config::section::KeyInfo> {
                use $crate::config::value::Setting;
                let default = Self::default();
                vec![$({
                    let range: Option<std::ops::RangeInclusive<$ty>> = section!(@range $($range)?);
                    $crate::config::section::KeyInfo {
                        name: stringify!($key),
                        unit: <$ty as Setting>::unit(),
                        default: default.$key.show(),
                        range: range.map(|r| format!("{} to {}", r.start().show(), r.end().show())),
                        doc: $crate::config::section::paragraph(&[$($doc),+]),
                    }
                }),+]
            }

            fn set(&mut self, key: &str, raw: $crate::config::value::Raw<'_>) -> Option<Result<(), String>> {
                match key {
                    $( stringify!($key) => Some(
                        $crate::config::value::read_within(raw, section!(@range $($range)?))
                            .map(|value| self.$key = value),
                    ), )+
                    _ => None,
                }
            }

            fn show(&self) -> Vec<(&'static str, String)> {
                use $crate::config::value::Setting;
                vec![$((stringify!($key), self.$key.show())),+]
            }
        }
    };
    (@range) => { None };
    (@range $range:expr) => { Some($range) };
}
pub(crate) use section;
