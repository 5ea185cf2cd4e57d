//! Reasons why the control plane doesn't start. Each message contains the setting to change.

use std::net::SocketAddr;

/// Reason why the control plane doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting has an invalid value.
    #[error("{name}: {message}")]
    Setting {
        /// The field's path in [`Options`](crate::Options), for example `feeds.upstreams.scores.url`. The
        /// binary checks its configuration first, and reports mistakes by the configuration's names. Mistakes
        /// that only this crate detects also use the configuration's names.
        name: String,
        /// The mistake.
        message: String,
    },
    /// The admin port would be reachable from other machines, without a token.
    #[error(
        "admin.listen: {listen} can be reached from other machines, and who reaches the admin port may publish; \
         set admin.token, or listen on 127.0.0.1"
    )]
    TokenMissing {
        /// The configured address.
        listen: SocketAddr,
    },
    /// The admin port can't listen at its address.
    #[error("admin.listen (--admin): can't listen on {listen}: {source}")]
    Listen {
        /// The configured address.
        listen: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn setting(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Setting { name: name.into(), message: message.into() }
    }
}
