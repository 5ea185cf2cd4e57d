//! A core's connections, by the driver's index.

use super::client::{ClientId, Sid};
use super::events::Events;
use super::eviction::{Ends, Links};
use super::page::Later;
use super::sockjs::Receiver;
use crate::app::{Connect, Envelope};
use crate::encode::{FrameTarget, Writer};
use crate::ledger::{self, Holding, Ledger};
use crate::millis::Millis;
use crate::options::Service;
use std::net::SocketAddr;
use std::sync::Arc;
use stentor_driver::{ConnId, TimerId};
use stentor_hub::{Chunks, CoreId, Key, Position, SessionId};
use stentor_wire::http1::{BodyDecoder, HeadScanner};
use stentor_wire::ws;

/// One connection. Small when idle: what a request needs lies in a box that goes with the upgrade.
pub(super) struct Conn {
    pub(super) id: ConnId,
    /// Tells this connection from earlier ones with the same index, in timers' tokens.
    pub(super) serial: u32,
    pub(super) stack: Stack,
    pub(super) session: Option<SessionId>,
    /// Replies that wait for the send in flight, and the connection's charge in the ledger.
    pub(super) replies: Replies,
    pub(super) timer: Option<TimerId>,
    /// When the timer is set to; meaningless without one.
    pub(super) timer_at: Millis,
    /// A send is in flight.
    pub(super) in_flight: bool,
    /// Why it isn't read from.
    pub(super) held: Held,
    /// Bytes in flight when it was last looked at: progress is a sign of life.
    pub(super) in_flight_bytes: u32,
}

/// Replies and the connection's charge in the ledger, behind one pointer: an idle connection has neither.
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

    /// Charges `held` to the ledger instead of what was charged before. Returns by how many bytes that is more.
    pub(super) fn set_holding(&mut self, ledger: &Arc<Ledger>, held: ledger::Held) -> usize {
        if self.0.is_none() && held.iter().all(|bytes| *bytes == 0) {
            return 0;
        }
        let grown = self.0.get_or_insert_default().holding.set(ledger, held);
        self.drop_if_empty();
        grown
    }

    /// Whether there are neither replies nor anything charged.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn drop_if_empty(&mut self) {
        self.0.take_if(|both| both.replies.is_none() && both.holding.is_empty());
    }
}

/// The reasons for which a connection isn't read from; it is read again when none is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held(u8);

impl Held {
    /// Its answers aren't read.
    pub(super) const REPLIES: Self = Self(1);
    /// It has published more than other cores have taken in.
    pub(super) const CORES: Self = Self(2);
    /// What was read of it hasn't all been dealt with.
    pub(super) const INPUT: Self = Self(4);
    /// It has used its share of a turn, and is queued for the next.
    pub(super) const TURN: Self = Self(8);

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn has(self, reason: Self) -> bool {
        self.0 & reason.0 != 0
    }

    /// Whether its client may have sent data that we haven't read because we paused reading.
    pub(super) fn is_ours(self) -> bool {
        self.has(Self::CORES) || self.has(Self::TURN)
    }

    pub(super) fn set(&mut self, reason: Self) {
        self.0 |= reason.0;
    }

    pub(super) fn clear(&mut self, reason: Self) {
        self.0 &= !reason.0;
    }
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
    /// What was read and not dealt with; owns no memory while it is empty.
    pub(super) buffer: Vec<u8>,
    pub(super) scanner: HeadScanner,
    /// A request's body that is arriving.
    pub(super) body: Option<Receiving>,
    /// When the head has to be there, the body to end, the next request to begin, or what is awaited to come.
    pub(super) deadline: Millis,
    /// The deadline is that of a head.
    pub(super) begun: bool,
    pub(super) waiting: Option<Waiting>,
    /// What the application has said in the end about the request at the front of the buffer.
    pub(super) admission: Option<Box<(Connect, Option<Sid>)>>,
    /// The request at the front of the buffer belongs to this core; what is in flight is awaited.
    pub(super) moving: Option<CoreId>,
    /// It can't be moved: another core had no room for it.
    pub(super) stay: bool,
    /// Requests wait in the buffer until the answers to earlier ones are read.
    pub(super) stalled: bool,
    /// The client has finished sending: after the answers that it is owed, this ends.
    pub(super) finished: bool,
    /// Its links in the eviction list.
    pub(super) links: Links,
}

impl Http {
    /// A connection on which nothing has been dealt with yet.
    pub(super) fn new(peer: SocketAddr, deadline: Millis) -> Self {
        Self {
            peer,
            buffer: Vec::new(),
            scanner: HeadScanner::default(),
            body: None,
            deadline,
            begun: true,
            waiting: None,
            admission: None,
            moving: None,
            stay: false,
            stalled: false,
            finished: false,
            links: Links::default(),
        }
    }

