//! Options of clients' identities and permissions.

use std::path::PathBuf;
use std::time::Duration;
use stentor_auth::{Algorithm, Key, Rule};

stentor_ports::with_defaults! {
    /// Accepted tokens and permissions. Filled by the binary.
    #[derive(Clone, Debug)]
    pub struct AuthOptions {
        /// `true` accepts clients without a token.
        pub allow_anonymous: bool = false,
        /// Maximum time by which an issuer's clock may be ahead, for `nbf` and `iat`.
        pub leeway: Duration = Duration::from_secs(30),
        /// Maximum validity of a token. Revocations are kept for this time.
        pub token_lifetime_max: Duration = Duration::from_secs(24 * 3600),
        /// Time between two fetches of the keys of an issuer.
        pub jwks_refresh_interval: Duration = Duration::from_secs(300),
        /// File with PEM certificates to trust for issuers, instead of the system's.
        pub ca_file: Option<PathBuf> = None,
        /// Memory for verified tokens, in bytes.
        pub token_cache_bytes_max: usize = 32 << 20,
        /// Maximum number of revocations.
        pub revocations_max: usize = 100_000,
        /// Time for which a user that an authenticating proxy names is valid. `None` if no proxy names users.
        pub proxy_lifetime: Option<Duration> = None,
        /// The accepted issuers. Names are unique.
        pub issuers: Vec<IssuerOptions> = Vec::new(),
        /// The permissions.
        pub permissions: Vec<Rule> = Vec::new(),
    }
}

/// An issuer of tokens, with either keys or the URL of its keys.
#[derive(Clone, Debug, Default)]
pub struct IssuerOptions {
    /// The claim `iss` of its tokens.
    pub name: String,
    /// The value that the claim `aud` must contain. `None`: tokens have no `aud`.
    pub audience: Option<String>,
    /// The algorithms with which it signs.
    pub algorithms: Vec<Algorithm>,
    /// Keys of the issuer, if `jwks_url` is `None`.
    pub keys: Vec<Key>,
    /// The URL of its JWK Set: `https://`, or `http://` with a loopback address.
    pub jwks_url: Option<String>,
}
