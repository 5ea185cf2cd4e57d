//! Clients that outlive their connections: sessions of Engine.IO and SockJS, named by an id that only they know.
//!
//! A client is owned by one core, which its id names, so that a request that arrives elsewhere is handed over with its
//! connection. What it is told waits in `queue` while no connection is there to carry it; what its topics owe it
//! waits in the hub, as for everybody. What is the same for all of them is in [`super::carry`], what differs in
//! [`super::engine`] and [`super::sockjs`].
//!
//! A client may move to the core that keeps what it lost ([`super::engine::moving`]); the core that its id names then
//! knows where it is.
//!
//! **Invariants.** A client in the table has a timer from its beginning to its end. `carrier` names a connection that
//! names the client. `queue` holds packets only while there is no WebSocket to carry them. One that has `ended` has no
//! session any more, and is kept for as long as it may have to be told.

use super::CLIENT_TAG;
use super::engine::Engine;
use super::socketio::SocketIo;
use super::sockjs::SockJs;
use crate::app::Envelope;
use crate::ledger::Holding;
use crate::millis::Millis;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU32;
use stentor_driver::{ConnId, TimerId};
use stentor_hub::{CoreId, Disconnect, SessionId};

/// Random bytes of an id. Engine.IO's own ids have as many.
const SID_BYTES: usize = 15;

/// The id of a client, which is also its secret. Engine.IO's are drawn from the system's random source, and travel as 20
/// characters; those of SockJS are digests, under a seed that nobody knows, of what their clients chose. The first byte
/// modulo the number of cores is the core that owns the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sid([u8; SID_BYTES]);

impl Sid {
    /// Reads an id as a client sent it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; SID_BYTES + 3];
        // 20 characters are 15 bytes; any other length isn't ours.
        (text.len() == 20).then_some(())?;
        let len = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        bytes[..len].try_into().ok().map(Self)
    }

    /// The digest of a name that a client chose, in two halves.
    pub(super) fn digest(halves: [u64; 2]) -> Self {
        let [low, high] = halves.map(u64::to_le_bytes);
        let mut bytes = [0; SID_BYTES];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high[..SID_BYTES - 8]);
        Self(bytes)
    }

    /// The core that owns the client.
    pub(super) fn core(self, cores: usize) -> CoreId {
        usize::from(self.0[0]) % cores
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// Draws ids. The system is asked for many at once.
#[derive(Default)]
pub(super) struct Sids {
    drawn: Vec<u8>,
}

impl Sids {
    /// An id that names `core`, one of `cores`.
    pub(super) fn draw(&mut self, core: CoreId, cores: usize) -> Sid {
        let mut bytes = [0; SID_BYTES];
        if self.drawn.len() < SID_BYTES {
            self.drawn.resize(256 * SID_BYTES, 0);
            // Without random bytes ids could be guessed: better no server than that.
            #[expect(clippy::expect_used, reason = "the system's random source has worked at the start")]
            getrandom::fill(&mut self.drawn).expect("the system has random bytes");
        }
        let rest = self.drawn.len() - SID_BYTES;
        bytes.copy_from_slice(&self.drawn[rest..]);
        self.drawn.truncate(rest);
        // The largest multiple of `cores` not above the drawn byte, plus the core: as random as the owner lets it be.
        let base = usize::from(bytes[0]) / cores * cores;
        let named = if base + core > 255 { base + core - cores } else { base + core };
        bytes[0] = named as u8;
        Sid(bytes)
    }
}

/// Names a client of this core, also one that has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientId {
    index: u32,
    /// Below 2²⁹.
    serial: NonZeroU32,
}

impl ClientId {
    /// A number for timers and tags, below 2⁶¹.
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.serial.get()) << 32 | u64::from(self.index)
    }
}

/// What carries a client's packets to it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Nothing: a poll is awaited.
    None,
    /// One answer to a request that waits.
    Poll(ConnId),
    /// An answer that goes on.
    Stream(ConnId),
    /// A WebSocket.
    Socket(ConnId),
}

