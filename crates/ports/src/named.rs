//! Enums whose variants have names.

/// Declares an enum of variants without fields, with all of them (`ALL`, in order) and the name of each (`name`), such as its label in
/// metrics.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        $vis enum $enum { $($(#[$doc])* $variant,)+ }

        impl $enum {
            /// All variants, in order.
            #[allow(dead_code, reason = "some enums are never listed")]
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The variant's name.
            $vis fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}
