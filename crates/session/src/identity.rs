//! Identifiers of client sessions: the ids that clients know, handles within this core, and the tags by which the hub names the
//! owner of a session.

use crate::system::System;
use std::hash::Hasher;
use std::num::NonZeroU32;
use stentor_hub::{CoreId, Disconnect};
use stentor_ports::NodeTag;
pub use stentor_ports::Sid;

/// The hub's tag of a session that belongs to a client, not to a connection.
const CLIENT_TAG: u64 = 1 << 63;
/// The hub's tag of a session that can be recovered.
const SOCKET_TAG: u64 = 1 << 62;

/// Number of random bytes that are requested from the system at once.
const DRAWN_BYTES: usize = 256 * Sid::BYTES;

/// Maximum number of prefixes with applications of their own.
pub const PREFIXES_MAX: usize = 64;

/// The prefix or the protocol of [`Options::protocols`](crate::options::Options::protocols) by which a
/// client connected, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Service(u8);

impl Service {
    /// The service with this index among the prefixes, which is below [`PREFIXES_MAX`].
    pub(crate) fn of(place: usize) -> Self {
        Self(place as u8 + 1)
    }

    /// The service with this index among the custom protocols.
    pub(crate) fn of_custom(place: usize) -> Self {
        Self::of(PREFIXES_MAX + place)
    }

    /// The index in a list of [`PREFIXES_MAX`] prefixes, followed by the custom protocols. `None` for the node itself.
    pub(crate) fn place(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    /// The index among the custom protocols. `None` for a prefix or the node itself.
    pub(crate) fn custom(self) -> Option<usize> {
        self.place()?.checked_sub(PREFIXES_MAX)
    }
}

/// Draws ids and other random numbers. Random bytes are requested from the system for many ids at once.
pub(crate) struct Sids {
    drawn: Vec<u8>,
    fill_random: fn(&mut [u8]),
}

impl Sids {
    pub(crate) fn new(System { fill_random, .. }: System) -> Self {
        Self { drawn: Vec::new(), fill_random }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        if self.drawn.len() < N {
            self.drawn.resize(DRAWN_BYTES, 0);
            (self.fill_random)(&mut self.drawn);
        }
        let mut bytes = [0; N];
        let rest = self.drawn.len() - N;
        bytes.copy_from_slice(&self.drawn[rest..]);
        self.drawn.truncate(rest);
        bytes
    }

    /// Draws a random number, for clients without a random source.
    pub(crate) fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    /// Draws an id that names `core`, one of `cores`, and the node, if the node is in a cluster.
    pub(crate) fn draw(&mut self, core: CoreId, cores: usize, node: Option<NodeTag>) -> Sid {
        let mut bytes: [u8; Sid::BYTES] = self.bytes();
        // The first byte becomes the largest multiple of `cores` that isn't above it, plus the core's number.
        let base = usize::from(bytes[0]) / cores * cores;
        let named = if base + core > 255 { base + core - cores } else { base + core };
        bytes[0] = named as u8;
        if let Some(NodeTag(tag)) = node {
            bytes[1..5].copy_from_slice(&tag.to_le_bytes());
        }
        Sid::of_bytes(bytes)
    }
}

macro_rules! define_kinds {
    ($($kind:ident, $table:ident, $client:ty;)*) => {
        /// The protocol of a client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the variants are named after the protocols")]
        pub enum ClientKind {
            $($kind),*
        }

        impl ClientKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];
        }
    };
}

client_kinds!(define_kinds);

/// A handle for a client of this core. The client may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    index: u32,
    /// A serial number of 26 bits, two bits for the protocol, and a bit that is always set, so that an `Option` takes no
    /// more space.
    bits: NonZeroU32,
}

const SERIAL_BITS: u32 = 26;
const _: () = assert!(ClientKind::ALL.len() <= 4);

impl ClientId {
    /// The handle of no client.
    pub(crate) const NONE: Self = Self { index: u32::MAX, bits: NonZeroU32::MIN };

    /// Makes a handle. Only the low 26 bits of `serial` count.
    pub fn new(kind: ClientKind, index: usize, serial: u32) -> Self {
        let kind = (kind as u32) << SERIAL_BITS;
        let serial = serial & ((1 << SERIAL_BITS) - 1);
        Self { index: index as u32, bits: NonZeroU32::MIN | (serial | kind) << 1 }
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }

    #[inline]
    pub(crate) fn serial(self) -> u32 {
        self.bits.get() >> 1 & ((1 << SERIAL_BITS) - 1)
    }

    #[inline]
    pub(crate) fn kind(self) -> ClientKind {
        let kind = self.bits.get() >> (SERIAL_BITS + 1) & 3;
        ClientKind::ALL.get(kind as usize).copied().unwrap_or(ClientKind::ALL[0])
    }

    /// The handle for which [`Self::to_bits`] returned `bits`.
    #[inline]
    pub fn of_bits(bits: u64) -> Self {
        Self { index: bits as u32, bits: NonZeroU32::MIN | (bits >> 32) as u32 }
    }

    /// A number for timers and tags, below 2⁶¹.
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.bits.get()) << 32 | u64::from(self.index)
    }
}

/// The position of the service in the hub's tag of a session that belongs to a connection: above the index.
const SERVICE_SHIFT: u32 = 32;

/// The owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A connection, by its index, and the service through which its client connected.
    Connection(usize, Service),
    /// A client that outlives its connections.
    Client(ClientId),
    /// A Socket.IO socket that can be recovered, by its slot.
    Socket(usize),
}

impl Owner {
    /// The hub's tag for the owner.
    pub(crate) fn to_tag(self) -> u64 {
        match self {
            Self::Connection(index, Service(service)) => u64::from(service) << SERVICE_SHIFT | index as u64,
            Self::Client(id) => CLIENT_TAG | id.to_bits(),
            Self::Socket(slot) => SOCKET_TAG | slot as u64,
        }
    }

    /// The owner that a tag of the hub names.
    #[inline]
    pub(crate) fn of_tag(tag: u64) -> Self {
        if tag & CLIENT_TAG != 0 {
            Self::Client(ClientId::of_bits(tag ^ CLIENT_TAG))
        } else if tag & SOCKET_TAG != 0 {
            Self::Socket((tag ^ SOCKET_TAG) as usize)
        } else {
            Self::Connection(tag as u32 as usize, Service((tag >> SERVICE_SHIFT) as u8))
        }
    }

    pub(crate) fn client(self) -> Option<ClientId> {
        if let Self::Client(client) = self { Some(client) } else { None }
    }
}

/// The reason for the end of a client or of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has disconnected and can't be notified.
    Gone,
    /// The client has closed its session.
    Closed,
    /// The client has reconnected.
    TakenOver,
    /// The client has broken its protocol below the level of messages.
    Fault,
    /// The server ends the session for this reason.
    Because(Disconnect),
}

impl End {
    /// Returns `true` if the client should reconnect automatically.
    pub(crate) fn may_reconnect(self) -> bool {
        matches!(self, Self::Because(why) if why.reconnect())
    }

    /// The name in timelines. If the server ends the session, metrics have the same name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gone => "connection_lost",
            Self::Closed => "closed_by_client",
            Self::TakenOver => "reconnected",
            Self::Fault => Disconnect::ProtocolError.name(),
            Self::Because(why) => why.name(),
        }
    }
}

/// A hasher that uses a part of the id as its hash. Ids are random, or digests under a secret seed, so clients can't choose ids
/// that collide.
#[derive(Default)]
pub(crate) struct SidHasher(u64);

impl Hasher for SidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes.last_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*word);
        }
    }
}

#[cfg(test)]
mod tests;
