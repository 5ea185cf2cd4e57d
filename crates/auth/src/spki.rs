//! Public keys in PEM: a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7), as `openssl pkey -pubout` writes it.

use crate::material::{KeyError, Material};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_ID: u8 = 0x06;

// Object identifiers of RFC 3279, RFC 5480 and RFC 8410.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Returns the bytes of the first PEM block with this label, such as `PUBLIC KEY`.
pub(crate) fn pem(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(body).ok()
}

/// Reads a public key.
///
/// # Errors
/// The text isn't the PEM of a supported public key.
pub(crate) fn public_key(text: &str) -> Result<Material, KeyError> {
    if text.contains("PRIVATE KEY-----") {
        return Err(KeyError::Private);
    }
    let der = pem(text, "PUBLIC KEY").ok_or(KeyError::NotPem)?;
    parse(&der).ok_or(KeyError::Unsupported)
}

fn parse(der: &[u8]) -> Option<Material> {
    let (info, rest) = element(der, SEQUENCE)?;
    let (algorithm, key) = element(info, SEQUENCE)?;
    let (id, parameters) = element(algorithm, OBJECT_ID)?;
    let (bits, after) = element(key, BIT_STRING)?;
    // The first byte of a bit string is the number of unused bits, which must be 0.
    let key = bits.strip_prefix(&[0])?;
    if !rest.is_empty() || !after.is_empty() {
        return None;
    }
    match id {
        RSA => {
            let (numbers, _) = element(key, SEQUENCE)?;
            let (n, rest) = element(numbers, INTEGER)?;
            let (e, _) = element(rest, INTEGER)?;
            Material::rsa(n, e)
        }
        EC => match element(parameters, OBJECT_ID)?.0 {
            P256 => Material::p256(key),
            P384 => Material::p384(key),
            _ => None,
        },
        ED25519 => Material::ed25519(key),
        _ => None,
    }
}

/// Reads a DER element with this tag. Returns the element's content, and the bytes after the element. Lengths
/// have at most three bytes.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x0f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    if *first == tag { rest.split_at_checked(length) } else { None }
}
