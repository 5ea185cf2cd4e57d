//! Tokens of an issuer whose key the server knows: good ones and bad ones.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use std::time::{SystemTime, UNIX_EPOCH};

/// The key.
pub(crate) const SECRET: &str = "fuzz-fuzz-fuzz-fuzz-fuzz-fuzz-fuzz-fuzz";
/// The user of most tokens.
pub(crate) const USER: &str = "fuzzed-user";

/// What a token says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    pub(crate) algorithm: &'static str,
    /// Seconds from now until it ends; below zero: it has ended.
    pub(crate) ends_s: i64,
}

/// A token that is valid throughout a run.
pub(crate) const VALID: Claims = Claims { algorithm: "HS256", ends_s: 3600 };
/// A token that ends within a round.
pub(crate) const BRIEF: Claims = Claims { ends_s: 2, ..VALID };
pub(crate) const EXPIRED: Claims = Claims { ends_s: -60, ..VALID };
/// Algorithms that the issuer doesn't use, or doesn't exist.
pub(crate) const WRONG: [Claims; 3] = [
    Claims { algorithm: "none", ..VALID },
    Claims { algorithm: "HS512", ..VALID },
    Claims { algorithm: "RS256", ..VALID },
];

/// A token of a user, signed with [`SECRET`] whatever it says of its algorithm.
pub(crate) fn sign(user: &str, claims: Claims) -> String {
    sign_with_id(user, user, claims)
}

/// The same with an id, by which it can be revoked.
pub(crate) fn sign_with_id(user: &str, id: &str, claims: Claims) -> String {
    let signed = content(user, id, claims);
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A token whose signature looks like one of ES384, so that it has to be verified, but is none.
pub(crate) fn forge(user: &str) -> String {
    let claims = Claims { algorithm: "ES384", ..VALID };
    format!("{}.{}", content(user, user, claims), URL_SAFE_NO_PAD.encode([0x5a; 96]))
}

/// Header and payload.
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
