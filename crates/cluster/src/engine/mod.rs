//! Engines carry messages between nodes, and store the state that must survive a node.
//!
//! [`Engine`] is the contract; `tests/contract` checks it for each implementation. In short:
//!
//! - **Messages** on a channel reach each node that is interested in it at most once, those of one node in the order in
//!   which it published them. A node receives its own.
//! - **Appended messages** have a position that the engine assigns: consecutive offsets within an epoch. Messages of one node arrive in
//!   the order of their offsets. If several nodes append at the same time, a later message may arrive first: NATS publishes each message
//!   as soon as it is stored. When offsets start anew, or go back, the room has a new epoch.
//! - **Interest** is a state, not an event. The engine keeps the set of channels itself, and establishes all of it again after a
//!   lost connection. Then, and not before, it reports [`Event::Connected`]. Messages in between may be lost.
//! - **Silence is detected.** An engine proves for each of its connections, by a message to itself at least every
//!   [`PROBE_INTERVAL`], that messages still arrive. A connection that doesn't deliver for [`SILENCE_MAX`] is replaced.
//! - **Bounds.** The queues in both directions are bounded ([`Limits`]), and charged to the process's [ledger](stentor_ports::Ledger).
//!   A node that takes its events too slowly sees a lost connection.
//!
//! An answer [`EngineError::Unavailable`] leaves open whether the request had an effect.

pub(crate) mod common;
mod connect;
mod events;
pub mod memory;
pub mod nats;
pub mod redis;

pub use connect::{ConnectError, ConnectOptions, Connected, connect};
pub use events::{EventReceiver, EventSender, EventsWaiting, events};
pub use stentor_cluster_settings::{Address, Identity, Kind};

use crate::NodeId;
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Epoch, HistoryLimits, Key, Position, Room, Topic};
use tokio::time::{Instant, timeout_at};

/// Interval at which an engine checks each of its connections.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Time without an arriving message after which a connection is replaced.
pub const SILENCE_MAX: Duration = Duration::from_secs(6);
/// Usual maximum time that a message takes from one server of a cluster to another one.
const SERVERS_DELAY: Duration = Duration::from_millis(50);
/// Time for which the term of a feed without a log outlasts its lease. Later terms are greater by the clock.
pub const TERM_TTL: Duration = Duration::from_secs(10);
/// Maximum size of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Maximum number of nodes that are known; further ones are ignored.
pub const NODES_MAX: usize = 1_000;
/// Maximum size of a node's record.
pub(crate) const RECORD_BYTES_MAX: usize = 4_096;
/// Maximum number of changes that a feed's log keeps after its base.
pub const FEED_CHANGES_MAX: usize = 1_024;
/// Maximum size of these changes together.
pub const FEED_CHANGES_BYTES_MAX: usize = 16 << 20;

stentor_ports::with_defaults! {
    /// Bounds of an engine's queues.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Maximum number of messages that wait to be published.
        pub outgoing_messages_max: usize = 16_384,
        /// Maximum size of these messages, and of the requests without an answer, in bytes. A single message or request may be
        /// larger.
        pub outgoing_bytes_max: usize = 16 << 20,
        /// Maximum number of requests without an answer.
        pub requests_max: usize = 1_024,
        /// Maximum number of events that the node hasn't taken.
        pub events_max: usize = 16_384,
        /// Maximum size of these events in bytes. A single event may be larger.
        pub events_bytes_max: usize = 16 << 20,
        /// Time after which a request without an answer is [`EngineError::Unavailable`].
        pub request_timeout: Duration = Duration::from_secs(2),
    }
}

impl Limits {
    /// Limits in proportion to a node's memory budget.
    pub fn within(memory_bytes_max: usize) -> Self {
        let default = Self::default();
        let share = (memory_bytes_max / 64).clamp(256 << 10, default.outgoing_bytes_max);
        Self { outgoing_bytes_max: share, events_bytes_max: share, ..default }
    }
}

/// Messages and requests that wait for an engine's server, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number of messages that wait to be published or are in transit.
    pub messages: usize,
    /// Size of these messages in bytes.
    pub messages_bytes: usize,
    /// Number of requests without an answer.
    pub requests: usize,
    /// Size of these requests in bytes.
    pub requests_bytes: usize,
}

/// The receivers of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The nodes that have subscribers of a topic.
    Topic(Topic),
    /// One node.
    Node(NodeId),
    /// All nodes.
    Nodes,
    /// The nodes that have an application with this name, whose code runs in workers.
    Application(Arc<str>),
}

impl From<Room> for Channel {
    fn from(room: Room) -> Self {
        Self::Topic(Topic::Room(room))
    }
}

impl From<Key> for Channel {
    fn from(key: Key) -> Self {
        Self::Topic(Topic::Feed(key))
    }
}

