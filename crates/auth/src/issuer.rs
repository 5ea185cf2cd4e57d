//! The requirements for the tokens of an issuer.

use crate::algorithm::Algorithm;
use std::sync::Arc;

/// An issuer whose tokens are accepted. Its keys are stored separately, because they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// The value of the claim `iss`. It is compared byte by byte.
    pub name: Arc<str>,
    /// The server's name, which the claim `aud` must contain. `None` accepts only tokens without `aud` (RFC
    /// 7519, section 4.1.3).
    pub audience: Option<Arc<str>>,
    /// The algorithms with which the issuer may sign.
    pub algorithms: Vec<Algorithm>,
    /// Maximum time in seconds by which the issuer's clock may be ahead. It applies to `nbf` and `iat`, never
    /// to `exp`.
    pub leeway_seconds: u64,
    /// Maximum validity of a token in seconds.
    pub lifetime_seconds_max: u64,
}
