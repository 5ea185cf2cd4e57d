//! Key material.

use std::sync::Arc;

/// Reason why a text or JWK isn't a usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The secret is so short that it could be guessed, or too long.
    #[error(
        "a secret needs 32 to 1,024 bytes, as many as the hash of its algorithm (HS256: 32); `openssl rand -hex 32` makes one"
    )]
    SecretLength,
    /// The text isn't PEM, or is PEM with another label.
    #[error(
        "expected a public key in PEM (-----BEGIN PUBLIC KEY-----); `openssl pkey -pubout -in KEY` and \
             `openssl x509 -pubkey -noout -in CERTIFICATE` write one"
    )]
    NotPem,
    /// The text is a private key, which only the issuer should have.
    #[error(
        "this is a private key, which only the issuer needs; `openssl pkey -pubout -in KEY` writes the public key"
    )]
    Private,
    /// No supported algorithm uses keys of this kind.
    #[error("expected a key for RSA (2,048 to 8,192 bits), P-256, P-384 or Ed25519")]
    Unsupported,
}

/// The material of a key. Its kind determines the algorithms that the key verifies.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Material {
    Secret(Arc<[u8]>),
    Rsa { n: Arc<[u8]>, e: Arc<[u8]> },
    P256(Arc<[u8]>),
    P384(Arc<[u8]>),
    Ed25519(Arc<[u8]>),
}

impl Material {
    /// Makes an RSA key from a modulus and an exponent, big-endian.
    pub(crate) fn rsa(n: &[u8], e: &[u8]) -> Option<Self> {
        fn trim(number: &[u8]) -> &[u8] {
            let zeros = number.iter().take_while(|byte| **byte == 0).count();
            &number[zeros..]
        }
        let (n, e) = (trim(n), trim(e));
        ((256..=1024).contains(&n.len()) && (1..=8).contains(&e.len()))
            .then(|| Self::Rsa { n: n.into(), e: e.into() })
    }

    /// Makes a P-256 key from an uncompressed point (SEC 1, section 2.3.3).
    pub(crate) fn p256(point: &[u8]) -> Option<Self> {
        (point.len() == 65 && point[0] == 4).then(|| Self::P256(point.into()))
    }

    /// Makes a P-384 key from an uncompressed point.
    pub(crate) fn p384(point: &[u8]) -> Option<Self> {
        (point.len() == 97 && point[0] == 4).then(|| Self::P384(point.into()))
    }

    pub(crate) fn ed25519(key: &[u8]) -> Option<Self> {
        (key.len() == 32).then(|| Self::Ed25519(key.into()))
    }
}
