//! The application link: the port between the data plane, which has the clients' sessions, and the link, which has the workers of
//! applications.
//!
//! ```text
//!  client ── its core ── LinkSink::report ──────────► the link ── frames ──► a worker
//!               ▲                                        │
//!               └────────── LinkInbox::carry_out ◄───────┘
//! ```
//!
//! # Owners
//!
//! | part | owns |
//! |---|---|
//! | data plane | sessions and their transports, heartbeats, queues to clients, sockets (namespace, id) and their rooms, fan-out, the worker of each session as far as `local` needs it |
//! | link | workers, the choice of a worker, handles and numbers of namespaces, messages that wait for a worker, frames without acknowledgement; for RESUME the handshake of each session, and `pid`, `state` and `data` of each socket; for RESTORE sockets whose clients are disconnected, and the log of broadcasts |
//!
//! # A session
//!
//! ```text
//!  Opened ─┬─ Accept ──► Messages, Full, Confirm, Upgraded, Receipt, Pressure, Described … ──► Closed
//!          ├─ Refuse
//!          └─ Closed: the client has left before the answer
//! ```
//!
//! Each [`LinkReport::Opened`] that was taken has exactly one end: [`LinkEntry::Refuse`], or [`LinkReport::Closed`], also after
//! [`LinkEntry::Close`]. The link bounds the time until its answer, and the number of requests that wait for one: it refuses the
//! others. A client that requests a WebSocket waits for the upgrade's response, a polling client for that of its first request.
//!
//! # Order
//!
//! * Reports of one session are in order. A core reports a session's messages one unit at a time.
//! * Each core carries out the entries in the order of the calls of [`LinkInbox::carry_out`]. All links share this queue, so the entries
//!   of one link take effect in the order in which its worker wrote them on every core, and a session that moves to another link needs
//!   nothing more. [`LinkEntry::Broadcast`] and [`LinkEntry::Select`] go to all cores, each of which serves its own sockets. A long
//!   `Select` takes several turns of a core; the entries after it wait.
//! * An entry for a session that has ended has no effect.
//!
//! # Backpressure
//!
//! * Of the reports, only [`LinkReport::Opened`] and [`LinkReport::Messages`] can be refused, because the number of others is bounded by
//!   the number of sessions and entries. A core then keeps the messages and reads no more from that client until
//!   [`LinkInbox::reports_have_space`].
//! * A core passes on at most [`EngineOptions::queue_bytes_max`](crate::EngineOptions) and one unit of a session's messages before its
//!   worker takes them. At the bound, it reads no more from the client and reports [`LinkReport::Full`], which [`LinkEntry::Continue`]
//!   answers.
//! * [`LinkEntry::Pause`] stops reading from a client until [`LinkEntry::Continue`], because the messages of all sessions are too
//!   large. At most one more unit follows.
//! * A full inbox of a core refuses the whole call. The link keeps its entries, reads no further frames of that link, and tries again after
//!   [`LinkSink::space`].
//!
//! Deliberately absent: watched packets (WATCH).

use crate::Busy;
use bytes::Bytes;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_hub::CoreId;

/// The number of an application among those of the node's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkApp(pub u16);

/// A session of an application. No other session of the node has had the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSession(u64);

impl LinkSession {
    /// The session with a number that the core counts. The core takes the upper 8 bits, because there are at most 256 cores.
    pub fn of(core: CoreId, number: u64) -> Self {
        Self((core as u64) << 56 | number & (u64::MAX >> 8))
    }

    /// The core that has the session.
    pub fn core(self) -> CoreId {
        (self.0 >> 56) as CoreId
    }

    /// The session as a number.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The session with a number from [`Self::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// An Engine.IO message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkMessage {
    /// UTF-8.
    Text(Bytes),
    /// Any bytes.
    Binary(Bytes),
}

impl LinkMessage {
    /// The content.
    pub fn data(&self) -> &Bytes {
        match self {
            Self::Text(data) | Self::Binary(data) => data,
        }
    }
}

/// Messages that belong together: a packet with its attachments. Not empty.
pub type LinkMessages = SmallVec<[LinkMessage; 1]>;

/// Headers of a request or response: name and value.
pub type LinkHeaders = Vec<(Box<str>, Box<str>)>;

/// The encoding of clients' packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkParser {
    /// Socket.IO's own. A packet and its attachments are one unit.
    #[default]
    Json,
    /// A custom parser. Each message is one unit.
    Opaque,
}

/// Size of a session's messages that wait for its worker, in bytes: in the inbox of the link, and in its queues. The link charges them.
/// The session's core stops reading from the client at a bound. While memory is short, the clients that hold the most are closed.
#[derive(Clone, Debug, Default)]
pub struct LinkQueued(pub Arc<AtomicUsize>);

