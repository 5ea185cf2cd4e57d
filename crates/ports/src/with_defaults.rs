//! Structs of options with defaults.

/// Declares structs of options, each field with its default.
#[macro_export]
macro_rules! with_defaults {
    ($($(#[$about:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty = $default:expr,)+
    })+) => {$(
        $(#[$about])*
        $vis struct $name {
            $($(#[$doc])* $field_vis $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    )+};
}
