//! Keys that verify signatures. Each key has one kind, and verifies only signatures by algorithms of this
//! kind.

use crate::algorithm::Algorithm;
use crate::material::{KeyError, Material};
use crate::spki;
use ring::hmac;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use std::fmt;
use std::sync::Arc;

/// Maximum length of a secret in bytes.
const SECRET_BYTES_MAX: usize = 1024;

/// A key of an issuer, which verifies signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The key's id among the issuer's keys.
    id: Option<Arc<str>>,
    /// The only allowed algorithm, if the issuer restricts the key to one.
    only: Option<Algorithm>,
    material: Material,
    hmac: Option<Prepared>,
}

/// The initial states of HMAC with SHA-256, SHA-384 and SHA-512 for a secret, so that they aren't computed
/// for each token.
#[derive(Clone)]
struct Prepared(Arc<[hmac::Key; 3]>);

impl PartialEq for Prepared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Prepared {}

impl Prepared {
    fn new(secret: &[u8]) -> Self {
        let hashes = [hmac::HMAC_SHA256, hmac::HMAC_SHA384, hmac::HMAC_SHA512];
        Self(Arc::new(hashes.map(|hash| hmac::Key::new(hash, secret))))
    }

    fn get(&self, algorithm: Algorithm) -> Option<&hmac::Key> {
        match algorithm {
            Algorithm::Hs256 => Some(&self.0[0]),
            Algorithm::Hs384 => Some(&self.0[1]),
            Algorithm::Hs512 => Some(&self.0[2]),
            _ => None,
        }
    }
}

impl fmt::Debug for Key {
    /// Writes only the key's id, without the key material.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.id)
    }
}

impl Key {
    pub(crate) fn new(id: Option<&str>, only: Option<Algorithm>, material: Material) -> Self {
        let hmac = match &material {
            Material::Secret(secret) => Some(Prepared::new(secret)),
            _ => None,
        };
        Self { id: id.map(Into::into), only, material, hmac }
    }

    /// Makes a key from a secret that the server shares with the issuer, for HS256 and, if it is long enough,
    /// HS384 and HS512.
    ///
    /// # Errors
    /// [`KeyError::SecretLength`].
    pub fn secret(id: Option<&str>, secret: &[u8]) -> Result<Self, KeyError> {
        if !(32..=SECRET_BYTES_MAX).contains(&secret.len()) {
            return Err(KeyError::SecretLength);
        }
        Ok(Self::new(id, None, Material::Secret(secret.into())))
    }

    /// Reads a public key in PEM: RSA with 2,048 to 8,192 bits, P-256, P-384 or Ed25519.
    ///
    /// # Errors
    /// The text isn't a key of these kinds.
    pub fn public(id: Option<&str>, pem: &str) -> Result<Self, KeyError> {
        spki::public_key(pem).map(|material| Self::new(id, None, material))
    }

    /// Returns the key's id among the issuer's keys.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns `true` for a secret that the server shares with the issuer.
    pub fn is_secret(&self) -> bool {
        matches!(self.material, Material::Secret(_))
    }

    /// Returns `true` if the key can verify signatures with this algorithm.
    pub fn is_for(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{EdDsa, Es256, Es384, Hs256, Hs384, Hs512, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let fits = match &self.material {
            Material::Secret(secret) => {
                matches!(algorithm, Hs256 | Hs384 | Hs512)
                    && algorithm.secret_bytes_min().is_some_and(|min| secret.len() >= min)
            }
            Material::Rsa { .. } => matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512),
            Material::P256(_) => algorithm == Es256,
            Material::P384(_) => algorithm == Es384,
            Material::Ed25519(_) => algorithm == EdDsa,
        };
        fits && self.only.is_none_or(|only| only == algorithm)
    }

    /// Returns `true` if `signature` is this key's signature of `message` by this algorithm. Returns `false`
    /// if the key isn't for the algorithm.
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.is_for(algorithm) {
            return false;
        }
        let public = |scheme, key: &[u8]| UnparsedPublicKey::new(scheme, key).verify(message, signature);
        let verified = match &self.material {
            Material::Secret(_) => match self.prepared(algorithm) {
                Some(key) => hmac::verify(key, message, signature),
                None => return false,
            },
            Material::Rsa { n, e } => match rsa(algorithm) {
                Some(scheme) => {
                    RsaPublicKeyComponents { n: &**n, e: &**e }.verify(scheme, message, signature)
                }
                None => return false,
            },
            Material::P256(point) => public(&signature::ECDSA_P256_SHA256_FIXED, point),
            Material::P384(point) => public(&signature::ECDSA_P384_SHA384_FIXED, point),
            Material::Ed25519(key) => public(&signature::ED25519, key),
        };
        verified.is_ok()
    }

    /// Computes the HMAC tag of a message. `None` if the key isn't a secret for this algorithm.
    pub(crate) fn tag(&self, algorithm: Algorithm, message: &[u8]) -> Option<hmac::Tag> {
        let key = self.prepared(algorithm).filter(|_| self.is_for(algorithm))?;
        Some(hmac::sign(key, message))
    }

    fn prepared(&self, algorithm: Algorithm) -> Option<&hmac::Key> {
        self.hmac.as_ref()?.get(algorithm)
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}
