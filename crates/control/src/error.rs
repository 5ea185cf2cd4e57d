//! Why the control plane doesn't start. Each message names the setting to change.

use std::net::SocketAddr;

/// Why the control plane doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting has an invalid value.
    #[error("{name}: {message}")]
    Setting {
        /// The field's path in [`Options`](crate::Options), e.g. `feeds.upstreams.scores.url`; a configuration has its own
        /// names, and checks by these first. What only this crate can find wrong is named as the configuration has it.
        name: String,
        /// What is wrong with it.
        message: String,
    },
    /// The admin port would be open to others, without a token.
    #[error(
        "admin.listen: {listen} can be reached from other machines, and who reaches the admin port may publish; \
         set admin.token, or listen on 127.0.0.1"
    )]
    TokenMissing {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// The admin port can't listen at its address.
    #[error("admin.listen (--admin): can't listen on {listen}: {source}")]
    Listen {
        /// The address asked for.
        listen: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn setting(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Setting { name: name.into(), message: message.into() }
    }
}