/// An event that an engine reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message arrived.
    Message {
        /// The channel on which it arrived.
        channel: Channel,
        /// The message's position, if the message was appended or is a version of a feed.
        position: Option<Position>,
        /// The content.
        payload: Bytes,
    },
    /// All interest is established, at the start or again. Earlier messages may have been missed.
    Connected,
    /// The connection is lost. The engine tries to connect again.
    Disconnected {
        /// The reason, for people. No secrets.
        reason: Arc<str>,
    },
}

/// The right to fetch a feed, for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// A number that grows with each holder of the key's lease.
    pub term: u64,
    /// A token that proves that this holder acquired the lease.
    pub token: u64,
}

/// A version of a feed, in the form in which its holder stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// A position greater than the previous one of the same epoch, or of a new epoch. It is the same position if only the feed's
    /// state has changed.
    pub position: Position,
    /// The change from the previous version. It is published to all interested nodes, and stored in the log.
    pub change: Bytes,
    /// The whole document, if the log begins anew with it. Otherwise, the change is appended.
    pub base: Option<Bytes>,
}

/// The log of a feed in an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedLog {
    /// The term of the holder that wrote the log.
    pub term: u64,
    /// The position of the base document.
    pub base_position: Position,
    /// The base document.
    pub base: Bytes,
    /// The changes since, oldest first, each with its position.
    pub changes: Vec<(Position, Bytes)>,
    /// `true` if newer versions may have been stored and lost, for example by a failover to a replica that lagged. Storing a base
    /// ends this.
    pub may_lack_newest: bool,
}

/// Time for which a room's newest position is kept, after its last message has expired and after a node's last request for it.
pub const HEAD_TTL: Duration = Duration::from_secs(60);

/// A part of a room's history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The newest position. `None` if the room never had a message, or all of its state has expired. An engine may begin the
    /// epoch of a room without messages when its history is read, with offset 0. This proves later that no message was missed.
    pub head: Option<Position>,
    /// Messages in the order of their offsets, consecutive.
    pub messages: Vec<(Position, Bytes)>,
    /// `true` if messages between the requested position and the first of `messages` have been removed.
    pub truncated: bool,
}

/// A request to an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Appends a message to the history of a room, and publishes it. Answered by [`Reply::Position`].
    Append {
        /// The room.
        room: Room,
        /// The content.
        payload: Bytes,
        /// A second request with the same key, within five minutes, has no effect and receives the same answer, unless the engine has lost
        /// its data.
        idempotency_key: Option<Arc<str>>,
        /// The limits of the history.
        limits: HistoryLimits,
    },
    /// Reads at most `messages_max` messages that follow a position and aren't older than `age_max`. Answered by [`Reply::History`].
    History {
        /// The room.
        room: Room,
        /// The position. If it is of another epoch than the room's, the answer begins with the oldest message and is truncated.
        since: Position,
        /// Maximum number of messages to read.
        messages_max: usize,
        /// Maximum age of the messages.
        age_max: Duration,
    },
    /// Reads the newest positions of rooms, and lets them last for [`HEAD_TTL`] from now. Answered by [`Reply::Heads`], in the same
    /// order.
    Heads {
        /// The rooms.
        rooms: Vec<Room>,
    },
    /// Begins a new epoch of a room, if its current epoch is this one. Answered by [`Reply::Done`], or by
    /// [`EngineError::Unsupported`] if the engine never returns to an earlier epoch.
    EndEpoch {
        /// The room.
        room: Room,
        /// The epoch that ends.
        epoch: Epoch,
    },
    /// Acquires the lease of a feed, unless another node holds it with the term `term_seen` or a greater one. A lease with a
    /// lesser term ends, because the engine has returned to an earlier state. The new term is greater than each earlier one and
    /// than `term_seen`. Answered by [`Reply::Lease`], with `None` if another node holds the lease.
    AcquireLease {
        /// The feed.
        key: Key,
        /// The greatest term that the node has seen of this feed.
        term_seen: u64,
        /// The duration of the lease.
        ttl: Duration,
    },
    /// Extends a lease to `ttl` from now. Answered by [`Reply::Lease`], with `None` if it was lost.
    RenewLease {
        /// The feed.
        key: Key,
        /// The lease.
        lease: Lease,
        /// The duration of the lease.
        ttl: Duration,
    },
    /// Ends a lease. Answered by [`Reply::Done`], whether or not it was held.
    ReleaseLease {
        /// The feed.
        key: Key,
        /// The lease.
        lease: Lease,
        /// Time for which the lease's term is kept if the feed has no log. After that, no state of the feed is left.
        term_ttl: Duration,
    },
    /// Stores a version of a feed and publishes its change. Answered by [`Reply::Done`], or [`EngineError::Fenced`]. Answered by
    /// [`EngineError::Refused`] if the log has no base, may lack newer versions, or has its maximum length ([`FEED_CHANGES_MAX`],
    /// [`FEED_CHANGES_BYTES_MAX`]). In this case, store the version with a base.
    StoreVersion {
        /// The feed.
        key: Key,
        /// The lease of the node that stores it.
        lease: Lease,
        /// The version.
        version: Version,
    },
    /// Reads the log of a feed. Answered by [`Reply::Feed`]. If versions may have been lost, the log is marked so, or is `None`.
    LoadFeed {
        /// The feed.
        key: Key,
    },
    /// Stores a node's record for `ttl`, and reads the records of all nodes. Answered by [`Reply::Nodes`].
    Heartbeat {
        /// The node.
        node: NodeId,
        /// The record.
        record: Bytes,
        /// The duration of the record, the same for all nodes. A shorter one may shorten those of other nodes.
        ttl: Duration,
    },
    /// Claims a name for a node, unless another node has it, and lets the claim last for `ttl`. Answered by
    /// [`Reply::Owner`].
    Claim {
        /// The name.
        name: Arc<str>,
        /// The node.
        owner: NodeId,
        /// The duration of the claim. Zero releases it.
        ttl: Duration,
    },
}