    /// Whether something has to happen before the next request is looked at.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting.is_some() || self.moving.is_some() || self.stalled
    }
}

/// A body that is arriving.
pub(super) struct Receiving {
    pub(super) decoder: BodyDecoder,
    /// How many bytes of it there may still be.
    pub(super) bytes_left: usize,
    /// What is kept of it; nothing where its request has been answered already.
    pub(super) kept: Option<Box<Kept>>,
}

/// A request whose body is needed, so far.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// Handled bytes of the body (decoded, if it is a form).
    pub(super) done: usize,
    /// Partly handled: `body` is decoded, and this many SockJS messages remain.
    pub(super) begun: Option<usize>,
    /// Its client moves to another core with what is left.
    pub(super) departs: Option<ClientId>,
}

impl Kept {
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.head.capacity() + self.body.capacity()
    }
}

/// What a request waits for.
pub(super) enum Waiting {
    /// A document.
    Document(Box<Awaited>),
    /// Packets for a client of Engine.IO that polls.
    Poll(Poll),
    /// Frames for a client of SockJS.
    Receiver(Box<Receiver>),
    /// Events of feeds, until there are none any more.
    Events(Box<Events>),
    /// The time for the rest of a page.
    Page(Box<Later>),
    /// [`crate::app::Context::admit`], for a client that will have this id.
    Admission(Option<Sid>),
    /// A turn for the rest of the body: what the first of it has published leaves first.
    Body(Box<Kept>),
}

impl Waiting {
    /// Bytes held besides this struct, except those counted elsewhere.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Document(awaited) => awaited.held_bytes(),
            Self::Poll(poll) => poll.origin.as_deref().map_or(0, str::len),
            Self::Receiver(receiver) => receiver.held_bytes(),
            Self::Body(kept) => kept.held_bytes(),
            Self::Events(_) | Self::Page(_) | Self::Admission(_) => 0,
        }
    }

    /// The answer has been handed to the driver.
    pub(super) fn is_answered(&self) -> bool {
        match self {
            Self::Document(awaited) => awaited.answered,
            Self::Poll(poll) => poll.answered,
            Self::Receiver(receiver) => receiver.answered,
            Self::Events(events) => events.answered,
            Self::Page(later) => later.is_answered(),
            Self::Admission(_) | Self::Body(_) => false,
        }
    }

    /// Whether the connection lives on after the answer.
    pub(super) fn keep_alive(&self) -> bool {
        match self {
            Self::Document(awaited) => awaited.keep_alive,
            Self::Poll(poll) => poll.keep_alive,
            Self::Receiver(receiver) => receiver.keep_alive,
            Self::Events(events) => events.keep_alive,
            Self::Page(later) => later.keep_alive,
            Self::Admission(_) | Self::Body(_) => true,
        }
    }

    /// The client that is carried by the answer.
    pub(super) fn client(&self) -> Option<ClientId> {
        match self {
            Self::Poll(poll) => Some(poll.client),
            Self::Receiver(receiver) => Some(receiver.client),
            Self::Document(_) | Self::Events(_) | Self::Page(_) | Self::Admission(_) | Self::Body(_) => None,
        }
    }

    /// Whether nobody waits any more once the client has finished sending: nobody polls who doesn't read.
    pub(super) fn ends_with_input(&self) -> bool {
        match self {
            Self::Poll(poll) => !poll.answered,
            Self::Receiver(receiver) => !receiver.answered,
            Self::Events(events) => !events.answered,
            Self::Document(_) | Self::Page(_) | Self::Admission(_) | Self::Body(_) => false,
        }
    }

    /// The connection ends after the answer.
    pub(super) fn make_last(&mut self) {
        match self {
            Self::Document(awaited) => awaited.keep_alive = false,
            Self::Poll(poll) => poll.keep_alive = false,
            Self::Receiver(receiver) => receiver.keep_alive = false,
            Self::Events(events) => events.keep_alive = false,
            Self::Page(later) => later.keep_alive = false,
            Self::Admission(_) | Self::Body(_) => {}
        }
    }
}

/// A poll.
pub(super) struct Poll {
    pub(super) client: ClientId,
    pub(super) keep_alive: bool,
    /// The `Origin` to answer with.
    pub(super) origin: Option<Box<str>>,
    /// The number of the callback that a script is to call.
    pub(super) jsonp: Option<u32>,
    /// The client can't read bytes.
    pub(super) base64: bool,
    /// The answer has been handed to the driver.
    pub(super) answered: bool,
}

/// A request that waits for a document.
pub(super) struct Awaited {
    pub(super) key: Key,
    pub(super) head_only: bool,
    pub(super) keep_alive: bool,
    pub(super) if_none_match: Option<String>,
    /// The `Origin` to answer with.
    pub(super) origin: Option<String>,
    /// The client has the version with one of these tags and waits for another (`?wait=`).
    pub(super) known: Option<String>,
    /// The client's version, once it is known to be the newest.
    pub(super) unchanged: Option<Position>,
    /// The answer has been handed to the driver.
    pub(super) answered: bool,
}

