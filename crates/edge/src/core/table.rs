//! A core's connections, by the driver's index.

use crate::ledger::{self, Holding, Ledger};
use std::net::SocketAddr;
use std::sync::Arc;
use stentor_frame::{ConnId, TimerId};
use stentor_hub::{Chunks, SessionId};
use stentor_session::identity::{ClientId, End};
use stentor_session::limits::Slot;
use stentor_session::millis::Millis;
use stentor_session::protocols::http::Http;
use stentor_session::protocols::websocket::WebSocket;

/// One connection. It is small when idle: the state of requests is in a box, which an upgrade frees.
pub(super) struct Conn {
    pub(super) id: ConnId,
    /// Distinguishes this connection from earlier ones with the same index, in tokens of timers.
    pub(super) serial: u32,
    pub(super) machine: Machine,
    pub(super) session: Option<SessionId>,
    /// Replies that wait for the send in flight, and the connection's charge in the ledger.
    pub(super) replies: Replies,
    pub(super) timer: Option<TimerId>,
    /// Time of the timer. Meaningless without one.
    pub(super) timer_at: Millis,
    /// `true` while a send is in flight.
    pub(super) in_flight: bool,
    /// Reasons for not reading from the connection.
    pub(super) held: Held,
    /// Bytes in flight at the last check. Progress shows that the peer still reads.
    pub(super) in_flight_bytes: u32,
}

/// Replies and the connection's charge in the ledger, behind one pointer, because an idle connection has neither.
#[derive(Default)]
pub(super) struct Replies(Option<Box<RepliesAndHolding>>);

#[derive(Default)]
struct RepliesAndHolding {
    replies: Option<Vec<u8>>,
    holding: Holding,
}

impl Replies {
    pub(super) fn get(&self) -> Option<&Vec<u8>> {
        self.0.as_ref()?.replies.as_ref()
    }

    pub(super) fn is_some(&self) -> bool {
        self.get().is_some()
    }

    pub(super) fn get_or_insert_default(&mut self) -> &mut Vec<u8> {
        self.0.get_or_insert_default().replies.get_or_insert_default()
    }

    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let replies = self.0.as_mut()?.replies.take();
        self.drop_if_empty();
        replies
    }

    /// The connection's charge in the ledger, in bytes.
    pub(super) fn holding_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |both| both.holding.bytes())
    }

    /// Replaces the connection's charge in the ledger by `held`. Returns the increase in bytes.
    pub(super) fn set_holding(&mut self, ledger: &Arc<Ledger>, held: ledger::Held) -> usize {
        if self.0.is_none() && held.iter().all(|bytes| *bytes == 0) {
            return 0;
        }
        let grown = self.0.get_or_insert_default().holding.set(ledger, held);
        self.drop_if_empty();
        grown
    }

    /// Returns `true` if there are neither replies nor a charge.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn drop_if_empty(&mut self) {
        self.0.take_if(|both| both.replies.is_none() && both.holding.is_empty());
    }
}

/// Reasons for not reading from a connection. Reading resumes when none is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held(u8);

impl Held {
    /// The client doesn't read its answers.
    pub(super) const REPLIES: Self = Self(1);
    /// The client has published more than other cores have received.
    pub(super) const CORES: Self = Self(2);
    /// Some of the input hasn't been handled.
    pub(super) const INPUT: Self = Self(4);
    /// The connection has used its share of a turn, and is queued for the next one.
    pub(super) const TURN: Self = Self(8);
    /// A message or request waits for a decision (see `Questions` of the sessions).
    pub(super) const DECISION: Self = Self(16);

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn has(self, reason: Self) -> bool {
        self.0 & reason.0 != 0
    }

    /// Returns `true` if the core itself has paused reading, so the client may have sent data that the core
    /// hasn't read.
    pub(super) fn is_ours(self) -> bool {
        self.has(Self::CORES) || self.has(Self::TURN) || self.has(Self::DECISION)
    }

    pub(super) fn set(&mut self, reason: Self) {
        self.0 |= reason.0;
    }

    pub(super) fn clear(&mut self, reason: Self) {
        self.0 &= !reason.0;
    }
}

/// The protocol machine of a connection.
pub(super) enum Machine {
    Preface(Box<Preface>),
    Http(Box<HttpConnection>),
    WebSocket(WebSocket),
    /// The driver closes the connection when the bytes in flight have been sent.
    Closing {
        deadline: Millis,
    },
}

/// A connection that speaks HTTP.
pub(super) struct HttpConnection {
    pub(super) http: Http,
    /// The connection's links in the eviction list.
    pub(super) links: Links,
}

