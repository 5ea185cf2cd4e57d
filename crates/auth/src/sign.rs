//! Signs tokens, for development and tests. In production, users get their tokens from an issuer.

use crate::algorithm::Algorithm;
use crate::key::Key;
use crate::spki::pem;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Map, Value, json};

/// Reason why a token can't be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The key is not a secret, or too short.
    #[error("this key is no secret for this algorithm")]
    NoSecret,
    /// The text is not a P-256 private key.
    #[error(
        "expected a private key for P-256 in PEM (-----BEGIN PRIVATE KEY-----); \
             `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` makes one"
    )]
    NoPrivateKey,
    /// The system's random source failed.
    #[error("the system has no random numbers")]
    Random,
}

/// A key that signs tokens.
pub struct SigningKey {
    id: Option<String>,
    kind: Kind,
}

enum Kind {
    Secret(Key, Algorithm),
    Es256(EcdsaKeyPair),
}

impl SigningKey {
    /// Makes a signing key from a secret, with HS256, HS384 or HS512.
    ///
    /// # Errors
    /// [`SignError::NoSecret`].
    pub fn secret(key: &Key, algorithm: Algorithm) -> Result<Self, SignError> {
        if !key.is_secret() || !key.is_for(algorithm) {
            return Err(SignError::NoSecret);
        }
        Ok(Self { id: key.id().map(Into::into), kind: Kind::Secret(key.clone(), algorithm) })
    }

    /// Reads a private key in PEM (PKCS #8), for ES256.
    ///
    /// # Errors
    /// [`SignError::NoPrivateKey`].
    pub fn es256(id: Option<&str>, text: &str) -> Result<Self, SignError> {
        let der = pem(text, "PRIVATE KEY").ok_or(SignError::NoPrivateKey)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new());
        Ok(Self { id: id.map(Into::into), kind: Kind::Es256(pair.map_err(|_| SignError::NoPrivateKey)?) })
    }

    /// Returns the public part of a key pair as a JWK.
    pub fn public_jwk(&self) -> Option<Value> {
        let Kind::Es256(pair) = &self.kind else { return None };
        let (x, y) = pair.public_key().as_ref().get(1..)?.split_at_checked(32)?;
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let mut jwk = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y, "alg": "ES256", "use": "sig"});
        if let Some(id) = &self.id {
            jwk["kid"] = id.as_str().into();
        }
        Some(jwk)
    }

    /// Signs claims without checking them.
    ///
    /// # Errors
    /// [`SignError::Random`].
    pub fn sign(&self, claims: &Map<String, Value>) -> Result<String, SignError> {
        let algorithm = match &self.kind {
            Kind::Secret(_, algorithm) => *algorithm,
            Kind::Es256(_) => Algorithm::Es256,
        };
        let mut header = json!({"alg": algorithm.name(), "typ": "JWT"});
        if let Some(id) = &self.id {
            header["kid"] = id.as_str().into();
        }
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let claims = Value::Object(claims.clone()).to_string();
        let message = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.as_bytes()));
        let signature = match &self.kind {
            Kind::Secret(key, algorithm) => {
                let tag = key.tag(*algorithm, message.as_bytes()).ok_or(SignError::NoSecret)?;
                encode(tag.as_ref())
            }
            Kind::Es256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message.as_bytes());
                encode(signature.map_err(|_| SignError::Random)?.as_ref())
            }
        };
        Ok(format!("{message}.{signature}"))
    }
}
