//! What is the same for all client sessions that outlive their connections: those of Engine.IO and of SockJS over HTTP.
//!
//! ```text
//!  messages ──────► queue ──┐                   ┌─► one answer (a poll), which ends with it
//!  publications ──► hub ────┴─► flush ──────────┼─► an answer that goes on (a stream)
//!                                               └─► a WebSocket
//! ```
//!
//! **Invariants.** A client ends once: its sessions at once, then the connection that carries it is told; a client
//! that comes later is told for a while. `queue` holds records only until the next flush while a WebSocket carries the
//! client.

use crate::executor::Executor;
use crate::identity::{ClientId, ClientKind, End, Sid};
use crate::ledger::{Held, Holding};
use crate::millis::Millis;
use crate::model::{ConnId, CoreId};

/// Bytes of publications in one answer to a poll, unless one is larger by itself.
pub(crate) const POLL_BYTES_MAX: usize = 1 << 20;
/// Publications in one answer to a poll.
pub(crate) const POLL_FRAMES_MAX: usize = 1_024;

/// The connection that carries a client's packets now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActiveTransport {
    /// None: a poll is awaited.
    None,
    /// The answer to a request that waits.
    Poll(ConnId),
    /// An answer that goes on.
    Stream(ConnId),
    WebSocket(ConnId),
}

impl ActiveTransport {
    pub(crate) fn conn(self) -> Option<ConnId> {
        match self {
            Self::None => None,
            Self::Poll(conn) | Self::Stream(conn) | Self::WebSocket(conn) => Some(conn),
        }
    }
}

/// What happens after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The following packets are handled.
    Continue,
    /// Nothing that follows is handled.
    Stop,
    /// The client moves to another core, where this packet is handled again.
    Migrate(CoreId),
    /// This packet is handled again when it is known whether the client may do what it asks for.
    Wait,
}

impl Next {
    pub(crate) fn if_continues(continues: bool) -> Self {
        if continues { Self::Continue } else { Self::Stop }
    }
}

/// What the core knows of the connection that carries a client, when a timeout is handled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransportStatus {
    /// The kernel has taken bytes since the last look.
    pub(crate) progressed: bool,
    /// Something is in flight.
    pub(crate) in_flight: bool,
    /// The server has paused reading, so it can't see what the client sends.
    pub(crate) paused_by_server: bool,
}

/// The state that all clients have.
pub(crate) struct ClientState {
    pub(crate) sid: Sid,
    /// Set by the table.
    pub(crate) id: ClientId,
    pub(crate) transport: ActiveTransport,
    /// What waits to be sent, as records (see [`crate::encode`]): packets of Engine.IO, messages of SockJS.
    pub(crate) queue: Vec<u8>,
    /// A number for the address of its first connection.
    pub(crate) source: u64,
    /// When something was last received.
    pub(crate) alive_at: Millis,
    /// When the next heartbeat, the answer to the last one, or the next request is due.
    pub(crate) due_at: Millis,
    /// It has ended, but for the next request, which is answered with the end.
    pub(crate) ended: bool,
    /// It has ended, and nobody finds it any more.
    pub(crate) removed: bool,
    /// The client has ended and may reconnect at once.
    pub(crate) may_reconnect: bool,
    /// Memory held besides the client itself.
    pub(crate) holding: Holding,
}

impl ClientState {
    pub(crate) fn new(
        sid: Sid,
        source: u64,
        transport: ActiveTransport,
        now: Millis,
        due_at: Millis,
    ) -> Self {
        Self {
            sid,
            id: ClientId::new(ClientKind::EngineIo, 0, 0),
            transport,
            queue: Vec::new(),
            source,
            alive_at: now,
            due_at,
            ended: false,
            removed: false,
            may_reconnect: false,
            holding: Holding::default(),
        }
    }

    /// The client ends, for this reason. Returns whether it hadn't ended before.
    pub(crate) fn begin_end(&mut self, ex: &Executor, end: End) -> bool {
        if self.ended {
            return false;
        }
        if let End::Because(why) = end {
            ex.count_disconnect(why);
        }
        self.ended = true;
        self.may_reconnect = end.may_reconnect();
        true
    }

    /// Bytes held besides the client, by [`crate::ledger::HOLDING_CLASSES`].
    pub(crate) fn held(&self, attachments: usize) -> Held {
        [0, 0, 0, attachments, 0, self.queue.capacity()]
    }
}
