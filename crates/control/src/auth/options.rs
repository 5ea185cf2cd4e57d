//! What can be configured about clients' identities and permissions.

use std::path::PathBuf;
use std::time::Duration;
use stentor_auth::{Algorithm, Key, Rule};

/// Which tokens are accepted, and what clients may do. The binary fills it.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// Whether clients without a token are accepted.
    pub allow_anonymous: bool,
    /// How far an issuer's clock may be ahead, for `nbf` and `iat`.
    pub leeway: Duration,
    /// How long a token may be valid. Revocations are kept for as long.
    pub token_lifetime_max: Duration,
    /// Time between two fetches of the keys of an issuer.
    pub jwks_refresh_interval: Duration,
    /// File with PEM certificates to trust for issuers, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Memory for tokens that were verified.
    pub token_cache_bytes_max: usize,
    /// Entries of the list of revocations.
    pub revocations_max: usize,
    /// Whose tokens are accepted. Names are unique.
    pub issuers: Vec<IssuerOptions>,
    /// What is allowed.
    pub permissions: Vec<Rule>,
}

/// An issuer of tokens, with either keys or the URL of its keys.
#[derive(Clone, Debug, Default)]
pub struct IssuerOptions {
    /// The claim `iss` of its tokens.
    pub name: String,
    /// What the claim `aud` has to contain. `None`: tokens have no `aud`.
    pub audience: Option<String>,
    /// The algorithms that it signs with.
    pub algorithms: Vec<Algorithm>,
    /// Its keys, if `jwks_url` is `None`.
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
            issuers: Vec::new(),
            permissions: Vec::new(),
        }
    }
}
