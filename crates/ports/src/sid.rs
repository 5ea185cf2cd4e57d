//! Ids of clients, which are also their secrets.

use crate::NodeTag;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use stentor_hub::CoreId;

/// The alphabet of base64url (RFC 4648 section 5).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Writes an id of 15 bytes as 20 characters of base64url. A general encoder takes four times as many instructions for so few
/// bytes, and each new client receives several ids.
pub(crate) fn write_id(f: &mut fmt::Formatter<'_>, bytes: &[u8; Sid::BYTES]) -> fmt::Result {
    let mut text = [0; 20];
    for (characters, group) in text.as_chunks_mut::<4>().0.iter_mut().zip(bytes.as_chunks::<3>().0) {
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        *characters = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift) as usize % ALPHABET.len()]);
    }
    f.write_str(std::str::from_utf8(&text).unwrap_or_default())
}

/// The id of a client, which is also its secret. Ids of Engine.IO clients are drawn from the system's random source and sent as
/// 20 characters. Ids of SockJS clients are digests, under a secret seed, of the names that the clients chose. The first byte
/// modulo the number of cores is the core that owns the client. In a cluster, the next four bytes of a drawn id are the tag of
/// its node, and 80 random bits are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid([u8; Sid::BYTES]);

impl Sid {
    /// Length of an id in bytes, the same as in the `engine.io` package.
    pub const BYTES: usize = 15;

    /// The id with these bytes.
    pub fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Reads an id as a client sent it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::BYTES + 3];
        // 20 characters are 15 bytes. An id of another length isn't from Stentor.
        (text.len() == 20).then_some(())?;
        let len = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        bytes[..len].try_into().ok().map(Self)
    }

    /// Makes the id from two halves of the digest of a name that a client chose.
    pub fn digest(halves: [u64; 2]) -> Self {
        let [low, high] = halves.map(u64::to_le_bytes);
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high[..Self::BYTES - 8]);
        Self(bytes)
    }

    /// The node that drew the id, if the node was in a cluster.
    pub fn node(self) -> NodeTag {
        let [_, a, b, c, d, ..] = self.0;
        NodeTag(u32::from_le_bytes([a, b, c, d]))
    }

    /// The core that owns the client.
    pub fn core(self, cores: usize) -> CoreId {
        usize::from(self.0[0]) % cores
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, &self.0)
    }
}
