//! Why a token is refused: for the client, the log and the metrics. No text has a part of the token.

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has more than [`TOKEN_BYTES_MAX`](crate::TOKEN_BYTES_MAX) bytes.
    #[error("the token is longer than 8,192 bytes")]
    TooLong,
    /// It isn't three parts in base64url.
    #[error("this is not a JSON Web Token: expected three parts in base64url, joined by dots")]
    NotCompact,
    /// Its header or its claims can't be read.
    #[error("the token's {part} {problem}")]
    Json {
        /// Its `header` or `payload`.
        part: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A parameter of its header is missing, has a wrong type, or asks for what isn't supported.
    #[error("{0}")]
    Header(&'static str),
    /// No issuer of this name is configured.
    #[error("the token's issuer (iss) is not accepted")]
    Issuer,
    /// The issuer may not sign with this algorithm.
    #[error("the token's issuer may not sign with this algorithm (alg)")]
    Algorithm,
    /// The issuer has no key with the token's key id, or none for its algorithm.
    #[error("the token's issuer has no such key (kid)")]
    Key,
    /// The signature is wrong.
    #[error("the token's signature is wrong")]
    Signature,
    /// A claim is missing or has a wrong type.
    #[error("the token's claim {claim} {problem}")]
    Claim {
        /// The claim.
        claim: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// It is meant for others.
    #[error("the token's audience (aud) is another one")]
    Audience,
    /// It is over.
    #[error("the token has expired (exp)")]
    Expired,
    /// It isn't valid yet.
    #[error("the token is not valid yet (nbf)")]
    NotYetValid,
    /// It was issued in the future.
    #[error("the token was issued in the future (iat)")]
    IssuedInFuture,
    /// It is valid for longer than is allowed.
    #[error("the token is valid for longer than the server allows (exp)")]
    LifetimeTooLong,
    /// What it grants can't be read.
    #[error("the token's claim stentor is wrong: {0}")]
    Grants(String),
}

impl Refused {
    /// The code that clients receive.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Expired => "token_expired",
            Self::NotYetValid | Self::IssuedInFuture => "token_not_yet_valid",
            _ => "token_invalid",
        }
    }

    /// One word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::NotCompact | Self::Json { .. } => "malformed",
            Self::Header(_) => "header",
            Self::Issuer => "issuer",
            Self::Algorithm => "algorithm",
            Self::Key => "unknown_key",
            Self::Signature => "signature",
            Self::Claim { .. } | Self::Grants(_) => "claim",
            Self::Audience => "audience",
            Self::Expired => "expired",
            Self::NotYetValid | Self::IssuedInFuture => "not_yet_valid",
            Self::LifetimeTooLong => "lifetime",
        }
    }

    /// The values of [`Self::label`].
    pub const LABELS: [&'static str; 12] = [
        "too_long",
        "malformed",
        "header",
        "issuer",
        "algorithm",
        "unknown_key",
        "signature",
        "claim",
        "audience",
        "expired",
        "not_yet_valid",
        "lifetime",
    ];
}