impl LinkQueued {
    /// The bytes now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds the content of messages that a core has passed to the inbox of the link.
    pub fn enter(&self, content_bytes: usize) {
        self.0.fetch_add(content_bytes, Ordering::Relaxed);
    }

    /// Subtracts messages that have left the inbox. The link's queues count them from then on.
    pub fn leave(&self, content_bytes: usize) {
        self.0.fetch_sub(content_bytes, Ordering::Relaxed);
    }
}

/// Size of the content of messages, in bytes.
pub fn content_bytes(messages: &LinkMessages) -> usize {
    messages.iter().map(|message| message.data().len()).sum()
}

impl PartialEq for LinkQueued {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LinkQueued {}

/// The request with which a client opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkHandshake {
    /// The session's id, which is the client's secret.
    pub sid: Box<str>,
    /// The version of Engine.IO: 3 or 4.
    pub protocol: u8,
    /// `polling` or `websocket`.
    pub transport: &'static str,
    /// The method of the request.
    pub method: Box<str>,
    /// Path and query as the client sent them.
    pub url: Box<str>,
    /// The version of HTTP: `1.0` or `1.1`.
    pub http_version: &'static str,
    /// The headers in their order, as the client sent them.
    pub headers: LinkHeaders,
    /// The parameters of the query, decoded, in their order.
    pub query: LinkHeaders,
    /// The client's address. Behind trusted proxies, the address that they report.
    pub address: Box<str>,
    /// The client's port. 0 if a proxy hides it.
    pub port: u16,
    /// The address at which the client's connection arrived. Empty if it isn't known.
    pub local_address: Box<str>,
    /// The port at which the client's connection arrived. 0 if it isn't known.
    pub local_port: u16,
    /// `true` if the client uses TLS.
    pub encrypted: bool,
    /// Size of the session's messages that wait for its worker.
    pub queued: LinkQueued,
}

crate::named! {
    /// The reason for the end of a session, in the words of Engine.IO.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LinkCloseReason {
        /// The client has closed its transport, or it has left before its session was accepted.
        TransportClose = "transport close",
        /// The client's heartbeat is missing.
        PingTimeout = "ping timeout",
        /// The client has sent a malformed packet.
        ParseError = "parse error",
        /// The server has closed the session: [`LinkEntry::Close`], a limit, or the shutdown of the node.
        ForcedClose = "forced close",
    }
}

impl LinkCloseReason {
    /// `true` if the client may return and recover its sockets.
    pub fn is_recoverable(self) -> bool {
        self != Self::ParseError
    }
}

/// A socket: a session in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSocket {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The socket's id.
    pub id: Box<str>,
    /// The socket's rooms, unordered.
    pub rooms: Vec<Box<str>>,
}

/// The answer to [`LinkEntry::Describe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDescription {
    /// The number of the request.
    pub request: u32,
    /// `true` if the session has changed from polling to a WebSocket.
    pub upgraded: bool,
    /// The sockets of the session.
    pub sockets: Vec<LinkSocket>,
}

/// An event of a session, for its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkReport {
    /// A client requests a session of this application. The client waits for [`LinkEntry::Accept`] or [`LinkEntry::Refuse`].
    Opened(LinkApp, Box<LinkHandshake>),
    /// The client has sent a unit of messages.
    Messages(LinkMessages),
    /// The messages before exceed the bound, so the client isn't read until [`LinkEntry::Continue`].
    Full,
    /// The client waits for [`LinkEntry::Handled`], because it has sent the last messages by POST.
    Confirm,
    /// The session has changed to this transport.
    Upgraded(&'static str),
    /// The session has ended. This is its last report.
    Closed {
        /// The reason.
        reason: LinkCloseReason,
        /// The session's sockets.
        sockets: Vec<LinkSocket>,
    },
    /// The messages of the oldest [`LinkEntry::Send`] that wanted a receipt and had none have been written to the client.
    Receipt,
    /// `true`: the client's queue is above its bound, because the client doesn't read. `false`: the client has read it again.
    Pressure(bool),
    /// The answer to [`LinkEntry::Describe`].
    Described(LinkDescription),
}

/// A request of an application's client that Stentor has refused itself, for the listeners of its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRefused {
    /// The application.
    pub app: LinkApp,
    /// The code of Engine.IO: 0 to 5.
    pub code: u8,
    /// The message of the code.
    pub message: &'static str,
    /// Name and value of a detail, such as `sid` and the unknown id.
    pub context: (&'static str, Box<str>),
    /// The request. `sid` and `transport` are empty, and `protocol` is 0.
    pub request: Box<LinkHandshake>,
}

