//! The public id of a session, for its client and for commands.
//!
//! An id is decoded, not looked up, so ids take no memory. It has 15 bytes, as 20 characters of base64url: a block of 10 bytes and
//! a tag of 5.
//!
//! The block is core and session, encrypted with the seed of the node: a Feistel network of four rounds (Luby and Rackoff) permutes
//! the numbers of 80 bits. Without the seed, a block reveals nothing about the node and can't be guessed.
//!
//! The tag is a checksum of the block. By the tag, every node recognizes the ids of all sessions, including those of nodes that it
//! has never known, and refuses clients a room with such a name. The checksum has no key, because a forged id names no session, and
//! no client can use it as a room. A random name of 20 characters has a valid tag with a probability of 2^-40.
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
const BLOCK_BYTES: usize = 10;
const TAG_BYTES: usize = ID_BYTES - BLOCK_BYTES;

/// Number of bits of one of the two halves of a block.
const HALF_BITS: u32 = 40;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
/// Number of rounds after which the output of a Feistel network looks random (Luby and Rackoff).
const ROUNDS: u64 = 4;

/// Sessions of one core have numbers below this one: no core holds 16 million sessions. The check refuses 255 of 256 ids of other
/// nodes.
const INDEX_END: u32 = 1 << 24;

/// The key of the ids of one node's sessions.
#[derive(Clone, Copy)]
pub struct IdKey {
    /// The seed of the permutation.
    pub seed: [u64; 2],
    /// Number of cores. Ids of other cores aren't the node's.
    pub cores: usize,
}

/// The public id of a session: `session` in `stentor.v1`'s `welcome`, `socket.id` in Socket.IO (protocol 5), the spark's id in
/// Primus. Clients of Engine.IO 3 use the `sid` of Engine.IO instead; commands accept it, and it is parsed as a `PublicId` as
/// well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicId([u8; ID_BYTES]);

impl PublicId {
    /// Parses an id, or a `sid`. A namespace before it, as in the socket ids of Socket.IO protocol 4 (`/chat#ID`), is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text.rsplit_once('#').map_or(text, |(_namespace, id)| id);
        // The decoder needs space for a whole number of groups.
        let mut bytes = [0; ID_BYTES + 3];
        (id.len() == ID_CHARS).then_some(())?;
        let len = URL_SAFE_NO_PAD.decode_slice(id, &mut bytes).ok()?;
        bytes[..len].try_into().ok().map(Self)
    }

    /// Parses an id that a node has given to a session. `None` for a `sid`, and for names of rooms. The session may have ended, and
    /// the node may have left.
    pub fn parse_issued(text: &str) -> Option<Self> {
        Self::parse(text).filter(|id| id.is_issued())
    }

    /// The id of a session of `core`.
    pub fn of(key: IdKey, core: CoreId, session: SessionId) -> Self {
        let number = (core as u128) << u64::BITS | u128::from(session.to_bits());
        let halves = encrypt(key.seed, [(number >> HALF_BITS) as u64 & HALF_MASK, number as u64 & HALF_MASK]);
        let mut bytes = [0; ID_BYTES];
        for (part, half) in bytes.chunks_exact_mut(TAG_BYTES).zip(halves) {
            part.copy_from_slice(&low_bytes(half));
        }
        let tag = Self(bytes).tag();
        bytes[BLOCK_BYTES..].copy_from_slice(&tag);
        Self(bytes)
    }

    /// Returns `true` if a node has given the id to a session: its tag is right.
    #[inline]
    pub fn is_issued(self) -> bool {
        self.0[BLOCK_BYTES..] == self.tag()
    }

    /// The session that the id names, and its core. `None` if the id is not from the node with this key. The session may have ended.
    ///
    /// An id of another node is decoded as well with a probability of `key.cores` in 2^24. It then names a session that the node
    /// doesn't have. So a decoded id doesn't prove that no other node has the session.
    pub fn decode(self, key: IdKey) -> Option<(CoreId, SessionId)> {
        self.is_issued().then_some(())?;
        let half = |at: usize| {
            self.0[at..at + TAG_BYTES].iter().rev().fold(0, |half, byte| half << 8 | u64::from(*byte))
        };
        let [high, low] = decrypt(key.seed, [half(0), half(TAG_BYTES)]);
        let number = u128::from(high) << HALF_BITS | u128::from(low);
        // At most 16 bits.
        let core = (number >> u64::BITS) as usize;
        (core < key.cores && (number as u32) < INDEX_END).then(|| (core, SessionId::from_bits(number as u64)))
    }

    /// The id with these bytes, of a session of any node.
    pub fn of_bytes(bytes: [u8; ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, like those of the `sid` of an Engine.IO client.
    pub fn bytes(self) -> [u8; ID_BYTES] {
        self.0
    }

    /// The checksum of the block: FNV-1a (Fowler, Noll, Vo), folded to 40 bits. All versions of Stentor compute it alike.
    fn tag(self) -> [u8; TAG_BYTES] {
        let block = &self.0[..BLOCK_BYTES];
        let hash = block.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        low_bytes(hash ^ hash >> HALF_BITS)
    }
}

impl fmt::Display for PublicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, &self.0)
    }
}

