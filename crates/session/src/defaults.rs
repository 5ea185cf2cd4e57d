//! A macro for structs of options with defaults.

/// Declares a struct of options, each with its default.
macro_rules! with_defaults {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr,)+
    }) => {
        $(#[$about])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    };
}

pub(crate) use with_defaults;
