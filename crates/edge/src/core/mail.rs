//! Messages between cores.

use super::Connections;
use super::table::Held;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use stentor_driver::mailbox::{Receiver, Sender};
use stentor_driver::{DetachedConnection, Driver, Frame};
use stentor_hub::{CoreId, Dispatch};
use stentor_session::app::ClientIdentity;
use stentor_session::executor::Executor;
use stentor_session::identity::Sid;
use stentor_session::limits::Slot;
use stentor_session::protocols::engineio::MigratedClient;
use stentor_session::protocols::http::MovedRequest;
use stentor_session::protocols::websocket::WebSocket;

/// A message from one core to another.
pub(crate) enum CoreMessage {
    /// A message from one shard of the hub to another.
    Dispatch(Dispatch<Frame>),
    /// A connection that moves, at a request boundary with no bytes in flight.
    Connection(Box<Arrival>),
    /// A client that moves. It is sent before the connections that name it.
    Client(Box<Migration>),
    /// The end of a client that was moved, for the core that its id names.
    Ended(Sid),
}

/// A connection that moves to another core.
pub(crate) struct Arrival {
    pub(super) detached: DetachedConnection,
    pub(super) peer: SocketAddr,
    pub(super) moved: MovedRequest,
    pub(super) slot: Slot,
    pub(super) begins_tls: bool,
}

/// A core's ends of the rings to and from each other core. The entries for the core itself are empty.
pub(crate) struct Mailboxes {
    pub(crate) to: Vec<Option<Sender<CoreMessage>>>,
    pub(crate) from: Vec<Option<Receiver<CoreMessage>>>,
    /// Connections and clients that found no room in a ring, by core. They are bounded by the number of connections and clients
    /// of this core.
    pub(super) waiting: Vec<VecDeque<CoreMessage>>,
}

impl Mailboxes {
    /// Mailboxes of one of `cores` cores, connected to none yet.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            to: (0..cores).map(|_| None).collect(),
            from: (0..cores).map(|_| None).collect(),
            waiting: (0..cores).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Sends `mail` to another core after all earlier messages to it. Returns `true` if it has been sent. Otherwise it is sent as
    /// soon as the ring has room.
    fn post(&mut self, core: CoreId, mail: CoreMessage) -> bool {
        let (Some(sender), waiting) = (&mut self.to[core], &mut self.waiting[core]) else { return true };
        if waiting.is_empty() {
            match sender.try_send(mail) {
                Ok(()) => sender.flush(),
                Err(mail) => waiting.push_back(mail),
            }
        } else {
            waiting.push_back(mail);
        }
        waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from.iter().flatten().all(Receiver::is_empty)
    }
}

/// Messages between this core and the others.
///
/// **Invariant.** Messages to a core arrive in the order in which they were posted.
pub(super) struct Mail {
    pub(super) mailboxes: Mailboxes,
    /// `true` if a message for another core didn't fit into its ring.
    pub(super) waits: bool,
    /// Value of [`Executor::dispatches`] when messages were last sent.
    pub(super) dispatches_sent: u64,
}

impl Mail {
    pub(super) fn new(mailboxes: Mailboxes) -> Self {
        Self { mailboxes, waits: false, dispatches_sent: 0 }
    }

    /// Sends new messages to other cores. Called before clients are answered: a client that reads `ok` may cause a publication on
    /// another core at once.
    #[inline]
    pub(super) fn send_new(&mut self, ex: &mut Executor) {
        if ex.dispatches() != self.dispatches_sent {
            self.send(ex);
        }
    }

    /// Returns `true` if there are messages that haven't been sent.
    #[inline]
    pub(super) fn has_unsent(&self, ex: &Executor) -> bool {
        self.waits || ex.dispatches() != self.dispatches_sent
    }

