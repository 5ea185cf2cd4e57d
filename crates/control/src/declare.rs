//! A macro that declares metrics.

/// Declares metrics whose values are kept here, each with its type, its name without the prefix, and its help text. Clones of the struct
/// share the values.
macro_rules! metrics {
    ($(#[$doc:meta])+ $vis:vis struct $metrics:ident {
        $($field_vis:vis $field:ident: $ty:ty $(= $new:expr)?, $name:literal, $help:literal;)+
    }) => {
        $(#[$doc])+
        #[derive(Clone)]
        $vis struct $metrics {
            $($field_vis $field: $ty,)+
        }

        impl Default for $metrics {
            fn default() -> Self {
                Self { $($field: metrics!(@new $($new)?),)+ }
            }
        }

        impl $metrics {
            pub(crate) fn register(&self, registry: &mut prometheus_client::registry::Registry) {
                $(registry.register($name, $help, self.$field.clone());)+
            }
        }
    };
    (@new) => { Default::default() };
    (@new $new:expr) => { $new };
}
pub(crate) use metrics;
