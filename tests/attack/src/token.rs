//! Valid and invalid tokens of an issuer whose key the server knows.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use std::time::{SystemTime, UNIX_EPOCH};

/// The issuer's key.
pub(crate) const SECRET: &str = "fuzz-fuzz-fuzz-fuzz-fuzz-fuzz-fuzz-fuzz";
/// The user of most tokens.
pub(crate) const USER: &str = "fuzzed-user";

/// The properties of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    pub(crate) algorithm: &'static str,
    /// Seconds from now until the token expires. Negative for an expired token.
    pub(crate) ends_s: i64,
}

/// A token that is valid throughout a run.
pub(crate) const VALID: Claims = Claims { algorithm: "HS256", ends_s: 3600 };
/// A token that expires within a round.
pub(crate) const BRIEF: Claims = Claims { ends_s: 2, ..VALID };
pub(crate) const EXPIRED: Claims = Claims { ends_s: -60, ..VALID };
/// Tokens with algorithms that the issuer doesn't use.
pub(crate) const WRONG: [Claims; 3] = [
    Claims { algorithm: "none", ..VALID },
    Claims { algorithm: "HS512", ..VALID },
    Claims { algorithm: "RS256", ..VALID },
];

/// Makes a token of a user, signed with [`SECRET`] whatever algorithm it states.
pub(crate) fn sign(user: &str, claims: Claims) -> String {
    sign_with_id(user, user, claims)
}

/// Like [`sign`], with an id by which the token can be revoked.
pub(crate) fn sign_with_id(user: &str, id: &str, claims: Claims) -> String {
    let signed = content(user, id, claims);
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Makes a token with an invalid signature of the length of ES384, so that the server has to verify it.
pub(crate) fn forge(user: &str) -> String {
    let claims = Claims { algorithm: "ES384", ..VALID };
    format!("{}.{}", content(user, user, claims), URL_SAFE_NO_PAD.encode([0x5a; 96]))
}

/// Returns the token's header and payload, encoded.
fn content(user: &str, id: &str, claims: Claims) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let now_s = i64::try_from(now_s).unwrap_or(0);
    let header = format!(r#"{{"typ":"JWT","alg":"{}"}}"#, claims.algorithm);
    let payload = format!(
        r#"{{"iss":"fuzz","sub":"{user}","jti":"{id}","iat":{},"exp":{},"stentor":{{"info":{{"name":"Fuzz"}},"join":["lobby"]}}}}"#,
        now_s - 120,
        now_s + claims.ends_s
    );
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload))
}
