//! Keys that an issuer publishes: a JWK Set (RFC 7517; RFC 8037 for Ed25519).
//!
//! Keys that can't verify a token are skipped: encryption keys, keys of unknown kinds, and secrets, which
//! must never be published. A set without a usable key is an error, so that such a mistake of an issuer
//! doesn't replace working keys.

use crate::algorithm::Algorithm;
use crate::json;
use crate::key::Key;
use crate::material::Material;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// Maximum size of a JWK Set in bytes.
pub const KEY_SET_BYTES_MAX: usize = 256 << 10;
/// Maximum number of keys in a JWK Set.
pub const KEYS_MAX: usize = 128;
/// Maximum length of a key id in bytes.
pub(crate) const KEY_ID_BYTES_MAX: usize = 256;

/// Reason for refusing a JWK Set. The issuer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The set has more than [`KEY_SET_BYTES_MAX`] bytes.
    #[error("the JWK Set is larger than 256 KiB")]
    TooLarge,
    /// The text isn't an object with an array `keys`.
    #[error("this is not a JWK Set: {0}")]
    Malformed(&'static str),
    /// The set has more than [`KEYS_MAX`] keys.
    #[error("the JWK Set has more than 128 keys")]
    TooMany,
    /// No key can verify a token.
    #[error("the JWK Set has no key for RSA (2,048 to 8,192 bits), P-256, P-384 or Ed25519")]
    NoKeys,
}

/// An issuer's keys that can verify tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    /// The keys, in the issuer's order.
    pub keys: Vec<Key>,
    /// Number of skipped keys, which can't verify tokens.
    pub skipped: usize,
}

impl KeySet {
    /// Reads a JWK Set.
    ///
    /// # Errors
    /// The text isn't a JWK Set, exceeds a limit, or has no key that can verify a token.
    pub fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        if text.len() > KEY_SET_BYTES_MAX {
            return Err(KeySetError::TooLarge);
        }
        let set = json::object(text).map_err(|error| KeySetError::Malformed(error.problem()))?;
        let Some(Value::Array(listed)) = set.get("keys") else {
            return Err(KeySetError::Malformed("it has no array \"keys\""));
        };
        if listed.len() > KEYS_MAX {
            return Err(KeySetError::TooMany);
        }
        let keys: Vec<_> = listed.iter().filter_map(Value::as_object).filter_map(key).collect();
        let skipped = listed.len() - keys.len();
        if keys.is_empty() { Err(KeySetError::NoKeys) } else { Ok(Self { keys, skipped }) }
    }
}

/// Reads one JWK. Returns `None` if it can't verify tokens.
fn key(jwk: &Map<String, Value>) -> Option<Key> {
    let text = |name| jwk.get(name).and_then(Value::as_str);
    let number = |name| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    let is_for_signatures = jwk.get("use").is_none_or(|usage| usage == "sig")
        && jwk
            .get("key_ops")
            .is_none_or(|all| all.as_array().is_some_and(|all| all.contains(&"verify".into())));
    let only = match jwk.get("alg") {
        None => None,
        Some(name) => Some(Algorithm::parse(name.as_str()?)?),
    };
    let id = match jwk.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().filter(|id| id.len() <= KEY_ID_BYTES_MAX)?),
    };
    if !is_for_signatures {
        return None;
    }
    let point = |bytes: usize| {
        let (x, y) = (number("x")?, number("y")?);
        (x.len() == bytes && y.len() == bytes).then(|| [&[4], &*x, &*y].concat())
    };
    let material = match (text("kty")?, text("crv")) {
        ("RSA", _) => Material::rsa(&number("n")?, &number("e")?),
        ("EC", Some("P-256")) => Material::p256(&point(32)?),
        ("EC", Some("P-384")) => Material::p384(&point(48)?),
        ("OKP", Some("Ed25519")) => Material::ed25519(&number("x")?),
        _ => None,
    };
    material.map(|material| Key::new(id, only, material))
}
