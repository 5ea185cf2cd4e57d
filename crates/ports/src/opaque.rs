//! Types that logs name without their content.

/// Implements `Debug` by a fixed text, for a type whose content is a secret, or too much for a log.
#[macro_export]
macro_rules! opaque_debug {
    ($type:ty, $text:literal) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($text)
            }
        }
    };
}