impl Carrier {
    /// The connection, if there is one.
    pub(super) fn conn(self) -> Option<ConnId> {
        match self {
            Self::None => None,
            Self::Poll(carrier) | Self::Stream(carrier) | Self::Socket(carrier) => Some(carrier),
        }
    }

    /// Whether the carrier is this connection.
    pub(super) fn is(self, conn: ConnId) -> bool {
        self.conn() == Some(conn)
    }
}

/// How a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has gone: nobody is there to be told.
    Gone,
    /// It has said so.
    Closed,
    /// It is back by another connection, and claims the socket of this `pid`.
    TakenOver(Sid),
    /// It has broken the protocol below messages.
    Fault,
    /// For a reason of ours.
    Because(Disconnect),
}

impl End {
    /// Whether the client should reconnect by itself.
    pub(super) fn may_reconnect(self) -> bool {
        matches!(self, Self::Because(why) if why.reconnect())
    }
}

/// What of a client is its protocol's own.
pub(super) enum Protocol {
    Engine(Engine),
    SockJs(SockJs),
}

/// What a client's messages mean.
pub(super) enum Upper {
    /// Nothing yet, or nothing any more.
    None,
    /// The application's.
    Plain {
        session: SessionId,
        envelope: Envelope,
    },
    SocketIo(Box<SocketIo>),
}

/// One client.
pub(super) struct Client {
    pub(super) sid: Sid,
    pub(super) protocol: Protocol,
    pub(super) carrier: Carrier,
    pub(super) upper: Upper,
    /// What waits to be carried, as records (see [`crate::encode`]): packets of Engine.IO, messages of SockJS.
    pub(super) queue: Vec<u8>,
    /// A number for the address of its first connection.
    pub(super) source: u64,
    /// When something was last received of it.
    pub(super) alive_at: Millis,
    /// When the next heartbeat, the answer to the last one, or the next request is due.
    pub(super) due_at: Millis,
    /// It has ended, but for the next request, which is told so.
    pub(super) ended: bool,
    /// The client has ended and may reconnect at once.
    pub(super) may_reconnect: bool,
    pub(super) timer: Option<TimerId>,
    pub(super) timer_at: Millis,
    /// Memory held besides this struct.
    pub(super) holding: Holding,
}

impl Upper {
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        let (plain, sockets) = match self {
            Self::None => (None, [].as_slice()),
            Self::Plain { session, .. } => (Some(*session), [].as_slice()),
            Self::SocketIo(io) => (None, io.sockets.as_slice()),
        };
        plain.into_iter().chain(sockets.iter().map(|socket| socket.session))
    }
}

impl Client {
    /// One that has just come.
    pub(super) fn new(sid: Sid, protocol: Protocol, carrier: Carrier, now: Millis, due_at: Millis) -> Self {
        Self {
            sid,
            protocol,
            carrier,
            upper: Upper::None,
            queue: Vec::new(),
            source: 0,
            alive_at: now,
            due_at,
            ended: false,
            may_reconnect: false,
            timer: None,
            timer_at: now,
            holding: Holding::default(),
        }
    }

    pub(super) fn engine(&self) -> Option<&Engine> {
        match &self.protocol {
            Protocol::Engine(engine) => Some(engine),
            Protocol::SockJs(_) => None,
        }
    }

    pub(super) fn engine_mut(&mut self) -> Option<&mut Engine> {
        match &mut self.protocol {
            Protocol::Engine(engine) => Some(engine),
            Protocol::SockJs(_) => None,
        }
    }

    pub(super) fn sockjs(&self) -> Option<&SockJs> {
        match &self.protocol {
            Protocol::SockJs(sockjs) => Some(sockjs),
            Protocol::Engine(_) => None,
        }
    }

    pub(super) fn sockjs_mut(&mut self) -> Option<&mut SockJs> {
        match &mut self.protocol {
            Protocol::SockJs(sockjs) => Some(sockjs),
            Protocol::Engine(_) => None,
        }
    }

    /// The hub's sessions of this client.
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.upper.sessions()
    }
}

/// Ids are random already, or digests under a seed: nobody can choose one that is in the table.
#[derive(Default)]
pub(super) struct SidHasher(u64);

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

