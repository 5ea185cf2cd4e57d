//! Options of clients' identities and permissions.

use std::path::PathBuf;
use std::time::Duration;
use stentor_auth::{Algorithm, Key, Rule};

/// Accepted tokens and permissions. Filled by the binary.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// `true` accepts clients without a token.
    pub allow_anonymous: bool,
    /// Maximum time by which an issuer's clock may be ahead, for `nbf` and `iat`.
    pub leeway: Duration,
    /// Maximum validity of a token. Revocations are kept for this time.
    pub token_lifetime_max: Duration,
    /// Time between two fetches of the keys of an issuer.
    pub jwks_refresh_interval: Duration,
    /// File with PEM certificates to trust for issuers, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Memory for verified tokens, in bytes.
    pub token_cache_bytes_max: usize,
    /// Maximum number of revocations.
    pub revocations_max: usize,
    /// Time for which a user that an authenticating proxy names is valid. `None` if no proxy names users.
    pub proxy_lifetime: Option<Duration>,
    /// The accepted issuers. Names are unique.
    pub issuers: Vec<IssuerOptions>,
    /// The permissions.
    pub permissions: Vec<Rule>,
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

impl Default for AuthOptions {
    fn default() -> Self {
        Self {
            allow_anonymous: false,
            leeway: Duration::from_secs(30),
            token_lifetime_max: Duration::from_secs(24 * 3600),
            jwks_refresh_interval: Duration::from_secs(300),
            ca_file: None,
            token_cache_bytes_max: 32 << 20,
            revocations_max: 100_000,
            proxy_lifetime: None,
            issuers: Vec::new(),
            permissions: Vec::new(),
        }
    }
}
