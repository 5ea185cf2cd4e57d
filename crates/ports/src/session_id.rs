//! The public id of a session, for its client and for commands.
//!
//! An id is decoded, not looked up, so ids take no memory. It has 15 bytes, as 20 characters of base64url: a tag, which is a
//! keyed hash of core and session, then core and session, encrypted with a keystream that the tag selects (a synthetic IV, as in
//! RFC 5297). The key is the seed of the node. Without the key, an id reveals nothing about the node and can't be forged (48
//! bits).
//!
//! An id is not a secret: it doesn't allow a client to act as the session. (The `sid` of Engine.IO is a secret, because requests
//! of polling clients carry nothing else.)

use crate::sid::write_id;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use stentor_hub::{CoreId, SessionId};

const ID_BYTES: usize = 15;
const ID_CHARS: usize = 20;
const TAG_BYTES: usize = 6;
const PAYLOAD_BYTES: usize = ID_BYTES - TAG_BYTES;

/// The public id of a session: `session` in `stentor.v1`'s `welcome`, `socket.id` in Socket.IO (protocol 5), the spark's id in
/// Primus. Clients of Engine.IO 3 use the `sid` of Engine.IO instead; commands accept it, and it is parsed as a `PublicId` as
/// well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicId([u8; ID_BYTES]);

impl PublicId {
    /// Parses an id. A namespace before it, as in the socket ids of Socket.IO protocol 4 (`/chat#ID`), is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text.rsplit_once('#').map_or(text, |(_namespace, id)| id);
        // The decoder needs space for a whole number of groups.
        let mut bytes = [0; ID_BYTES + 3];
        (id.len() == ID_CHARS).then_some(())?;
        let len = URL_SAFE_NO_PAD.decode_slice(id, &mut bytes).ok()?;
        bytes[..len].try_into().ok().map(Self)
    }

    /// The id of a session of `core`.
    pub fn of(seed: [u64; 2], core: CoreId, session: SessionId) -> Self {
        let mut payload = [0; PAYLOAD_BYTES];
        // `CORES_MAX` is 256.
        payload[0] = core as u8;
        payload[1..].copy_from_slice(&session.to_bits().to_le_bytes());
        let tag = tag_of(seed, payload);
        let mut bytes = [0; ID_BYTES];
        bytes[..TAG_BYTES].copy_from_slice(&tag);
        bytes[TAG_BYTES..].copy_from_slice(&encrypt(seed, tag, payload));
        Self(bytes)
    }

    /// The session that the id names, and its core. `None` if the id is not from this node. The session may have ended.
    pub fn decode(self, seed: [u64; 2]) -> Option<(CoreId, SessionId)> {
        let tag = *self.0.first_chunk()?;
        let payload = encrypt(seed, tag, *self.0.last_chunk()?);
        let is_ours = tag_of(seed, payload) == tag;
        let session = SessionId::from_bits(u64::from_le_bytes(*payload.last_chunk()?));
        is_ours.then_some((usize::from(payload[0]), session))
    }

    /// The id with these bytes, of a session of any node.
    pub fn of_bytes(bytes: [u8; ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, like those of the `sid` of an Engine.IO client.
    pub fn bytes(self) -> [u8; ID_BYTES] {
        self.0
    }
}

impl fmt::Display for PublicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, &self.0)
    }
}

/// The purpose of a keyed hash. The same input has a different hash for each purpose.
#[derive(Clone, Copy)]
enum Purpose {
    Tag,
    /// One of the two blocks of the keystream.
    Keystream(u64),
}

fn keyed_hash(seed: [u64; 2], purpose: Purpose, bytes: &[u8]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    let purpose = match purpose {
        Purpose::Tag => 0,
        Purpose::Keystream(block) => 1 + block,
    };
    for word in [seed[0], seed[1], purpose] {
        hasher.write_u64(word);
    }
    hasher.write(bytes);
    hasher.finish().to_le_bytes()
}

fn tag_of(seed: [u64; 2], payload: [u8; PAYLOAD_BYTES]) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&keyed_hash(seed, Purpose::Tag, &payload)[..TAG_BYTES]);
    tag
}

/// Encrypts a payload, or decrypts it.
fn encrypt(seed: [u64; 2], tag: [u8; TAG_BYTES], mut payload: [u8; PAYLOAD_BYTES]) -> [u8; PAYLOAD_BYTES] {
    let keystream = [0, 1].map(|block| keyed_hash(seed, Purpose::Keystream(block), &tag));
    for (byte, key) in payload.iter_mut().zip(keystream.as_flattened()) {
        *byte ^= key;
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use stentor_hub::CORES_MAX;

    const SEED: [u64; 2] = [0x0123_4567_89ab_cdef, 42];

    #[test]
    fn an_id_names_its_core_and_session() {
        let sessions = [0, 1, 1 << 32, u64::from(u32::MAX), u64::MAX];
        let mut seen = HashSet::new();
        for core in [0, 1, CORES_MAX - 1] {
            for session in sessions.map(SessionId::from_bits) {
                let id = PublicId::of(SEED, core, session);
                let text = id.to_string();
                assert_eq!(text.len(), ID_CHARS);
                assert_eq!(PublicId::parse(&text), Some(id));
                assert_eq!(PublicId::parse(&format!("/chat#{text}")), Some(id));
                assert_eq!(id.decode(SEED), Some((core, session)));
                assert_eq!(id.decode([SEED[0], SEED[1] + 1]), None, "of another node");
                seen.insert(text);
            }
        }
        assert_eq!(seen.len(), 3 * sessions.len());
        for bad in [
            "",
            "aaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaa=",
            "/chat#",
            "éééééééééé",
        ] {
            assert_eq!(PublicId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_id_with_any_bit_changed_names_nothing() {
        let id = PublicId::of(SEED, 3, SessionId::from_bits(77));
        for bit in 0..ID_BYTES * 8 {
            let mut changed = id;
            changed.0[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(changed.decode(SEED), None, "bit {bit}");
        }
    }

    // Sessions are numbered from 0 on, which ids must not reveal. Each bit must be set in about half of 4,000 ids. The test
    // tolerates 10 standard deviations of 32 ids each, which random ids never exceed.
    #[test]
    fn ids_of_neighbors_look_random() {
        let ids: Vec<PublicId> = (0..4_000).map(|n| PublicId::of(SEED, 0, SessionId::from_bits(n))).collect();
        for bit in 0..ID_BYTES * 8 {
            let ones = ids.iter().filter(|id| id.0[bit / 8] >> (bit % 8) & 1 == 1).count();
            assert!((1_680..2_320).contains(&ones), "bit {bit}: {ones}");
        }
    }
}