    /// Sends the shard's messages to other cores and to the broker. Messages that don't fit stay here, and the core doesn't read
    /// from publishing connections until they have been sent.
    pub(super) fn send(&mut self, ex: &mut Executor) {
        let has_changed = ex.retry_broker();
        let for_broker = ex.waiting_for_broker();
        if has_changed || for_broker > 0 {
            ex.metrics().broker_waiting.set(for_broker as u64);
        }
        if has_changed {
            ex.shared.set_broker_behind(for_broker > 0);
        }
        let bytes_max = ex.options().limits.mailbox_bytes_max;
        self.dispatches_sent = ex.dispatches();
        let (mut waiting, own_core) = (0, ex.core());
        for core in 0..self.mailboxes.to.len() {
            let Some(sender) = self.mailboxes.to[core].as_mut() else { continue };
            let outgoing = ex.hub.outgoing(core);
            let others = &mut self.mailboxes.waiting[core];
            if sender.is_disconnected() {
                // The other core is drained and has no subscribers left.
                outgoing.clear();
                others.clear();
            }
            let in_ring_bytes = ex.shared.mail_bytes(own_core, core);
            let mut ring_bytes = in_ring_bytes.load(Ordering::Relaxed);
            let mut sent = false;
            while let Some(message) = others.pop_front() {
                match sender.try_send(message) {
                    Ok(()) => sent = true,
                    Err(message) => {
                        others.push_front(message);
                        break;
                    }
                }
            }
            while ring_bytes <= bytes_max
                && let Some(dispatch) = outgoing.pop_front()
            {
                let bytes = dispatch.weight_bytes();
                // The bytes are added before the other core can subtract them.
                ring_bytes = in_ring_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
                match sender.try_send(CoreMessage::Dispatch(dispatch)) {
                    Ok(()) => sent = true,
                    Err(message) => {
                        in_ring_bytes.fetch_sub(bytes, Ordering::Relaxed);
                        if let CoreMessage::Dispatch(dispatch) = message {
                            outgoing.put_back(dispatch);
                        }
                        break;
                    }
                }
            }
            waiting += outgoing.len() + others.len();
            if sent {
                sender.flush();
            }
        }
        ex.metrics().mailbox_overflow.set(waiting as u64);
        self.waits = waiting > 0 || for_broker > 0;
    }

    /// Sends a client to another core.
    pub(super) fn post_client(&mut self, core: CoreId, migration: Migration) {
        self.post(core, CoreMessage::Client(Box::new(migration)));
    }

    /// Sends a message to another core after all earlier messages to it.
    pub(super) fn post(&mut self, core: CoreId, mail: CoreMessage) {
        self.waits |= !self.mailboxes.post(core, mail);
    }
}

impl<D: Driver> Connections<D> {
    /// Resumes reading from publishing connections, if other cores and the broker have room.
    pub(super) fn resume_publishers(&mut self, ex: &mut Executor) {
        if self.waiting_for_cores.is_empty() || is_congested(ex) {
            return;
        }
        for conn in std::mem::take(&mut self.waiting_for_cores) {
            let Some(index) = self.table.index_of(conn) else { continue };
            self.release(index, Held::CORES);
            self.revisit.push_back(index);
        }
    }

    /// Stops reading from a connection that produces messages faster than other cores receive them.
    pub(super) fn hold_if_congested(&mut self, ex: &mut Executor, index: usize) {
        if is_congested(ex)
            && let Some(conn) = self.table.get(index)
            && !conn.held.has(Held::CORES)
        {
            // Closed connections are removed from the list now and then, not each when it closes.
            if self.waiting_for_cores.len() > 2 * self.table.count() {
                let table = &self.table;
                self.waiting_for_cores.retain(|waiting| table.index_of(*waiting).is_some());
            }
            self.waiting_for_cores.push(conn.id);
            self.hold(index, Held::CORES);
        }
    }
}

/// Returns `true` if publishing connections must wait for another core or for the broker.
fn is_congested(ex: &mut Executor) -> bool {
    ex.waiting_for_broker() > 0 || are_cores_behind(ex)
}

/// Returns `true` if another core is behind by more than one ring, in messages, bytes or answers.
pub(super) fn are_cores_behind(ex: &mut Executor) -> bool {
    let limits = &ex.options().limits;
    let (messages_max, bytes_max) = (limits.mailbox_messages_max, limits.mailbox_bytes_max);
    (0..ex.shared.cores).any(|core| {
        let outgoing = ex.hub.outgoing(core);
        outgoing.pending() > messages_max || outgoing.weight_bytes() > bytes_max
    })
}

/// A client that moves to another core.
pub(crate) struct Migration {
    pub(super) client: MigratedClient,
    pub(super) carrier: Option<TransferredSocket>,
    pub(super) probe: Option<(TransferredSocket, bool)>,
    pub(super) identity: Option<ClientIdentity>,
}

/// A WebSocket that moves to another core.
pub(super) struct TransferredSocket {
    pub(super) detached: DetachedConnection,
    pub(super) socket: WebSocket,
    pub(super) slot: Slot,
}
