//! The memory that the process holds for its clients, by class, compared with `limits.memory_bytes_max`.
//!
//! Shared frames and publications count themselves, once each, in a [`Meter`] and a [`LiveBytes`]. A core measures
//! the memory of one connection or client whenever it may have changed, and keeps it in a [`Holding`], which
//! subtracts it when its owner is dropped. Each core reports memory that is counted by number, such as sessions and
//! rooms, once per turn in its [`Report`]. A queue with a bound of its own has one [`Charge`] for the bound and the ledger.
//!
//! Byte counts elsewhere don't measure held memory. They bound the pace of a turn (`published_bytes` and `revisited_bytes` of the
//! core, `budget` of the data plane), the backlog of one core with another (`mail_bytes`, whose publications count themselves),
//! and the length of one answer (`SessionList::bytes`).
//!
//! **Invariant.** The bytes of a class are the sum over all live holdings and reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_frame::Meter;
use stentor_hub::LiveBytes;

/// The share of the budget, in percent, above which large inputs are refused.
const TIGHT_PERCENT: usize = 95;
/// The share of the budget, in percent, down to which the server frees memory once it is short, so that it needn't do so again
/// at once.
const RELIEVED_PERCENT: usize = 90;

crate::named! {
    /// Classes of held memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Class {
        /// Connections and clients, at their fixed size.
        Connections = "connections",
        /// Sessions of the hub.
        Sessions = "sessions",
        /// Subscriptions of sessions.
        Subscriptions = "subscriptions",
        /// Rooms and feeds that cores know of.
        Rooms = "rooms",
        /// Entries of outboxes, without the frames and publications themselves.
        Outboxes = "send_buffers",
        /// Received bytes that wait to be handled.
        ReceiveBuffers = "receive_buffers",
        /// Incomplete WebSocket messages.
        Messages = "messages",
        /// Bodies of requests.
        Bodies = "bodies",
        /// Socket.IO packets with missing attachments.
        Attachments = "attachments",
        /// Answers that clients haven't read, including those in flight.
        Replies = "replies",
        /// Packets and messages that wait for a client's next poll.
        PollRecords = "poll_records",
        /// Messages from the control plane that cores haven't received.
        Inboxes = "inboxes",
        /// Messages for other nodes that the broker hasn't taken.
        Broker = "broker",
        /// Open questions to the authorizer.
        Decisions = "decisions",
        /// Identities of clients.
        Identities = "identities",
        /// Members of rooms with presence.
        Presence = "presence",
        /// Messages that wait for the cluster's engine, and messages of the engine that wait for this node.
        Cluster = "cluster",
        /// Connections that are passed through to other nodes, with their buffers, and claimed names of sessions.
        Relays = "relays",
        /// Verified tokens, and the list of revocations.
        Tokens = "tokens",
        /// TLS state of connections, at its fixed size, and its buffers.
        Tls = "tls",
        /// Questions to hooks, and their answers.
        Hooks = "hooks",
        /// Sockets and messages of the application link, and frames for its workers.
        Link = "link",
        /// Idempotency keys of clients' publications.
        PublicationKeys = "publication_keys",
    }
}

/// The memory pressure: the used part of the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// At most 95 % of the budget.
    #[default]
    None,
    /// Above 95 % of the budget: no new connections, subscriptions or large inputs.
    Tight,
    /// Above the budget: no publications either.
    Full,
}

/// The memory that the process holds for its clients.
#[derive(Debug)]
pub struct Ledger {
    classes: [AtomicUsize; Class::ALL.len()],
    /// The sum of `classes`.
    counted: AtomicUsize,
    /// Encoded frames.
    pub frames: Meter,
    /// Publications, which include documents, messages in outboxes, history and the recovery log.
    pub publications: LiveBytes,
    bytes_max: AtomicUsize,
    /// Bytes up to which the pressure is [`Pressure::None`].
    relaxed_bytes_max: AtomicUsize,
}

impl Ledger {
    /// An empty ledger with a budget.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            classes: Default::default(),
            counted: AtomicUsize::new(0),
            frames: Meter::default(),
            publications: LiveBytes::default(),
            bytes_max: bytes_max.into(),
            relaxed_bytes_max: percent(bytes_max, TIGHT_PERCENT).into(),
        }
    }

    /// Bytes held, of all classes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.counted.load(Ordering::Relaxed) + self.frames.bytes() + self.publications.bytes()
    }

    /// `true` if the process may hold `bytes` more without exceeding the budget.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.bytes().saturating_add(bytes) <= self.bytes_max()
    }

    /// `true` if the pressure would still be [`Pressure::None`] with `bytes` more. Otherwise the server refuses large inputs.
    pub fn has_room_for_input(&self, bytes: usize) -> bool {
        self.bytes().saturating_add(bytes) <= self.relaxed_bytes_max.load(Ordering::Relaxed)
    }

    /// Bytes held of each class, with its label in metrics.
    pub fn by_class(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let counted = Class::ALL.iter().zip(&self.classes);
        counted
            .map(|(class, bytes)| (class.name(), bytes.load(Ordering::Relaxed)))
            .chain([("frames", self.frames.bytes()), ("publications", self.publications.bytes())])
    }

    /// The budget, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the budget.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.relaxed_bytes_max.store(percent(bytes_max, TIGHT_PERCENT), Ordering::Relaxed);
    }

    /// The memory pressure now.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        let bytes = self.bytes();
        if bytes <= self.relaxed_bytes_max.load(Ordering::Relaxed) {
            Pressure::None
        } else if bytes <= self.bytes_max() {
            Pressure::Tight
        } else {
            Pressure::Full
        }
    }

    /// The number of bytes above 90 % of the budget, or 0. Under pressure, the server frees this amount.
    pub fn excess_bytes(&self) -> usize {
        self.bytes().saturating_sub(percent(self.bytes_max(), RELIEVED_PERCENT))
    }

    /// Replaces `before` by `now` in the sum of a class.
    #[inline]
    pub(crate) fn adjust(&self, class: Class, before: usize, now: usize) {
        // A decrease is the addition of its two's complement, which wraps.
        let difference = now.wrapping_sub(before);
        if difference != 0 {
            self.classes[class as usize].fetch_add(difference, Ordering::Relaxed);
            self.counted.fetch_add(difference, Ordering::Relaxed);
        }
    }
}

