//! Signature algorithms (RFC 7518, section 3.1; RFC 8037; RFC 9864).

use std::fmt;
use std::time::Duration;

/// A signature algorithm. `none` isn't supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the specifications")]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 12] = [
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// Returns the approximate CPU time that verifying a signature takes.
    pub fn verification_time(self) -> Duration {
        Duration::from_micros(match self {
            Self::Hs256 | Self::Hs384 | Self::Hs512 => 5,
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => 100,
            Self::Es256 | Self::EdDsa => 100,
            Self::Es384 => 900,
        })
    }

    /// Returns the algorithm's name in the header of a token (`alg`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns the algorithm with this name. `Ed25519` is the newer name of `EdDSA` with the curve Ed25519.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "Ed25519" => Some(Self::EdDsa),
            _ => Self::ALL.into_iter().find(|algorithm| algorithm.name() == name),
        }
    }

    /// Returns `true` if the algorithm uses a secret that the issuer and the server share.
    pub fn is_secret(self) -> bool {
        self.secret_bytes_min().is_some()
    }

    /// Returns the minimum length of a secret in bytes: the length of the hash (RFC 7518, section 3.2).
    /// `None` if the algorithm uses key pairs.
    pub fn secret_bytes_min(self) -> Option<usize> {
        match self {
            Self::Hs256 => Some(32),
            Self::Hs384 => Some(48),
            Self::Hs512 => Some(64),
            _ => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
