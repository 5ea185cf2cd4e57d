//! A core's connections, by the driver's index.

use crate::app::Envelope;
use crate::millis::Millis;
use std::net::SocketAddr;
use stentor_driver::{ConnId, TimerId};
use stentor_hub::{Key, SessionId};
use stentor_wire::http1::{BodyDecoder, HeadScanner};
use stentor_wire::ws;

/// One connection. Small when idle: what a request needs lies in a box that goes with the upgrade.
pub(super) struct Conn {
    pub(super) id: ConnId,
    /// Tells this connection from earlier ones with the same index, in timers' tokens.
    pub(super) serial: u32,
    pub(super) stack: Stack,
    pub(super) session: Option<SessionId>,
    /// Answers that wait for the send in flight.
    #[expect(clippy::box_collection, reason = "8 bytes instead of 24 in every idle connection")]
    pub(super) replies: Option<Box<Vec<u8>>>,
    pub(super) timer: Option<TimerId>,
    /// When the timer is set to; meaningless without one.
    pub(super) timer_at: Millis,
    /// A send is in flight.
    pub(super) in_flight: bool,
    /// Not read from, for one of these reasons.
    pub(super) paused_for_replies: bool,
    pub(super) paused_for_cores: bool,
}

/// What is spoken on a connection now.
pub(super) enum Stack {
    Http(Box<Http>),
    Socket(Socket),
    /// What is in flight is awaited, then the driver ends the connection.
    Closing {
        deadline: Millis,
    },
}

/// A connection that speaks HTTP.
pub(super) struct Http {
    pub(super) peer: SocketAddr,
    pub(super) buffer: Vec<u8>,
    pub(super) scanner: HeadScanner,
    /// A request's body that is being thrown away, and how much of it there may be.
    pub(super) body: Option<(BodyDecoder, usize)>,
    /// When the head has to be there, or the next request to begin.
    pub(super) deadline: Millis,
    pub(super) waiting: Option<Waiting>,
    /// The request at the front of the buffer belongs to another core; what is in flight is awaited.
    pub(super) moving: bool,
    /// It can't be moved: another core had no room for it.
    pub(super) stay: bool,
}

/// A request that waits for a document.
pub(super) struct Waiting {
    pub(super) key: Key,
    pub(super) head_only: bool,
    pub(super) keep_alive: bool,
    pub(super) if_none_match: Option<String>,
    /// The `Origin` to answer with.
    pub(super) origin: Option<String>,
    /// The document has been handed to the driver.
    pub(super) answered: bool,
}

/// Who decides about messages of a WebSocket client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepts {
    /// The application.
    Messages,
    /// Nothing is accepted.
    Nothing,
}

/// A connection that speaks WebSocket.
pub(super) struct Socket {
    pub(super) ws: ws::Connection,
    pub(super) accepts: Accepts,
    pub(super) envelope: Envelope,
    /// When bytes were last received or the kernel last took some.
    pub(super) alive_at: Millis,
    /// When a ping left that hasn't been followed by a sign of life.
    pub(super) pinged_at: Option<Millis>,
    /// Bytes in flight when it was last looked at: progress is a sign of life.
    pub(super) in_flight_bytes: u32,
    /// When a message was begun that hasn't ended.
    pub(super) message_since: Option<Millis>,
}

/// The connections of a core.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Conn>>,
    count: usize,
    serial: u32,
}

impl Table {
    pub(super) fn insert(&mut self, id: ConnId, stack: Stack) -> usize {
        let index = id.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.serial = self.serial.wrapping_add(1);
        if self.slots[index].is_none() {
            self.count += 1;
        }
        self.slots[index] = Some(Conn {
            id,
            serial: self.serial,
            stack,
            session: None,
            replies: None,
            timer: None,
            timer_at: Millis::default(),
            in_flight: false,
            paused_for_replies: false,
            paused_for_cores: false,
        });
        index
    }

    /// The index of a connection that lives.
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
        let conn = self.slots.get_mut(index)?.take();
        self.count -= usize::from(conn.is_some());
        conn
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn indices(&self) -> Vec<usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some()).map(|(index, _)| index).collect()
    }
}

/// A timer's token that names a connection.
pub(super) fn token_of(index: usize, serial: u32) -> u64 {
    CONNECTION_TOKEN | (u64::from(serial) << 31) | index as u64
}

/// The connection that a timer's token names: index and the serial number's low bits.
pub(super) fn named_by(token: u64) -> Option<(usize, u32)> {
    (token & CONNECTION_TOKEN != 0).then_some(((token & 0x7fff_ffff) as usize, (token >> 31) as u32))
}

const CONNECTION_TOKEN: u64 = 1 << 63;
