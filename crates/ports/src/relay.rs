//! Several nodes: the port through which a connection is passed to the node that has its client's session.
//!
//! ```text
//!  client ── this core ── Relay::relay ──► another node: NodeInbox::adopt(Relayed) ── its core
//!                            └── that node can't be reached: NodeInbox::adopt(Returned) ── a core of this node
//! ```
//!
//! The connection leaves the data plane as a socket, with the bytes that were read from it, at a request boundary with no answer
//! in flight. From then on, no core of this node reads or writes its bytes.

use super::{Done, NodeTag};
use crate::ledger::{Charge, Class, Ledger};
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Approximate size of a relayed connection, without its buffers, in bytes.
const RELAYED_BYTES: usize = 2_048;

/// A client's connection outside of the data plane, at a request boundary.
#[derive(Debug)]
pub struct ClientConnection {
    /// The socket, in non-blocking mode.
    pub socket: TcpStream,
    /// The client's address, or that of its load balancer.
    pub peer: SocketAddr,
    /// Bytes that were read from the socket.
    pub input: Vec<u8>,
    /// `true` if the client uses TLS to the node that it connected to. `input` is plaintext in any case.
    pub is_tls: bool,
    /// `true` if the other end of the socket was an authenticating proxy, which may name users.
    pub is_gateway: bool,
}

/// The reason why a core receives a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Another node passed the connection through. This node answers one request and then closes the connection.
    Relayed,
    /// The connection's target node can't be reached. This node answers the next request.
    Returned,
}

/// Counts a relayed connection and charges its memory until the permit is dropped.
#[derive(Debug)]
pub struct RelayPermit {
    charge: Charge,
    count: Arc<AtomicUsize>,
}

impl RelayPermit {
    /// A permit for one more connection. `None` if `max` connections have permits.
    pub fn new(ledger: &Arc<Ledger>, count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let has_room = |count: usize| (count < max).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).ok()?;
        let charge = Charge::of(ledger.clone(), Class::Relays, RELAYED_BYTES);
        Some(Self { charge, count: count.clone() })
    }

    /// Sets the number of buffered bytes.
    pub fn set_buffered(&self, bytes: usize) {
        self.charge.set(RELAYED_BYTES + bytes);
    }
}

impl Drop for RelayPermit {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Claims the name of a session for this node until the claim is dropped.
pub trait SessionClaim: fmt::Debug + Send + Sync {}

/// The node that has a session.
#[derive(Clone, Debug)]
pub enum Location {
    /// This node, for which the name is claimed.
    Here(Arc<dyn SessionClaim>),
    /// Another node, which is alive.
    Node(NodeTag),
    /// No known node: the session doesn't exist, its node is dead, or the engine can't be asked.
    Unknown,
}

/// The name that a client chose for its session.
#[derive(Clone, Copy, Debug)]
pub struct SessionName<'a> {
    /// The prefix of the service in the path.
    pub prefix: &'a str,
    /// The key in the path.
    pub key: Option<&'a str>,
    /// The session's part of the path.
    pub session: &'a str,
}

/// Passes connections to the nodes that have their clients' sessions. The cores call it on their threads, so it must not
/// block.
pub trait Relay: fmt::Debug + Send + Sync {
    /// `true` if a node is alive and can be connected to.
    fn reaches(&self, node: NodeTag) -> bool;

    /// Passes a connection to a node. If the node can't be reached, the connection returns
    /// ([`NodeInbox::adopt`](crate::NodeInbox::adopt)).
    fn relay(&self, node: NodeTag, connection: ClientConnection, permit: RelayPermit);

    /// Looks up a node that isn't known to be alive: the node may have started just now.
    fn find(&self, node: NodeTag, done: Done<Location>);

    /// Looks up which node has a session. With `claims`, a session that no node has is claimed for this node.
    fn locate(&self, session: SessionName<'_>, claims: bool, done: Done<Location>);
}
