//! Reasons for refusing a token, for the client, the log and the metrics. No text contains a part of the
//! token.

/// Reason for refusing a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The token has more than [`TOKEN_BYTES_MAX`](crate::TOKEN_BYTES_MAX) bytes.
    #[error("the token is longer than 8,192 bytes")]
    TooLong,
    /// The token isn't three parts in base64url.
    #[error("this is not a JSON Web Token: expected three parts in base64url, joined by dots")]
    NotCompact,
    /// The token's header or claims can't be parsed.
    #[error("the token's {part} {problem}")]
    Json {
        /// The part: `header` or `payload`.
        part: &'static str,
        /// The problem, as the predicate of a sentence.
        problem: &'static str,
    },
    /// A parameter of the header is missing, has a wrong type, or requires an unsupported feature.
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
    #[error("the token's signature is invalid")]
    Signature,
    /// A claim is missing or has a wrong type.
    #[error("the token's claim {claim} {problem}")]
    Claim {
        /// The claim.
        claim: &'static str,
        /// The problem, as the predicate of a sentence.
        problem: &'static str,
    },
    /// The token is meant for another server.
    #[error("the token is for another audience (aud)")]
    Audience,
    /// The token has expired.
    #[error("the token has expired (exp)")]
    Expired,
    /// The token isn't valid yet.
    #[error("the token is not valid yet (nbf)")]
    NotYetValid,
    /// The token was issued in the future.
    #[error("the token was issued in the future (iat)")]
    IssuedInFuture,
    /// The token is valid for longer than the server allows.
    #[error("the token is valid for longer than the server allows (exp)")]
    LifetimeTooLong,
    /// The granted permissions can't be parsed.
    #[error("the token's claim stentor is invalid: {0}")]
    Grants(String),
}

impl Refused {
    /// Returns the error code that clients receive.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Expired => "token_expired",
            Self::NotYetValid | Self::IssuedInFuture => "token_not_yet_valid",
            _ => "token_invalid",
        }
    }

    /// Returns the label in metrics.
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

    /// All values of [`Self::label`].
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