impl Request {
    /// The size of the request's largest part. More than [`PAYLOAD_BYTES_MAX`] is refused.
    pub(crate) fn largest_payload(&self) -> usize {
        match self {
            Self::Append { payload, .. } => payload.len(),
            Self::StoreVersion { version, .. } => {
                version.change.len().max(version.base.as_ref().map_or(0, Bytes::len))
            }
            Self::Heartbeat { record, .. } => record.len(),
            _ => 0,
        }
    }
}

/// An engine's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The position of the appended message.
    Position(Position),
    /// A part of a history.
    History(History),
    /// The newest positions.
    Heads(Vec<Option<Position>>),
    /// The lease, if it is held.
    Lease(Option<Lease>),
    /// The log of a feed, if there is one.
    Feed(Option<FeedLog>),
    /// The nodes that are alive, with their records.
    Nodes(Vec<(NodeId, Bytes)>),
    /// The node that has the name, if there is one.
    Owner(Option<NodeId>),
    /// The request was carried out.
    Done,
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The engine can't be reached, or didn't answer in time. Whether the request had an effect is unknown.
    #[error("the engine didn't answer: {0}")]
    Unavailable(Arc<str>),
    /// The engine refused the request, which had no effect.
    #[error("the engine refused the request: {0}")]
    Refused(Arc<str>),
    /// The engine carries out no requests of this kind.
    #[error("the engine doesn't support the request")]
    Unsupported,
    /// Another node holds the lease, or holds a later term.
    #[error("the lease was lost")]
    Fenced,
    /// The queue is full ([`Limits`]). The request had no effect.
    #[error("too much waits for the engine")]
    Full,
}

impl EngineError {
    fn connection_lost() -> Self {
        Self::Unavailable("the connection was lost".into())
    }
}

/// Refuses messages that are larger than [`PAYLOAD_BYTES_MAX`].
fn check_size(bytes: usize) -> Result<(), EngineError> {
    match bytes > PAYLOAD_BYTES_MAX {
        true => Err(EngineError::Refused("the message is too large".into())),
        false => Ok(()),
    }
}

/// The answer to a request that an engine can't send.
fn failed(error: EngineError) -> Answer {
    Box::pin(std::future::ready(Err(error)))
}

/// Limits the time of a request.
async fn in_time<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    let result = timeout_at(deadline, work).await;
    result.unwrap_or_else(|_| Err(EngineError::Unavailable("it took too long".into())))
}

/// The later answer to a request.
pub type Answer = Pin<Box<dyn Future<Output = Result<Reply, EngineError>> + Send>>;

/// One node's connection to an engine. Its [`Event`]s arrive in the [`EventReceiver`] that it was made with.
pub trait Engine: Send + Sync {
    /// Publishes a message, as soon as it is connected.
    ///
    /// # Errors
    /// [`EngineError::Full`], or [`EngineError::Refused`] if it is larger than [`PAYLOAD_BYTES_MAX`].
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError>;

    /// Maximum delay of a message behind a message that another node published later. Zero if all nodes use one server.
    fn delay_max(&self) -> Duration {
        Duration::ZERO
    }

    /// Time for which state of a room stays after its messages have reached their age.
    fn room_grace(&self) -> Duration {
        HEAD_TTL
    }

    /// Sets whether the node receives the messages of a channel. Until the engine has made the change, messages may still arrive
    /// or be missed. A node is always subscribed to its own [`Channel::Node`] and to [`Channel::Nodes`]. Returns `true` if the node's
    /// interest has changed.
    fn set_interest(&self, channel: Channel, is_interested: bool) -> bool;

    /// Makes a request. Requests of one node about one topic take effect in the order of the calls. A [`Request::History`] or
    /// [`Request::LoadFeed`] may wait until the interest in its topic is established, so that each message is in the answer or
    /// arrives as an event.
    fn request(&self, request: Request) -> Answer;

    /// Messages and requests that wait for the server.
    fn waiting(&self) -> Waiting {
        Waiting::default()
    }
}