/// The sockets of a core that a [`LinkEntry::Select`] has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSelected {
    /// The application.
    pub app: LinkApp,
    /// The link whose worker has sent the `Select`.
    pub link: u32,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The change.
    pub select: Arc<LinkSelect>,
    /// The sessions of the changed sockets, of all workers.
    pub sessions: Vec<LinkSession>,
}

/// The link, as the cores call it, on their threads. No call blocks.
pub trait LinkSink: fmt::Debug + Send + Sync {
    /// Reports an event of a session.
    ///
    /// # Errors
    /// The inbox of the link is full: the report is returned. Only for [`LinkReport::Opened`] and [`LinkReport::Messages`].
    fn report(&self, session: LinkSession, report: LinkReport) -> Result<(), LinkReport>;

    /// Reports the sockets of one core that a `Select` has changed: their worker's mirror is updated (MEMBERS), or their worker
    /// disconnects them (KICK). Called only if there are any.
    fn report_selected(&self, selected: LinkSelected);

    /// Reports a refused request. Called only after [`LinkApps::take_report`](crate::LinkApps::take_report). Dropped if the link's
    /// inbox is full.
    fn report_refused(&self, refused: LinkRefused);

    /// Reports that an inbox of a core has space again.
    fn space(&self);

    /// `true` while other nodes of a cluster may take sockets of disconnected clients from the link. A draining node waits for this. After
    /// the end, the link calls [`LinkInbox::reports_have_space`].
    fn keeps_sockets(&self) -> bool;
}

/// The acceptance of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkAcceptance {
    /// Headers of the first response.
    pub first: LinkHeaders,
    /// Headers of all HTTP responses of the session, including the first.
    pub all: LinkHeaders,
    /// The encoding of the client's packets.
    pub parser: LinkParser,
}

/// The response to a client whose session is refused. The connection is closed after it if the client requested a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRefusal {
    /// The status, from 200 to 599.
    pub status: u16,
    /// The headers, without `Content-Length`.
    pub headers: LinkHeaders,
    /// The body.
    pub body: Bytes,
}

/// Messages for the sockets of a namespace that are in one of the rooms, and in no excepted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkBroadcast {
    /// The rooms. Empty: all sockets of the namespace.
    pub rooms: Vec<Box<str>>,
    /// Rooms whose sockets are left out.
    pub except: Vec<Box<str>>,
    /// `true`: only sockets of the sending link's sessions.
    pub is_local: bool,
    /// `true`: clients that have messages pending are left out, and so are polling clients without an open poll.
    pub is_volatile: bool,
    /// `false`: the messages needn't be compressed.
    pub is_compressed: bool,
    /// A packet with its attachments.
    pub messages: LinkMessages,
}

/// The change that a `Select` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The sockets join the targets.
    Join,
    /// The sockets leave the targets.
    Leave,
    /// The sockets leave all rooms and their namespace, so no later broadcast reaches them. `closes` is `true` if their sessions
    /// end as well. The workers end sockets and sessions when they are notified.
    Disconnect {
        /// `true`: the sessions end as well.
        closes: bool,
    },
}

/// A change to the sockets of a namespace that are in one of the rooms, and in no excepted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSelect {
    /// The change.
    pub change: LinkChange,
    /// `true`: only sockets of the sending link's sessions.
    pub is_local: bool,
    /// The rooms. Empty: all sockets of the namespace.
    pub rooms: Vec<Box<str>>,
    /// Rooms whose sockets are left out.
    pub except: Vec<Box<str>>,
    /// The rooms that the sockets join or leave.
    pub targets: Vec<Box<str>>,
}

