//! A section of the configuration. One table declares its struct, its defaults, its reference and its
//! options.

use super::options::Options;
use super::setting::Raw;

/// Description of a key, for the reference.
#[derive(Clone, Debug)]
pub(crate) struct KeyInfo {
    /// Name of the key, unique within the section.
    pub(crate) name: &'static str,
    /// Unit of the value, or the possible values.
    pub(crate) unit: String,
    /// Default of the key, as in the file.
    pub(crate) default: String,
    /// Minimum and maximum, if the key has them.
    pub(crate) range: Option<String>,
    /// Description of the key.
    pub(crate) doc: String,
    /// `true` if a change needs a restart. A reload applies changes of all other keys.
    pub(crate) restart: bool,
    /// `true` if the value is a secret, which is never shown.
    pub(crate) secret: bool,
}

/// A section: `[name]` in the file.
pub(crate) trait Section {
    /// Returns the name between the brackets.
    fn name(&self) -> &'static str;
    /// Returns the description.
    fn doc(&self) -> String;
    /// Returns the keys, in the order of the reference.
    fn keys(&self) -> Vec<KeyInfo>;
    /// Sets `key`, and returns its name. `None` if there is no such key.
    fn set(&mut self, key: &str, raw: Raw<'_>) -> Option<Result<&'static str, String>>;
    /// Returns the values of all keys as in the file, in the order of [`Section::keys`].
    fn show(&self) -> Vec<(&'static str, String)>;
    /// Returns the keys whose values differ from those of a running server. `true` if the change needs a
    /// restart.
    fn changed_from(&self, running: &Self) -> Vec<(&'static str, bool)>
    where
        Self: Sized;
    /// Takes over the value of a key from a running server.
    fn keep(&mut self, key: &str, running: &Self)
    where
        Self: Sized;
    /// Sets the fields of `options` to the section's values.
    fn store(&self, options: &mut Options);
}

/// Joins the lines of a doc comment into one paragraph.
pub(crate) fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a section: its name, its struct, and the part of [`Options`] that it sets. This is the only place
/// where a key is declared. Each key has a doc comment, its name and its type, and `in min..=max` if it has a
/// range:
///
/// - `key: Type` sets the field of the same name in the section's part of [`Options`]. The field's default is
///   the key's default.
/// - `key: Type => a.b => c.d` sets these fields of [`Options`]. The first field's default is the key's
///   default.
/// - `key: Type = value => a.b` has `value` as its default. Without a field, the binary reads the key itself.
/// - `[restart]` at the end means that a reload doesn't apply a change of the key.
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])+
        [$section:ident $(. $subsection:ident)?] $name:ident => $part:tt {
            $(
                $(#[doc = $doc:literal])+
                $key:ident : $ty:ty $(= $default:expr)? $(=> $($field:ident).+)* $(, in $range:expr)? $(, [$restart:ident])? ;
            )+
        }
    ) => {
        $(#[doc = $section_doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            $( $(#[doc = $doc])+ pub(crate) $key: $ty, )+
        }

        impl Default for $name {
            #[allow(unused_variables, reason = "all keys of a section may have defaults of their own")]
            fn default() -> Self {
                let options = $crate::config::options::Options::default();
                Self { $( $key: section!(@load options $part $key [$($default)?] $([$($field).+])*), )+ }
            }
        }

        impl $crate::config::section::Section for $name {
            fn name(&self) -> &'static str {
                concat!(stringify!($section) $(, ".", stringify!($subsection))?)
            }

            fn doc(&self) -> String {
                $crate::config::section::paragraph(&[$($section_doc),+])
            }

            fn keys(&self) -> Vec<$crate::config::section::KeyInfo> {
                use $crate::config::setting::Setting;
                let default = Self::default();
                vec![$({
                    let range: Option<std::ops::RangeInclusive<$ty>> = section!(@range $($range)?);
                    $crate::config::section::KeyInfo {
                        name: stringify!($key),
                        unit: <$ty as Setting>::unit(),
                        default: default.$key.show(),
                        range: range.map(|r| format!("{} to {}", r.start().show(), r.end().show())),
                        doc: $crate::config::section::paragraph(&[$($doc),+]),
                        restart: section!(@restart $($restart)?),
                        secret: <$ty as Setting>::SECRET,
                    }
                }),+]
            }

            fn set(&mut self, key: &str, raw: $crate::config::setting::Raw<'_>) -> Option<Result<&'static str, String>> {
                match key {
                    $( stringify!($key) => Some(
                        $crate::config::setting::read_within(raw, section!(@range $($range)?)).map(|value| {
                            self.$key = value;
                            stringify!($key)
                        }),
                    ), )+
                    _ => None,
                }
            }

            fn show(&self) -> Vec<(&'static str, String)> {
                use $crate::config::setting::Setting;
                vec![$((stringify!($key), self.$key.show())),+]
            }

            fn changed_from(&self, running: &Self) -> Vec<(&'static str, bool)> {
                let mut changed = Vec::new();
                $( if self.$key != running.$key {
                    changed.push((stringify!($key), section!(@restart $($restart)?)));
                } )+
                changed
            }

            fn keep(&mut self, key: &str, running: &Self) {
                match key {
                    $( stringify!($key) => self.$key.clone_from(&running.$key), )+
                    _ => {}
                }
            }

            #[allow(unused_variables, unused_imports, reason = "the binary may read all keys of a section itself")]
            fn store(&self, options: &mut $crate::config::options::Options) {
                use $crate::config::setting::Field;
                $( section!(@store self options $part $key [$($default)?] $([$($field).+])*); )+
            }
        }
    };
    (@restart) => { false };
    (@restart restart) => { true };
    (@range) => { None };
    (@range $range:expr) => { Some($range) };
    (@load $options:ident $part:tt $key:ident [$default:expr] $($fields:tt)*) => { $default };
    (@load $options:ident ($($part:ident).+) $key:ident []) => {
        $crate::config::setting::Source::load(&$options.$($part).+.$key)
    };
    (@load $options:ident $part:tt $key:ident [] [$($field:ident).+] $($others:tt)*) => {
        $crate::config::setting::Source::load(&$options.$($field).+)
    };
    (@store $self:ident $options:ident $part:tt $key:ident [$default:expr]) => {};
    (@store $self:ident $options:ident ($($part:ident).+) $key:ident []) => {
        $options.$($part).+.$key.store(&$self.$key)
    };
    (@store $self:ident $options:ident $part:tt $key:ident [$($default:expr)?] $([$($field:ident).+])+) => {
        $( $options.$($field).+.store(&$self.$key); )+
    };
}
pub(crate) use section;