/// The lowest 40 bits.
fn low_bytes(bits: u64) -> [u8; TAG_BYTES] {
    let [a, b, c, d, e, ..] = bits.to_le_bytes();
    [a, b, c, d, e]
}

/// The round function: a keyed hash of a half, another one for each round.
fn mix(seed: [u64; 2], round: u64, half: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    for word in [seed[0], seed[1], round << HALF_BITS | half] {
        hasher.write_u64(word);
    }
    hasher.finish() & HALF_MASK
}

fn encrypt(seed: [u64; 2], [mut left, mut right]: [u64; 2]) -> [u64; 2] {
    for round in 0..ROUNDS {
        (left, right) = (right, left ^ mix(seed, round, right));
    }
    [left, right]
}

fn decrypt(seed: [u64; 2], [mut left, mut right]: [u64; 2]) -> [u64; 2] {
    for round in (0..ROUNDS).rev() {
        (left, right) = (right ^ mix(seed, round, left), left);
    }
    [left, right]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use stentor_hub::CORES_MAX;

    const KEY: IdKey = IdKey { seed: [0x0123_4567_89ab_cdef, 42], cores: CORES_MAX };

    fn id(core: CoreId, session: u64) -> PublicId {
        PublicId::of(KEY, core, SessionId::from_bits(session))
    }

    #[test]
    fn an_id_names_its_core_and_session() {
        let last = u64::from(u32::MAX) << 32 | u64::from(INDEX_END - 1);
        let sessions = [0, 1, 1 << 32, u64::from(INDEX_END - 1), last];
        let mut seen = HashSet::new();
        for core in [0, 1, CORES_MAX - 1] {
            for session in sessions {
                let id = id(core, session);
                let text = id.to_string();
                assert_eq!(text.len(), ID_CHARS);
                for text in [text.clone(), format!("/chat#{text}")] {
                    assert_eq!((PublicId::parse(&text), PublicId::parse_issued(&text)), (Some(id), Some(id)));
                }
                assert_eq!(id.decode(KEY), Some((core, SessionId::from_bits(session))));
                let fewer = IdKey { cores: core, ..KEY };
                assert_eq!(id.decode(fewer), None, "of a core that the node doesn't have");
                seen.insert(text);
            }
        }
        assert_eq!(seen.len(), 3 * sessions.len());
        assert_eq!(id(0, u64::from(INDEX_END)).decode(KEY), None);
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

    // The expected text is the reason for a rule: a node recognizes ids of all versions.
    #[test]
    fn the_tag_is_the_same_in_all_versions() {
        let mut bytes = [0; ID_BYTES];
        bytes[..BLOCK_BYTES].copy_from_slice(b"0123456789");
        let tag = PublicId(bytes).tag();
        bytes[BLOCK_BYTES..].copy_from_slice(&tag);
        assert_eq!(PublicId(bytes).to_string(), "MDEyMzQ1Njc4ORjwE4v9");
    }

    #[test]
    fn all_nodes_recognize_an_id_and_only_its_node_decodes_it() {
        let foreign = IdKey { seed: [KEY.seed[0], KEY.seed[1] + 1], cores: 4 };
        for session in 0..2_000 {
            let id = id(3, session);
            assert!(id.is_issued());
            assert_eq!(id.decode(foreign), None, "session {session}");
        }
        for name in
            ["AAAAAAAAAAAAAAAAAAAA", "aaaaaaaaaaaaaaaaaaaa", "chat-room-0000000001", "____________________"]
        {
            assert!(PublicId::parse(name).is_some() && PublicId::parse_issued(name).is_none(), "{name}");
        }
    }

    #[test]
    fn blocks_are_permuted() {
        let mut seen = HashSet::new();
        for left in 0..100 {
            for right in 0..100 {
                let block = [left << 33, right];
                let encrypted = encrypt(KEY.seed, block);
                assert!(encrypted.iter().all(|half| half & !HALF_MASK == 0));
                assert_eq!(decrypt(KEY.seed, encrypted), block);
                seen.insert(encrypted);
            }
        }
        assert_eq!(seen.len(), 10_000);
    }

    #[test]
    fn an_id_with_any_bit_changed_names_nothing() {
        let id = id(3, 77);
        for bit in 0..ID_BYTES * 8 {
            let mut changed = id;
            changed.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!changed.is_issued() && changed.decode(KEY).is_none(), "bit {bit}");
        }
    }

    // Sessions are numbered from 0 on, which ids must not reveal. Each bit must be set in about half of 4,000 ids. The test
    // tolerates 10 standard deviations of 32 ids each, which random ids never exceed.
    #[test]
    fn ids_of_neighbors_look_random() {
        let ids: Vec<PublicId> = (0..4_000).map(|n| id(0, n)).collect();
        for bit in 0..ID_BYTES * 8 {
            let ones = ids.iter().filter(|id| id.0[bit / 8] >> (bit % 8) & 1 == 1).count();
            assert!((1_680..2_320).contains(&ones), "bit {bit}: {ones}");
        }
    }
}
