//! Several nodes: the port through which a connection leaves for the node that has its client's session.
//!
//! ```text
//!  client ── this core ── Relay::relay ──► another node: NodeInbox::adopt(Relayed) ── its core
//!                            └── that node can't be reached: NodeInbox::adopt(Returned) ── a core of this node
//! ```
//!
//! The connection leaves as a socket, with what was read of it, where a request begins and nothing is in flight: from then on its
//! bytes concern no core of this node.

use super::{Done, NodeTag};
use crate::ledger::Charge;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Approximate size of a connection that is passed through, its buffers excluded.
const RELAYED_BYTES: usize = 2_048;

/// A client's connection outside of the data plane, where a request begins.
#[derive(Debug)]
pub struct ClientConnection {
    /// The socket. It doesn't block.
    pub socket: TcpStream,
    /// The client's address, or that of its load balancer.
    pub peer: SocketAddr,
    /// What was read of it.
    pub input: Vec<u8>,
    /// The client speaks TLS with the node that it connected to. What is read here is plaintext.
    pub is_tls: bool,
}

/// Where a connection comes from that a core is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Another node has passed it through. Its only request is answered here, and it ends then.
    Relayed,
    /// The node that it was meant for can't be reached: its next request is answered here.
    Returned,
}

/// A connection counts, and what it holds is charged, until this is dropped.
#[derive(Debug)]
pub struct RelayPermit {
    charge: Charge,
    count: Arc<AtomicUsize>,
}

impl RelayPermit {
    /// A permit for one more, unless `max` have one.
    pub fn new(charge: Charge, count: Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let has_room = |count: usize| (count < max).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).ok()?;
        charge.add(RELAYED_BYTES);
        Some(Self { charge, count })
    }

    /// Sets how many bytes are buffered.
    pub fn set_buffered(&self, bytes: usize) {
        let before = self.charge.bytes() - RELAYED_BYTES;
        self.charge.add(bytes);
        self.charge.subtract(before);
    }
}

impl Drop for RelayPermit {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps the name of a session for this node as long as it lives.
pub trait SessionClaim: fmt::Debug + Send + Sync {}

/// Where requests of a session belong.
#[derive(Clone, Debug)]
pub enum Location {
    /// To this node: the name is claimed for it.
    Here(Arc<dyn SessionClaim>),
    /// To another node, which is alive.
    Node(NodeTag),
    /// To none that is known: there is no such session, its node is dead, or nobody could be asked.
    Unknown,
}

/// The name of a session, as its client has chosen it.
#[derive(Clone, Copy, Debug)]
pub struct SessionName<'a> {
    /// The prefix of its service.
    pub prefix: &'a str,
    /// The key in its path.
    pub key: Option<&'a str>,
    /// The rest.
    pub session: &'a str,
}

/// Passes connections through to the nodes that have their clients' sessions. It is called on the threads of the cores, so it
/// must not block.
pub trait Relay: fmt::Debug + Send + Sync {
    /// Whether a node is alive and can be connected to.
    fn reaches(&self, node: NodeTag) -> bool;

    /// Passes a connection through to a node. If that isn't possible, it comes back
    /// ([`NodeInbox::adopt`](crate::NodeInbox::adopt)).
    fn relay(&self, node: NodeTag, connection: ClientConnection, permit: RelayPermit);

    /// Looks for a node that isn't known to be alive: it may have started a moment ago.
    fn find(&self, node: NodeTag, done: Done<Location>);

    /// Looks up which node has a session. `claims`: if none has it, this one claims it.
    fn locate(&self, session: SessionName<'_>, claims: bool, done: Done<Location>);
}
