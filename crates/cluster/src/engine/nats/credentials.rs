//! Files with a user's credentials, as `nsc` writes them: a JWT, which the server receives, and the seed of an Ed25519
//! key, which signs. <https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt>

use crate::engine::common::crc16;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::Ed25519KeyPair;
use std::path::Path;

/// Length of an encoded seed: two bytes for its kind, 32 bytes of the seed, and two bytes of a checksum.
const SEED_BYTES: usize = 36;

/// A user's token, and the key that proves it.
pub(super) struct Credentials {
    pub(super) jwt: String,
    key: Ed25519KeyPair,
}

impl Credentials {
    /// # Errors
    /// The file can't be read, or has no credentials, for people.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::parse(&text).ok_or_else(|| {
            format!("{}: no NATS credentials: expected a user's JWT and the seed of an nkey", file.display())
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let jwt = block(text, "NATS USER JWT")?.to_string();
        let seed = base32(block(text, "USER NKEY SEED")?)?;
        let (content, checksum) = seed.split_at_checked(SEED_BYTES - 2)?;
        if checksum != crc16(content).to_le_bytes() {
            return None;
        }
        let key = Ed25519KeyPair::from_seed_unchecked(content.get(2..)?).ok()?;
        Some(Self { jwt, key })
    }

    /// Signs the server's nonce.
    pub(super) fn sign(&self, nonce: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.key.sign(nonce.as_bytes()))
    }
}

/// The text between `-----BEGIN NAME-----` and the next line of dashes.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("BEGIN {name}"))?;
    rest.lines().skip(1).map(str::trim).find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'))
}

/// Decodes Base32 (RFC 4648) without padding.
fn base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut buffer, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return None,
        };
        buffer = (buffer << 5) | u32::from(value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
            buffer &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}
