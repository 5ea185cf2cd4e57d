//! Calls for the service: reports of the cores, connections of the admin port, and messages of other nodes.
//!
//! **Invariant.** A call of a core takes a lock that the service holds only to take all calls at once.

use crate::connection::Connection;
use crate::known::handshake_bytes;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use stentor_link::HEADER_BYTES;
use stentor_ports::{
    Charge, Class, Ledger, LinkDescription, LinkRefused, LinkReport, LinkSelected, LinkSession, LinkSink,
};

/// Above this number of bytes, the inbox refuses requests and messages of clients.
const BYTES_MAX: usize = 8 << 20;
/// Above this number of bytes, the inbox drops messages of other nodes. The applications share it equally, so that one's messages don't
/// displace another's.
pub(crate) const NODES_BYTES_MAX: usize = 8 << 20;
/// Types of the entries that are dropped only above twice the share: WORKERS and SELECT. A lost broadcast is one message less, but a
/// socket that wasn't disconnected, or hasn't left a room, stays.
const MEMBERSHIP_TYPES: [u8; 2] = [1, 3];

/// A call of a core.
#[derive(Debug)]
pub(crate) enum Call {
    Report(LinkSession, LinkReport),
    Selected(LinkSelected),
    Refused(LinkRefused),
}

/// A call of the cluster.
#[derive(Debug)]
pub(crate) enum NodeCall {
    /// A message of another node about the application with this number.
    Message(u64, usize, Bytes),
    /// A node has left.
    Left(u64),
}

/// Calls of the cluster, in order.
#[derive(Default)]
struct NodeCalls {
    calls: VecDeque<NodeCall>,
    bytes: usize,
    /// Size of the messages about each application.
    bytes_by_app: BTreeMap<usize, usize>,
}

impl NodeCalls {
    fn push(&mut self, call: NodeCall, charge: &Charge) {
        let mut bytes = size_of::<NodeCall>();
        if let NodeCall::Message(_, app, message) = &call {
            bytes += message.len();
            *self.bytes_by_app.entry(*app).or_default() += bytes;
        }
        charge.add(bytes);
        self.bytes += bytes;
        self.calls.push_back(call);
    }
}

/// Changes of the connection to the cluster's engine. They aren't in order with other calls, because they end what a blocked service
/// waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineChanges {
    /// `true` if the connection was lost.
    pub(crate) is_lost: bool,
    /// `true` if the engine is connected now, perhaps after the loss.
    pub(crate) is_connected: bool,
}

/// A connection of a worker that hasn't sent HELLO.
pub(crate) struct Joining {
    /// The number of the application.
    pub(crate) app: usize,
    /// The worker's address.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) connection: Connection,
    pub(crate) counted: Counted,
}

/// Counts a connection until it is dropped.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Counts a connection. `None` if `count_max` connections are already counted.
    pub(crate) fn new(count: &Arc<AtomicUsize>, count_max: usize) -> Option<Self> {
        let counted = Self(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < count_max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls since the service took the last ones.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) calls: VecDeque<Call>,
    nodes: NodeCalls,
    /// Number of messages of other nodes that were dropped, by the number of the application.
    pub(crate) dropped: BTreeMap<usize, u64>,
    /// `None`: no change.
    pub(crate) engine: Option<EngineChanges>,
    /// Connections of workers.
    pub(crate) connections: Vec<Joining>,
    /// `true` if an inbox of a core has space again.
    pub(crate) has_space: bool,
    /// `true` if the service ends.
    pub(crate) is_stopped: bool,
    /// `true` if the service has ended: calls are dropped.
    is_closed: bool,
    /// `true` if a call was refused: its core waits for [`stentor_ports::LinkInbox::reports_have_space`].
    pub(crate) has_refused: bool,
    bytes: usize,
    waker: Option<Waker>,
}

/// The inbox of the service.
pub(crate) struct Inbox {
    calls: Mutex<Calls>,
    /// `true` while the service handles calls, or keeps sockets that other nodes may take.
    keeps_sockets: AtomicBool,
    /// `true` if a core waits for the end of that.
    is_awaited: AtomicBool,
    /// Names of the applications, by number.
    apps: Vec<Box<str>>,
    charge: Charge,
}

stentor_ports::opaque_debug!(Inbox, "Inbox");

fn bytes_of(call: &Call) -> usize {
    size_of::<Call>()
        + match call {
            Call::Report(_, LinkReport::Messages(messages)) => {
                messages.iter().map(|message| size_of_val(message) + message.data().len()).sum()
            }
            Call::Report(_, LinkReport::Opened(_, handshake)) => handshake_bytes(handshake),
            Call::Report(_, LinkReport::Described(LinkDescription { sockets, .. }))
            | Call::Report(_, LinkReport::Closed { sockets, .. }) => {
                let rooms = sockets.iter().flat_map(|socket| &socket.rooms);
                rooms.map(|room| size_of_val(room) + room.len()).sum()
            }
            Call::Report(..) => 0,
            Call::Selected(selected) => size_of_val(&*selected.sessions),
            Call::Refused(refused) => handshake_bytes(&refused.request) + refused.context.1.len(),
        }
}