/// A connection whose PROXY protocol header is incomplete.
pub(super) struct Preface {
    /// The proxy.
    pub(super) peer: SocketAddr,
    pub(super) listener: u8,
    pub(super) received: Vec<u8>,
    pub(super) deadline: Millis,
    /// The connection's links in the eviction list.
    pub(super) links: Links,
}

impl Machine {
    pub(super) fn http(http: Http) -> Self {
        Self::Http(Box::new(HttpConnection { http, links: Links::default() }))
    }
}

impl Conn {
    pub(super) fn http(&mut self) -> Option<&mut Http> {
        match &mut self.machine {
            Machine::Http(connection) => Some(&mut connection.http),
            Machine::Preface(_) | Machine::WebSocket(_) | Machine::Closing { .. } => None,
        }
    }

    /// The reason why the connection ends, unless the server ends it.
    pub(super) fn end_reason(&self) -> End {
        match &self.machine {
            Machine::WebSocket(socket) => socket.end_reason(),
            Machine::Preface(_) | Machine::Http(_) | Machine::Closing { .. } => End::Gone,
        }
    }

    /// The client that the connection carries, or will carry.
    pub(super) fn client(&self) -> Option<ClientId> {
        match &self.machine {
            Machine::WebSocket(socket) => socket.client(),
            Machine::Http(connection) => connection.http.waiting.as_ref()?.client(),
            Machine::Preface(_) | Machine::Closing { .. } => None,
        }
    }
}

/// A link of the eviction list ([`super::eviction`]) that names no connection.
pub(super) const NONE: u32 = u32::MAX;

/// A connection's links in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) older: u32,
    pub(super) newer: u32,
}

/// The ends of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) oldest: u32,
    pub(super) newest: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { older: NONE, newer: NONE }
    }
}

impl Default for Ends {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE }
    }
}

/// The connections of a core.
#[derive(Default)]
pub(super) struct Table {
    slots: Chunks<Option<Conn>>,
    count: usize,
    /// The eviction list.
    pub(super) ends: Ends,
    serial: u32,
    /// Entries of connections in the counts of their addresses, by index. Empty unless addresses have limits.
    limit_slots: Chunks<Slot>,
}

impl Table {
    pub(super) fn insert(&mut self, id: ConnId, machine: Machine) -> usize {
        let index = id.index();
        while self.slots.len() <= index {
            self.slots.push(None);
        }
        self.serial = self.serial.wrapping_add(1);
        self.unlink(index);
        if self.slots[index].is_none() {
            self.count += 1;
        }
        self.slots[index] = Some(Conn {
            id,
            serial: self.serial,
            machine,
            session: None,
            replies: Replies::default(),
            timer: None,
            timer_at: Millis::default(),
            in_flight: false,
            held: Held::default(),
            in_flight_bytes: 0,
        });
        self.link(index);
        index
    }

    /// Removes and returns a connection's entry in the count of its address, to be released or set again.
    pub(super) fn take_slot(&mut self, index: usize) -> Slot {
        self.limit_slots.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn set_slot(&mut self, index: usize, slot: Slot) {
        if slot != Slot::NONE {
            while self.limit_slots.len() <= index {
                self.limit_slots.push(Slot::NONE);
            }
            self.limit_slots[index] = slot;
        }
    }

    /// Sets the connection's machine.
    pub(super) fn set_machine(&mut self, index: usize, machine: Machine) {
        self.unlink(index);
        if let Some(conn) = self.get_mut(index) {
            conn.machine = machine;
        }
    }

    /// The connection with this id, if it is still open.
    #[inline]
    pub(super) fn get_by_id(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.get_mut(id.index()).filter(|conn| conn.id == id)
    }

    /// The index of the connection with this id, if it is still open.
    pub(super) fn index_of(&self, id: ConnId) -> Option<usize> {
        let index = id.index();
        self.slots.get(index)?.as_ref().filter(|conn| conn.id == id).map(|_| index)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Conn> {
        self.slots.get(index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Conn> {
        self.slots.get_mut(index)?.as_mut()
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Conn> {
        self.unlink(index);
        let conn = self.slots.get_mut(index)?.take();
        self.count -= usize::from(conn.is_some());
        conn
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The total size of the connections, counting each as an HTTP connection.
    pub(super) fn bytes(&self) -> usize {
        let limit_slots = self.limit_slots.len() * size_of::<Slot>();
        limit_slots + self.slots.len() * size_of::<Option<Conn>>() + self.count * size_of::<HttpConnection>()
    }

    pub(super) fn indices(&self) -> Vec<usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some()).map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_112_bytes() {
        assert!(size_of::<Option<Conn>>() <= 112, "{}", size_of::<Option<Conn>>());
    }
}
