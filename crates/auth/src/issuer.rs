//! What is demanded of the tokens of an issuer.

use crate::algorithm::Algorithm;
use std::sync::Arc;

/// An issuer whose tokens are accepted. Its keys are kept apart, because they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// The value of the claim `iss`, byte by byte.
    pub name: Arc<str>,
    /// The server's name, which the claim `aud` has to contain. `None`: only tokens without `aud` are accepted (RFC 7519,
    /// section 4.1.3).
    pub audience: Option<Arc<str>>,
    /// The algorithms that it may sign with.
    pub algorithms: Vec<Algorithm>,
    /// How far the issuer's clock may be ahead, in seconds: for `nbf` and `iat`, never for `exp`.
    pub leeway_seconds: u64,
    /// How long a token may be valid, in seconds.
    pub lifetime_seconds_max: u64,
}