fn percent(bytes: usize, share: usize) -> usize {
    bytes / 100 * share
}

/// The number of bytes that a queue holds, for the queue's own bound and for the ledger.
#[derive(Debug)]
pub struct Charge {
    ledger: Arc<Ledger>,
    class: Class,
    bytes: AtomicUsize,
}

impl Charge {
    /// A charge of 0 bytes to one class.
    pub fn new(ledger: Arc<Ledger>, class: Class) -> Self {
        Self { ledger, class, bytes: AtomicUsize::new(0) }
    }

    /// A charge of `bytes`, held until it is dropped.
    pub fn of(ledger: Arc<Ledger>, class: Class, bytes: usize) -> Self {
        ledger.adjust(class, 0, bytes);
        Self { ledger, class, bytes: bytes.into() }
    }

    /// Adds bytes that the queue holds.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ledger.adjust(self.class, 0, bytes);
    }

    /// Subtracts bytes that the queue no longer holds.
    pub fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.ledger.adjust(self.class, bytes, 0);
    }

    /// Sets the bytes that the queue holds. Only for queues that one thread at a time changes.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.ledger.adjust(self.class, before, bytes);
    }

    /// The bytes that the queue holds.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.adjust(self.class, self.bytes(), 0);
    }
}

/// The classes that one connection or client can hold.
pub const HOLDING_CLASSES: [Class; 6] = [
    Class::ReceiveBuffers,
    Class::Messages,
    Class::Bodies,
    Class::Attachments,
    Class::Replies,
    Class::PollRecords,
];

/// Bytes held of each of the [`HOLDING_CLASSES`].
pub type Held = [usize; HOLDING_CLASSES.len()];

/// The memory that one connection or client holds besides its fixed size.
#[derive(Debug, Default)]
pub struct Holding(Option<Box<HeldBytes>>);

#[derive(Debug)]
struct HeldBytes {
    ledger: Arc<Ledger>,
    held: Held,
}

impl Holding {
    /// Sets the number of bytes held. Returns the increase in bytes.
    pub fn set(&mut self, ledger: &Arc<Ledger>, held: Held) -> usize {
        if self.0.is_none() && held.iter().all(|bytes| *bytes == 0) {
            return 0;
        }
        let before = self.bytes();
        let entry = self
            .0
            .get_or_insert_with(|| Box::new(HeldBytes { ledger: ledger.clone(), held: Held::default() }));
        entry.replace(held);
        let now = self.bytes();
        if now == 0 {
            self.0 = None;
        }
        now.saturating_sub(before)
    }

    /// Sets the number of bytes held after a decrease.
    pub fn lower(&mut self, held: Held) {
        let Some(entry) = &mut self.0 else { return };
        entry.replace(held);
        if self.bytes() == 0 {
            self.0 = None;
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |entry| entry.held.iter().sum())
    }

    /// Returns `true` if no bytes are held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl HeldBytes {
    fn replace(&mut self, held: Held) {
        for ((class, before), now) in HOLDING_CLASSES.iter().zip(self.held).zip(held) {
            self.ledger.adjust(*class, before, now);
        }
        self.held = held;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.replace(Held::default());
    }
}

/// The classes that a core reports. The last one, for answers in flight, is measured by the core's driver.
const REPORT_CLASSES: [Class; 6] = [
    Class::Connections,
    Class::Sessions,
    Class::Subscriptions,
    Class::Rooms,
    Class::Outboxes,
    Class::Replies,
];

/// The memory of one core, as of its last turn.
#[derive(Debug)]
pub struct Report {
    ledger: Arc<Ledger>,
    held: [usize; REPORT_CLASSES.len()],
}

impl Report {
    /// A report of 0 bytes.
    pub fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, held: Default::default() }
    }

    /// Sets the bytes held: connections, sessions, subscriptions, rooms, outboxes, answers in flight.
    #[inline]
    pub fn set(&mut self, held: [usize; REPORT_CLASSES.len()]) {
        if held != self.held {
            self.replace(held);
        }
    }

    fn replace(&mut self, held: [usize; REPORT_CLASSES.len()]) {
        for ((class, before), now) in REPORT_CLASSES.iter().zip(self.held).zip(held) {
            self.ledger.adjust(*class, before, now);
        }
        self.held = held;
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.replace(Default::default());
    }
}

#[cfg(test)]
mod tests;