impl Awaited {
    fn held_bytes(&self) -> usize {
        let texts = [&self.if_none_match, &self.origin, &self.known];
        size_of::<Self>() + texts.into_iter().flatten().map(String::capacity).sum::<usize>()
    }
}

/// Who decides about messages of a WebSocket client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepts {
    /// The application.
    Messages,
    /// Engine.IO: it carries, or wants to carry, the packets of a client.
    Client(ClientId),
}

impl Accepts {
    pub(super) fn client(self) -> Option<ClientId> {
        match self {
            Self::Client(client) => Some(client),
            Self::Messages => None,
        }
    }
}

/// What is put into the messages of a WebSocket that has a session of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    /// What the application says.
    #[default]
    Plain,
    /// Frames of SockJS.
    SockJs,
    /// JSON values and heartbeats of Primus.
    Primus(Pinging),
}

/// Who pings in Primus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pinging {
    /// We do, and have been answered.
    #[default]
    Idle,
    /// We do, and wait for the answer.
    Awaited,
    /// The client.
    Theirs,
}

impl Dialect {
    /// How the application's messages leave.
    pub(super) fn writer(self, envelope: Envelope) -> Writer<'static> {
        match self {
            Self::Plain => Writer::WebSocket,
            Self::SockJs => Writer::SockJs(FrameTarget::WebSocket),
            Self::Primus(_) => Writer::Primus { is_value: envelope == Envelope::V1 },
        }
    }
}

/// What is spoken over a WebSocket, and by which service it came in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Speech {
    pub(super) dialect: Dialect,
    /// No message is accepted, whoever would decide about it.
    pub(super) is_deaf: bool,
    pub(super) service: Service,
}

/// A connection that speaks WebSocket.
pub(super) struct Socket {
    pub(super) ws: ws::Connection,
    pub(super) accepts: Accepts,
    pub(super) speech: Speech,
    pub(super) envelope: Envelope,
    /// When bytes were last received or the kernel last took some.
    pub(super) alive_at: Millis,
    /// When a ping left that hasn't been followed by a sign of life.
    pub(super) pinged_at: Option<Millis>,
    /// When a message was begun that hasn't ended.
    pub(super) message_since: Option<Millis>,
    /// What was read and waits until earlier messages' answers and publications have left.
    pub(super) unread: Option<Box<Unread>>,
}

/// Data that was read from a WebSocket and waits.
#[derive(Default)]
pub(super) struct Unread {
    pub(super) bytes: Vec<u8>,
    /// Data before that.
    pub(super) rest: Option<RestOfFrame>,
}

impl Unread {
    pub(super) fn held_bytes(&self) -> usize {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.text.capacity());
        size_of::<Self>() + self.bytes.capacity() + rest
    }
}

/// Remaining SockJS messages of one WebSocket frame.
pub(super) struct RestOfFrame {
    pub(super) text: String,
    pub(super) messages: usize,
}

/// The part of a WebSocket message that is left for later.
pub(super) enum Again {
    /// The whole message, as a frame. It is handled on the core that the client moves to, or here once it is known
    /// that the client stays.
    Frame(Vec<u8>),
    Rest(RestOfFrame),
}

/// The connections of a core.
#[derive(Default)]
pub(super) struct Table {
    slots: Chunks<Option<Conn>>,
    count: usize,
    /// The eviction list.
    pub(super) ends: Ends,
    serial: u32,
}

impl Table {
    pub(super) fn insert(&mut self, id: ConnId, stack: Stack) -> usize {
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
            stack,
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

    /// Sets the connection's protocol stack.
    pub(super) fn set_stack(&mut self, index: usize, stack: Stack) {
        self.unlink(index);
        if let Some(conn) = self.get_mut(index) {
            conn.stack = stack;
        }
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
        self.unlink(index);
        let conn = self.slots.get_mut(index)?.take();
        self.count -= usize::from(conn.is_some());
        conn
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The size of all connections, each counted as an HTTP connection.
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Option<Conn>>() + self.count * size_of::<Http>()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_112_bytes() {
        assert!(size_of::<Option<Conn>>() <= 112, "{}", size_of::<Option<Conn>>());
    }

    #[test]
    fn tokens_name_connections() {
        for (index, serial) in [(0, 0), (1, u32::MAX), (0x7fff_ffff, 1), (0x7fff_ffff, u32::MAX)] {
            assert_eq!(named_by(token_of(index, serial)), Some((index, serial)));
        }
        assert_eq!(named_by(0), None);
        assert_eq!(named_by((1 << 62) + 7), None);
    }
}
