//! Options of applications.

use crate::forward::ForwardOptions;
use crate::recovery::RecoveryOptions;
use stentor_link::ApplicationOptions;
use stentor_ports::EngineOptions;

/// Maximum number of applications: a link's number has 9 bits for its application. One more marks links of other nodes.
pub const APPS_MAX: usize = 1 << 9;

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

stentor_ports::opaque_debug!(Token, "Token(…)");

stentor_ports::with_defaults! {
    /// Options of an application.
    #[derive(Clone, Debug)]
    pub struct AppOptions {
        /// The name by which workers choose the application.
        pub name: String = String::new(),
        /// A token that is accepted beside that of the admin port. `None`: there is no other.
        pub token: Option<Token> = None,
        /// Path of the application's clients. Empty: that of the workers.
        pub path: String = String::new(),
        /// Maximum size of a client's message in bytes. Workers may choose a lower one.
        pub message_bytes_max: usize = 1_000_000,
        /// Bounds and times of requests for other paths, which the workers' HTTP servers answer. `None`: they get no requests. At most one
        /// application of a node may have them.
        pub http: Option<ForwardOptions> = None,
        /// Size of a client's messages that wait for its worker, in bytes, above which the client isn't read.
        pub queue_bytes_max: usize = EngineOptions::default().queue_bytes_max,
        /// Bounds and times.
        pub application: ApplicationOptions = ApplicationOptions::default(),
        /// Bounds of the state that is kept for clients that reconnect.
        pub recovery: RecoveryOptions = RecoveryOptions::default(),
    }
}

impl AppOptions {
    /// The options of the application's clients until its first worker is linked.
    pub(crate) fn engine(&self) -> EngineOptions {
        EngineOptions { queue_bytes_max: self.queue_bytes_max, ..EngineOptions::of_path(&self.path) }
    }
}