/// The clients of a core.
#[derive(Default)]
pub(crate) struct Clients {
    slots: slab::Slab<(NonZeroU32, Client)>,
    by_sid: HashMap<Sid, ClientId, BuildHasherDefault<SidHasher>>,
    serial: u32,
    sockjs: usize,
}

impl Clients {
    pub(super) fn insert(&mut self, client: Client) -> ClientId {
        self.sockjs += usize::from(client.sockjs().is_some());
        self.serial = self.serial.wrapping_add(1) & 0x1fff_ffff;
        let serial = NonZeroU32::new(self.serial).unwrap_or(NonZeroU32::MIN);
        let sid = client.sid;
        let index = self.slots.insert((serial, client)) as u32;
        let id = ClientId { index, serial };
        self.by_sid.insert(sid, id);
        id
    }

    pub(super) fn find(&self, sid: Sid) -> Option<ClientId> {
        self.by_sid.get(&sid).copied()
    }

    pub(super) fn get(&self, id: ClientId) -> Option<&Client> {
        self.slots.get(id.index as usize).filter(|(serial, _)| *serial == id.serial).map(|(_, client)| client)
    }

    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.slots
            .get_mut(id.index as usize)
            .filter(|(serial, _)| *serial == id.serial)
            .map(|(_, client)| client)
    }

    /// The client of a number of [`ClientId::to_bits`].
    pub(super) fn of_bits(&self, bits: u64) -> Option<ClientId> {
        let serial = NonZeroU32::new((bits >> 32) as u32 & 0x1fff_ffff)?;
        let id = ClientId { index: bits as u32, serial };
        self.get(id).map(|_| id)
    }

    /// The client that a hub's tag names.
    pub(super) fn of_tag(&self, tag: u64) -> Option<&Client> {
        (tag & CLIENT_TAG != 0).then(|| self.of_bits(tag & !CLIENT_TAG)).flatten().and_then(|id| self.get(id))
    }

    pub(super) fn remove(&mut self, id: ClientId) -> Option<Client> {
        self.get(id)?;
        let (_, client) = self.slots.try_remove(id.index as usize)?;
        self.by_sid.remove(&client.sid);
        self.sockjs -= usize::from(client.sockjs().is_some());
        Some(client)
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The size of all clients, each counted as a Socket.IO client.
    pub(super) fn bytes(&self) -> usize {
        let slot = size_of::<(NonZeroU32, Client)>() + size_of::<SocketIo>();
        self.slots.capacity() * slot + self.by_sid.capacity() * size_of::<(Sid, ClientId)>()
    }

    /// Those of SockJS among them.
    pub(crate) fn count_of_sockjs(&self) -> usize {
        self.sockjs
    }

    pub(super) fn ids(&self) -> Vec<ClientId> {
        self.slots
            .iter()
            .map(|(index, (serial, _))| ClientId { index: index as u32, serial: *serial })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_core_and_survives_the_wire() {
        let mut sids = Sids::default();
        for cores in [1, 2, 3, 7, 100, 256] {
            for n in 0..2_000 {
                let core = n % cores;
                let sid = sids.draw(core, cores);
                assert_eq!(sid.core(cores), core);
                let text = sid.to_string();
                assert_eq!(text.len(), 20);
                assert_eq!(Sid::parse(&text), Some(sid));
            }
        }
        for bad in ["", "__proto__", "constructor", "aaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaa=", "ää"] {
            assert_eq!(Sid::parse(bad), None, "{bad}");
        }
    }

    // CVE-2017-16031: ids that can be predicted. Each bit of the 14 free bytes is set in about half of the ids; 4,000
    // ids put the standard deviation at 32, so that 10 of them never happen by chance.
    #[test]
    fn ids_look_random() {
        let mut sids = Sids::default();
        let ids: Vec<Sid> = (0..4_000).map(|_| sids.draw(0, 1)).collect();
        for bit in 0..SID_BYTES * 8 {
            let ones = ids.iter().filter(|sid| sid.0[bit / 8] >> (bit % 8) & 1 == 1).count();
            assert!((1_680..2_320).contains(&ones), "bit {bit}: {ones}");
        }
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}
