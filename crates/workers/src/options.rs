//! Options of applications.

use std::fmt;
use stentor_link::ApplicationOptions;

/// Maximum number of applications: a link's number has 10 bits for its application.
pub const APPS_MAX: usize = 1 << 10;

/// A secret that workers present. It isn't shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Options of an application.
#[derive(Clone, Debug, Default)]
pub struct AppOptions {
    /// The name by which workers choose the application.
    pub name: String,
    /// A token that is accepted beside that of the admin port. `None`: there is no other.
    pub token: Option<Token>,
    /// Bounds and times.
    pub application: ApplicationOptions,
}