/// An instruction of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEntry {
    /// Accepts a session. It belongs to the calling link.
    Accept(LinkSession, Box<LinkAcceptance>),
    /// Refuses a session, which is reported no more.
    Refuse(LinkSession, Box<LinkRefusal>),
    /// The session belongs to the calling link from now on: it has moved to another worker.
    Own(LinkSession),
    /// Sends messages to a client: all or none, and nothing in between.
    Send {
        /// The session.
        session: LinkSession,
        /// `true`: drops the messages if others are pending for the client, or a polling client has no open poll.
        is_volatile: bool,
        /// `false`: the messages needn't be compressed.
        is_compressed: bool,
        /// `true`: [`LinkReport::Receipt`] follows, also if the messages were dropped.
        wants_receipt: bool,
        /// The messages.
        messages: LinkMessages,
    },
    /// Ends a session.
    Close {
        /// The session.
        session: LinkSession,
        /// `true`: at once. `false`: after pending messages have been sent.
        discards: bool,
    },
    /// A socket is connected, or has rooms again. It replaces a socket of the same session and namespace.
    Add {
        /// The session.
        session: LinkSession,
        /// The socket.
        socket: Box<LinkSocket>,
    },
    /// A socket leaves all its rooms, and no longer receives broadcasts to its namespace.
    Delete {
        /// The session.
        session: LinkSession,
        /// The namespace.
        namespace: Arc<str>,
    },
    /// A socket joins rooms.
    Join {
        /// The session.
        session: LinkSession,
        /// The namespace.
        namespace: Arc<str>,
        /// The rooms.
        rooms: Vec<Box<str>>,
    },
    /// A socket leaves a room.
    Leave {
        /// The session.
        session: LinkSession,
        /// The namespace.
        namespace: Arc<str>,
        /// The room.
        room: Box<str>,
    },
    /// Sends messages to sockets of all workers, or with `is_local` of the calling link.
    Broadcast(LinkApp, Arc<str>, Arc<LinkBroadcast>),
    /// Changes sockets of all workers, or with `is_local` of the calling link. [`LinkSink::report_selected`] follows.
    Select(LinkApp, Arc<str>, Arc<LinkSelect>),
    /// Reads no more from the client.
    Pause(LinkSession),
    /// Reads from the client again.
    Continue(LinkSession),
    /// The worker has handled all messages before [`LinkReport::Confirm`], or has ended: the client's POST is answered. This entry
    /// precedes the entries of the frame that acknowledged the messages, so that the response leaves before their effects.
    Handled(LinkSession),
    /// Requests [`LinkReport::Described`] as of all earlier entries, for the worker that takes the session.
    Describe {
        /// The session.
        session: LinkSession,
        /// The number of the request.
        request: u32,
    },
}

impl LinkEntry {
    /// The session that the entry is for. `None`: sockets of all sessions.
    pub fn session(&self) -> Option<LinkSession> {
        match self {
            Self::Accept(session, _)
            | Self::Refuse(session, _)
            | Self::Own(session)
            | Self::Send { session, .. }
            | Self::Close { session, .. }
            | Self::Add { session, .. }
            | Self::Delete { session, .. }
            | Self::Join { session, .. }
            | Self::Leave { session, .. }
            | Self::Pause(session)
            | Self::Continue(session)
            | Self::Handled(session)
            | Self::Describe { session, .. } => Some(*session),
            Self::Broadcast(..) | Self::Select(..) => None,
        }
    }

    /// Number of names of rooms, without the targets of a `Select`.
    pub fn names(&self) -> usize {
        match self {
            Self::Add { socket, .. } => socket.rooms.len(),
            Self::Join { rooms, .. } => rooms.len(),
            Self::Broadcast(_, _, broadcast) => broadcast.rooms.len() + broadcast.except.len(),
            Self::Select(_, _, select) => select.rooms.len() + select.except.len(),
            _ => 0,
        }
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let names =
            |names: &[Box<str>]| -> usize { names.iter().map(|name| size_of_val(name) + name.len()).sum() };
        let headers = |headers: &LinkHeaders| -> usize {
            headers.iter().map(|header| size_of_val(header) + header.0.len() + header.1.len()).sum()
        };
        let content = |messages: &LinkMessages| -> usize {
            messages.iter().map(|message| size_of_val(message) + message.data().len()).sum()
        };
        size_of::<Self>()
            + match self {
                Self::Accept(_, acceptance) => headers(&acceptance.first) + headers(&acceptance.all),
                Self::Refuse(_, refusal) => headers(&refusal.headers) + refusal.body.len(),
                Self::Send { messages, .. } => content(messages),
                Self::Add { socket, .. } => socket.id.len() + names(&socket.rooms),
                Self::Join { rooms, .. } => names(rooms),
                Self::Leave { room, .. } => room.len(),
                Self::Broadcast(_, _, broadcast) => {
                    names(&broadcast.rooms) + names(&broadcast.except) + content(&broadcast.messages)
                }
                Self::Select(_, _, select) => {
                    names(&select.rooms) + names(&select.except) + names(&select.targets)
                }
                Self::Own(_)
                | Self::Close { .. }
                | Self::Delete { .. }
                | Self::Pause(_)
                | Self::Continue(_)
                | Self::Handled(_)
                | Self::Describe { .. } => 0,
            }
    }
}

/// The data plane, as the link calls it, from one thread. No call blocks.
pub trait LinkInbox: Send + Sync {
    /// Gives the entries of a link to the cores of their sessions, in order. `link` is the link's number; 0 for entries that don't come
    /// from a worker. Empties `entries`.
    ///
    /// # Errors
    /// The inbox of a core is full; `entries` is unchanged.
    fn carry_out(&self, link: u32, entries: &mut Vec<LinkEntry>) -> Result<(), Busy>;

    /// Reports that the link's inbox takes messages again, after it refused a report, or that the link keeps no sockets any more, after
    /// [`LinkSink::keeps_sockets`].
    fn reports_have_space(&self);
}
