//! The table of Socket.IO sockets that can be recovered: the sockets of connected clients and of disconnected clients
//! (suspended sockets).

use crate::identity::{ClientId, End, Owner, Sid, SidHasher};
use crate::ledger::{Charge, Class, Ledger};
use crate::moved::MovedSockets;
use crate::ports::{MovingSocket, PublicId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{CoreId, Room, SessionId};

/// Approximate size of a socket's room, in bytes.
const ROOM_BYTES: usize = 64;

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The socket belongs to a client that counts as connected.
    Client(ClientId),
    /// The socket's client is disconnected, for the reason `why`.
    Suspended { until: Instant, why: End },
    /// The socket is moving here from another node.
    Expected,
}

impl Place {
    fn is_suspended(self) -> bool {
        matches!(self, Self::Suspended { .. })
    }
}

/// A socket that can be recovered.
pub struct RecoverableSocket {
    pub(crate) session: SessionId,
    /// The socket's secret.
    pub(crate) pid: Sid,
    /// A room of the socket's namespace, whatever its name. Messages to this socket alone name this room.
    pub room: Room,
    /// The public id that another node gave the socket. `None` if this node opened the session.
    id: Option<PublicId>,
    place: Place,
}

impl RecoverableSocket {
    /// The reason why the client is disconnected. `None` if the socket isn't suspended until this time.
    fn expires_at(&self, until: Instant, pid: Sid) -> Option<End> {
        match self.place {
            Place::Suspended { until: expiry, why } if self.pid == pid && expiry == until => Some(why),
            _ => None,
        }
    }
}

/// A socket that is moving to this core.
pub(crate) struct Arrival {
    pub(crate) slot: usize,
    pub(crate) session: SessionId,
    /// The socket with its missed messages. `None` until it arrives.
    pub(crate) socket: Option<MovingSocket>,
}

/// The sockets that are moving to a core, by the number of their question.
pub(crate) struct Arrivals {
    by_question: BTreeMap<u64, Arrival>,
    charge: Charge,
}

impl Arrivals {
    fn new(ledger: Arc<Ledger>) -> Self {
        Self { by_question: BTreeMap::new(), charge: Charge::new(ledger, Class::Decisions) }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.by_question.contains_key(&number)
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.by_question.keys().copied()
    }

    pub(crate) fn insert(&mut self, number: u64, slot: usize, session: SessionId) {
        self.by_question.insert(number, Arrival { slot, session, socket: None });
    }

    /// Stores a socket that has arrived. Returns `false` if it isn't expected.
    pub(crate) fn deliver(&mut self, number: u64, socket: MovingSocket) -> bool {
        let Some(arrival) = self.by_question.get_mut(&number) else { return false };
        self.charge.add(socket.bytes());
        arrival.socket = Some(socket);
        true
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Arrival> {
        let arrival = self.by_question.remove(&number)?;
        self.charge.subtract(arrival.socket.as_ref().map_or(0, MovingSocket::bytes));
        Some(arrival)
    }
}

/// The recoverable sockets of a core. The tags of their sessions name their slots.
pub struct RecoverableSockets {
    slots: slab::Slab<RecoverableSocket>,
    by_pid: HashMap<Sid, usize, BuildHasherDefault<SidHasher>>,
    /// Expiry times of suspended sockets, earliest first. Entries of sockets that were recovered are out of date.
    expiries: VecDeque<(Instant, usize, Sid)>,
    suspended: usize,
    core: CoreId,
    moved: Arc<MovedSockets>,
    pub(crate) arrivals: Arrivals,
}

impl RecoverableSockets {
    /// An empty table of `core`. Sockets that arrive from other nodes are added to `moved`.
    pub fn new(core: CoreId, moved: Arc<MovedSockets>, ledger: Arc<Ledger>) -> Self {
        Self {
            slots: slab::Slab::new(),
            by_pid: HashMap::default(),
            expiries: VecDeque::new(),
            suspended: 0,
            core,
            moved,
            arrivals: Arrivals::new(ledger),
        }
    }

    /// Returns `true` if no socket can be recovered.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The number of suspended sockets.
    pub fn suspended(&self) -> usize {
        self.suspended
    }

    /// The slots and sessions of suspended sockets. The iterator visits all sockets of the table.
    pub fn suspended_sockets(&self) -> impl Iterator<Item = (usize, SessionId)> {
        let suspended = self.slots.iter().filter(|(_, socket)| socket.place.is_suspended());
        suspended.map(|(slot, socket)| (slot, socket.session))
    }

    /// Approximate size of the table.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<RecoverableSocket>()
            + self.slots.len() * ROOM_BYTES
            + self.by_pid.capacity() * size_of::<(Sid, usize)>()
            + self.expiries.capacity() * size_of::<(Instant, usize, Sid)>()
    }