impl Inbox {
    pub(crate) fn new(apps: Vec<Box<str>>, ledger: Arc<Ledger>) -> Self {
        let charge = Charge::new(ledger, Class::Link);
        Self { calls: Mutex::default(), keeps_sockets: false.into(), is_awaited: false.into(), apps, charge }
    }

    /// Changes the calls, and wakes the service.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Calls) -> T) -> T {
        let mut calls = self.calls.lock();
        let result = change(&mut calls);
        let waker = calls.waker.take();
        drop(calls);
        // The service sleeps if its waker is there.
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    fn push(&self, call: Call) {
        let bytes = bytes_of(&call);
        self.change(|calls| {
            if !calls.is_closed {
                self.charge.add(bytes);
                calls.bytes += bytes;
                calls.calls.push_back(call);
            }
        });
    }

    /// Drops all calls from now on.
    pub(crate) fn close(&self) {
        self.take();
        self.take_of_nodes();
        self.calls.lock().is_closed = true;
        self.finish(false);
    }

    /// Takes all calls but those of the cluster.
    pub(crate) fn take(&self) -> Calls {
        let mut calls = self.calls.lock();
        let nodes = std::mem::take(&mut calls.nodes);
        let taken = std::mem::replace(&mut *calls, Calls { nodes, ..Calls::default() });
        self.keeps_sockets.store(true, Ordering::SeqCst);
        drop(calls);
        self.charge.subtract(taken.bytes);
        taken
    }

    /// The service has handled the calls that it has taken, and keeps sockets or not. Returns `true` if a core waits for their end, which
    /// has come.
    pub(crate) fn finish(&self, keeps_sockets: bool) -> bool {
        self.keeps_sockets.store(keeps_sockets, Ordering::SeqCst);
        !keeps_sockets && self.is_awaited.swap(false, Ordering::SeqCst)
    }

    /// Takes all calls of the cluster.
    pub(crate) fn take_of_nodes(&self) -> VecDeque<NodeCall> {
        let taken = std::mem::take(&mut self.calls.lock().nodes);
        self.charge.subtract(taken.bytes);
        taken.calls
    }

    /// Registers the service's waker for the next call. Returns `false` if calls already wait. Calls of other nodes are ignored
    /// while the service is blocked.
    pub(crate) fn register(&self, waker: &Waker, is_blocked: bool) -> bool {
        let mut calls = self.calls.lock();
        let is_empty = calls.calls.is_empty()
            && (is_blocked || calls.nodes.calls.is_empty())
            && calls.engine.is_none()
            && calls.connections.is_empty()
            && !(calls.has_space || calls.is_stopped || calls.has_refused);
        calls.waker = is_empty.then(|| waker.clone());
        is_empty
    }
}

/// Calls of the cluster.
impl Inbox {
    /// Takes a message of another node. Drops and counts it if the application has more than its share of waiting messages, or twice
    /// its share if the message changes members. All entries of a message are of one kind.
    pub(crate) fn receive(&self, node: u64, app: &str, message: &Bytes) {
        let Some(app) = self.apps.iter().position(|known| **known == *app) else { return };
        let changes_members = message.get(HEADER_BYTES).is_some_and(|first| MEMBERSHIP_TYPES.contains(first));
        let share = NODES_BYTES_MAX / self.apps.len() * if changes_members { 2 } else { 1 };
        self.change(|calls| {
            if calls.nodes.bytes_by_app.get(&app).is_some_and(|bytes| *bytes > share) {
                *calls.dropped.entry(app).or_default() += 1;
            } else if !calls.is_closed {
                calls.nodes.push(NodeCall::Message(node, app, message.clone()), &self.charge);
            }
        });
    }

    pub(crate) fn node_left(&self, node: u64) {
        self.change(|calls| {
            if !calls.is_closed {
                calls.nodes.push(NodeCall::Left(node), &self.charge);
            }
        });
    }

    pub(crate) fn engine_changed(&self, is_connected: bool) {
        self.change(|calls| {
            let changes = calls.engine.get_or_insert_default();
            changes.is_lost |= !is_connected;
            changes.is_connected = is_connected;
        });
    }
}

impl LinkSink for Inbox {
    fn report(&self, session: LinkSession, report: LinkReport) -> Result<(), LinkReport> {
        if let LinkReport::Opened(..) | LinkReport::Messages(_) = report {
            let mut calls = self.calls.lock();
            if calls.bytes > BYTES_MAX {
                calls.has_refused = true;
                return Err(report);
            }
        }
        self.push(Call::Report(session, report));
        Ok(())
    }

    fn report_selected(&self, selected: LinkSelected) {
        self.push(Call::Selected(selected));
    }

    fn report_refused(&self, refused: LinkRefused) {
        if self.calls.lock().bytes <= BYTES_MAX {
            self.push(Call::Refused(refused));
        }
    }

    fn space(&self) {
        self.change(|calls| calls.has_space = true);
    }

    fn keeps_sockets(&self) -> bool {
        // In this order: either this core or the service sees what the other one has written.
        self.is_awaited.store(true, Ordering::SeqCst);
        !self.calls.lock().calls.is_empty() || self.keeps_sockets.load(Ordering::SeqCst)
    }
}
