//! A compact JWS with claims as its payload (RFC 7515, section 3.1; RFC 7519; RFC 8725 for tokens to refuse).
//!
//! Order of checks: size, structure, issuer, algorithm, key, signature, audience, times, other claims. So an
//! error about a claim other than `iss` means that the issuer has signed the claims.

use crate::algorithm::Algorithm;
use crate::claims::{Claims, Registered};
use crate::error::Refused;
use crate::issuer::Issuer;
use crate::json;
use crate::key::Key;
use crate::key_set::KEY_ID_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::time::Duration;

/// Maximum size of a token in bytes.
pub const TOKEN_BYTES_MAX: usize = 8192;
/// Maximum number of keys that are tried for a token without a key id.
const TRIES_MAX: usize = 4;
/// Accepted types (`typ`) of tokens: those for access (RFC 7519, section 5.1; RFC 9068, section 2.1). A token
/// of another type, such as `logout+jwt`, has another purpose (RFC 8725, section 3.11).
const TYPES: [&str; 2] = ["jwt", "at+jwt"];

/// A well-formed token whose content hasn't been verified.
pub struct Unverified<'a> {
    algorithm: Algorithm,
    key_id: Option<String>,
    claims: Map<String, Value>,
    /// The signed part: header and claims.
    message: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Unverified<'a> {
    /// Parses a token.
    ///
    /// # Errors
    /// The token is too long or malformed, or its header requires an unsupported feature.
    pub fn parse(text: &'a str) -> Result<Self, Refused> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        let (message, signature) = text.rsplit_once('.').ok_or(Refused::NotCompact)?;
        let (header, claims) = message.split_once('.').ok_or(Refused::NotCompact)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::NotCompact);
        let object = |part, text: &[u8]| {
            json::object(text).map_err(|error| Refused::Json { part, problem: error.problem() })
        };
        let header = object("header", &decode(header)?)?;
        let claims = object("payload", &decode(claims)?)?;
        let (algorithm, key_id) = read_header(&header)?;
        Ok(Self { algorithm, key_id, claims, message: message.as_bytes(), signature: decode(signature)? })
    }

    /// Returns the unverified issuer. Use it only to find a configured issuer by comparison.
    ///
    /// # Errors
    /// [`Refused::Claim`] if the token names no issuer.
    pub fn issuer(&self) -> Result<&str, Refused> {
        let missing = Refused::Claim { claim: "iss", problem: "is missing" };
        self.claims.get("iss").and_then(Value::as_str).ok_or(missing)
    }

    /// Iterates over the issuer's keys that may have signed the token: keys with the token's key id, and keys
    /// without an id. A token without a key id may be signed by any key, but only the first four keys for its
    /// algorithm are tried.
    pub fn candidates<'k>(&self, keys: &'k [Key]) -> impl Iterator<Item = &'k Key> {
        let named = |key: &&Key| match (&self.key_id, key.id()) {
            (Some(named), Some(id)) => named == id,
            _ => true,
        };
        keys.iter().filter(|key| key.is_for(self.algorithm)).filter(named).take(TRIES_MAX)
    }

    /// Returns `true` if no key in `keys` has the token's key id, so that the issuer may have signed with
    /// another key.
    pub fn may_have_other_key(&self, keys: &[Key]) -> bool {
        !keys.iter().any(|key| key.id().is_some() && key.id() == self.key_id.as_deref())
    }

    /// Returns the approximate CPU time that [`Self::verify`] takes with these keys.
    pub fn verification_time(&self, issuer: &Issuer, keys: &[Key]) -> Duration {
        let is_tried = issuer.algorithms.contains(&self.algorithm);
        let tries = if is_tried { self.candidates(keys).count() } else { 0 };
        self.algorithm.verification_time() * tries as u32
    }

    /// Verifies the token at the time `now` (seconds since 1970) with the keys of its issuer.
    ///
    /// # Errors
    /// The token isn't genuine, isn't meant for this server, or isn't valid now. [`Refused::Key`] means that
    /// the issuer may have a key that isn't in `keys` yet.
    pub fn verify(self, issuer: &Issuer, keys: &[Key], now: u64) -> Result<Claims, Refused> {
        if self.issuer()? != &*issuer.name {
            return Err(Refused::Issuer);
        }
        if !issuer.algorithms.contains(&self.algorithm) {
            return Err(Refused::Algorithm);
        }
        let candidates: Vec<_> = self.candidates(keys).collect();
        if candidates.is_empty() {
            return Err(Refused::Key);
        }
        if !candidates.iter().any(|key| key.verifies(self.algorithm, self.message, &self.signature)) {
            return Err(Refused::Signature);
        }
        check_audience(issuer, self.claims.get("aud"))?;
        let times = Registered::read(&self.claims)?;
        check_times(issuer, &times, now)?;
        Claims::read(issuer.name.clone(), &times, self.claims)
    }
}

fn read_header(header: &Map<String, Value>) -> Result<(Algorithm, Option<String>), Refused> {
    // No critical extension (RFC 7515, section 4.1.11) is supported.
    if header.contains_key("crit") {
        return Err(Refused::Header(
            "the token's header has critical extensions (crit), which are not supported",
        ));
    }
    let name = header.get("alg").and_then(Value::as_str);
    let name = name.ok_or(Refused::Header("the token's header has no algorithm (alg)"))?;
    if name.eq_ignore_ascii_case("none") {
        return Err(Refused::Header("the token is not signed (alg is none)"));
    }
    let algorithm =
        Algorithm::parse(name).ok_or(Refused::Header("the token's algorithm (alg) is not supported"))?;
    if let Some(given) = header.get("typ") {
        let lower = given.as_str().unwrap_or_default().to_ascii_lowercase();
        if !TYPES.contains(&lower.strip_prefix("application/").unwrap_or(&lower)) {
            return Err(Refused::Header("the token is of another type (typ) than JWT or at+jwt"));
        }
    }
    let key_id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) if id.len() <= KEY_ID_BYTES_MAX => Some(id.clone()),
        Some(_) => {
            return Err(Refused::Header("the token's key id (kid) is not a text of at most 256 bytes"));
        }
    };
    Ok((algorithm, key_id))
}

fn check_audience(issuer: &Issuer, given: Option<&Value>) -> Result<(), Refused> {
    let is_meant = match (&issuer.audience, given) {
        (None, given) => given.is_none(),
        (Some(audience), Some(Value::String(given))) => **audience == **given,
        (Some(audience), Some(Value::Array(all))) => all.iter().any(|given| given == &**audience),
        (Some(_), _) => false,
    };
    if is_meant { Ok(()) } else { Err(Refused::Audience) }
}

fn check_times(issuer: &Issuer, times: &Registered, now: u64) -> Result<(), Refused> {
    if now >= times.expires_at {
        return Err(Refused::Expired);
    }
    // The latest allowed time, because the issuer's clock may be ahead.
    let latest = now.saturating_add(issuer.leeway_seconds);
    if times.not_before.is_some_and(|time| time > latest) {
        return Err(Refused::NotYetValid);
    }
    if times.issued_at > latest {
        return Err(Refused::IssuedInFuture);
    }
    if times.expires_at.saturating_sub(times.issued_at) > issuer.lifetime_seconds_max {
        return Err(Refused::LifetimeTooLong);
    }
    Ok(())
}