    /// A room of a socket's namespace.
    pub(crate) fn room_of(&self, slot: usize) -> Option<&Room> {
        self.slots.get(slot).map(|socket| &socket.room)
    }

    /// The client of a socket. `None` if the socket is suspended or hasn't arrived.
    pub(crate) fn client_of(&self, slot: usize) -> Option<ClientId> {
        match self.slots.get(slot)?.place {
            Place::Client(client) => Some(client),
            Place::Suspended { .. } | Place::Expected => None,
        }
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&RecoverableSocket> {
        self.slots.get(slot)
    }

    /// Returns `true` if a socket's client is disconnected.
    pub(crate) fn is_suspended(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|socket| socket.place.is_suspended())
    }

    /// Returns `true` if a socket still belongs to this client.
    pub(crate) fn is_of(&self, slot: usize, session: SessionId, client: ClientId) -> bool {
        self.slots
            .get(slot)
            .is_some_and(|socket| socket.session == session && socket.place == Place::Client(client))
    }

    pub(crate) fn insert(&mut self, session: SessionId, client: ClientId, room: Room, pid: Sid) -> usize {
        let socket = RecoverableSocket { session, pid, room, id: None, place: Place::Client(client) };
        let slot = self.slots.insert(socket);
        self.by_pid.insert(pid, slot);
        slot
    }

    /// Adds a socket that is moving here from another node. No client can recover the socket before [`Self::adopt`].
    pub fn expect(&mut self, session: SessionId, room: Room, pid: Sid, id: PublicId) -> usize {
        self.moved.expect(id, self.core, session);
        self.slots.insert(RecoverableSocket { session, pid, room, id: Some(id), place: Place::Expected })
    }

    /// Gives a socket that has arrived from another node to its client.
    pub fn adopt(&mut self, slot: usize, client: ClientId) {
        if let Some(socket) = self.slots.get_mut(slot) {
            if let Some(id) = socket.id {
                self.moved.insert(socket.pid, id, self.core, socket.session);
            }
            socket.place = Place::Client(client);
            self.by_pid.insert(socket.pid, slot);
        }
    }

    /// The owner that a tag of the hub names. For a socket, this is its client; `None` while the client is disconnected.
    #[inline]
    pub fn owner(&self, tag: u64) -> Option<Owner> {
        match Owner::of_tag(tag) {
            Owner::Socket(slot) => self.client_of(slot).map(Owner::Client),
            owner => Some(owner),
        }
    }

    /// The public id of a session that another node opened. `tag` is the session's tag in the hub.
    pub(crate) fn moved_id(&self, tag: Option<u64>) -> Option<PublicId> {
        match Owner::of_tag(tag?) {
            Owner::Socket(slot) => self.slots.get(slot)?.id,
            Owner::Connection(..) | Owner::Client(_) => None,
        }
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        if let Some(socket) = self.slots.try_remove(slot) {
            if self.by_pid.get(&socket.pid) == Some(&slot) {
                self.by_pid.remove(&socket.pid);
            }
            if let Some(id) = socket.id {
                self.moved.remove(socket.pid, id, self.core, socket.session);
            }
            self.suspended -= usize::from(socket.place.is_suspended());
        }
    }

    pub(crate) fn suspend(&mut self, slot: usize, until: Instant, why: End) {
        let Some(socket) = self.slots.get_mut(slot) else { return };
        self.suspended += usize::from(!socket.place.is_suspended());
        socket.place = Place::Suspended { until, why };
        self.expiries.push_back((until, slot, socket.pid));
        // Recovered sockets leave entries behind, so the queue is rebuilt from time to time.
        if self.expiries.len() > 2 * self.suspended + 64 {
            let slots = &self.slots;
            self.expiries.retain(|(until, slot, pid)| {
                slots.get(*slot).is_some_and(|socket| socket.expires_at(*until, *pid).is_some())
            });
        }
    }

    pub(crate) fn slot_of(&self, pid: Sid) -> Option<usize> {
        self.by_pid.get(&pid).copied()
    }

    /// Gives a suspended socket to a client.
    pub fn resume(&mut self, slot: usize, client: ClientId) {
        if let Some(socket) = self.slots.get_mut(slot)
            && socket.place.is_suspended()
        {
            socket.place = Place::Client(client);
            self.suspended -= 1;
        }
    }

    /// Removes the next expired suspended socket. Returns its session, and the reason why its client is disconnected.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<(SessionId, End)> {
        while let Some((until, slot, pid)) = self.expiries.front().copied()
            && until <= now
        {
            self.expiries.pop_front();
            // If the socket was recovered and suspended again, this entry is out of date, and a later one follows.
            let due =
                self.get(slot).and_then(|socket| Some((socket.session, socket.expires_at(until, pid)?)));
            if due.is_some() {
                self.remove(slot);
                return due;
            }
        }
        None
    }
}
