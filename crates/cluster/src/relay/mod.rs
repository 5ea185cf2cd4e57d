//! Passes clients' connections through to the nodes that have their sessions, and accepts such connections from other
//! nodes.
//!
//! ```text
//!  client ══ core ── Relay::relay ─► Relays ══ handshake, then bytes both ways ══ Relays ── NodeInbox::adopt ─► core
//!            └─◄──── adopt, if the other node can't be reached ──┘                (the node that has the session)
//! ```
//!
//! A polling client's request names its session. If another node has it, the core detaches the connection, which
//! becomes a [`tunnel`] to that node's internal [`listener`]. The listener gives it to a core there as if the client
//! had connected to it. That core answers one request and ends the connection, or speaks WebSocket on it. So a
//! connection is passed through once, and its bytes aren't read in between. No byte of the request is sent before the
//! other node has proved itself ([`handshake`]). If that node is dead or stopped, the core gets its connection back and
//! answers the request itself.
//!
//! A tunnel is two sockets and a loop on tokio. The alternative, a machine in the core that passes bounded messages to another
//! thread, would carry all bytes through the cores. With a file descriptor, flow control is the kernel's and an idle tunnel holds no
//! buffer. Simulated drivers have no descriptors; they close such a connection.
//!
//! The names of SockJS sessions, which their clients choose, are claimed in the engine ([`claims`]).

mod claims;
mod handshake;
mod listener;
mod metrics;
mod peers;
#[cfg(test)]
mod tests;
mod tunnel;

use crate::NodeId;
use crate::engine::Engine;
use crate::registry::NodeRecord;
use claims::Claims;
use handshake::{Client, Handshake, HandshakeError};
use metrics::{Counters, Failure};
use peers::{Found, Peers};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use stentor_ports::{
    ClientConnection, Done, Handover, Ledger, LocalNode, Location, Metric, NodeTag, Relay, RelayPermit,
    SessionName,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// Time for another node to accept a connection and prove itself: much longer than a living node needs.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// The reachability of the other nodes, for a node without its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// No other node can be reached.
    Nobody,
    /// Other nodes can be reached, but none of them is ready and has its engine.
    WithoutEngine,
    /// Another node is ready and has its engine.
    WithEngine,
}

/// One node's part in passing connections through. Create it within a tokio runtime.
pub struct Relays {
    this: Weak<Self>,
    node: NodeId,
    handshake: Handshake,
    peers: Arc<Peers>,
    claims: Arc<Claims>,
    plane: OnceLock<Arc<dyn LocalNode>>,
    counters: Arc<Counters>,
    runtime: Handle,
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relays").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Relays {
    /// Relays of a node. All nodes have the same secret, or none. Buffers are charged to `ledger`.
    pub fn new(
        node: NodeId,
        secret: Option<&[u8]>,
        engine: Arc<dyn Engine>,
        ledger: Arc<Ledger>,
    ) -> Arc<Self> {
        let (runtime, counters) = (Handle::current(), Arc::new(Counters::default()));
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            node,
            handshake: Handshake::new(node, secret),
            peers: Arc::default(),
            claims: Claims::new(node, engine, runtime.clone(), counters.clone(), ledger),
            plane: OnceLock::new(),
            counters,
            runtime,
        })
    }

    /// Accepts connections of other nodes from now on, for the cores of `plane`.
    pub fn start(self: &Arc<Self>, listener: TcpListener, plane: Arc<dyn LocalNode>) -> JoinHandle<()> {
        // A second call would be a bug of the node's start.
        assert!(self.plane.set(plane.clone()).is_ok());
        let this = self.clone();
        self.runtime.spawn(async move {
            tokio::join!(this.claims.keep(), listener::run(&this, listener, &plane));
        })
    }

    /// Handles the nodes that are alive.
    pub(crate) fn handle_nodes(&self, nodes: &BTreeMap<NodeId, NodeRecord>) {
        self.peers.update(self.node, nodes);
    }

    /// Waits until a request waits for an unknown node.
    pub(crate) async fn node_wanted(this: Option<&Self>) {
        match this {
            Some(this) => this.peers.wanted().await,
            None => std::future::pending().await,
        }
    }

    /// The metrics of a node's part. All values are zero if it has none.
    pub(crate) fn metrics(this: Option<&Self>) -> Vec<Metric> {
        match this {
            Some(this) => {
                [this.counters.metrics(), claims::metrics(&this.counters, this.claims.len())].concat()
            }
            None => {
                let counters = Counters::default();
                [counters.metrics(), claims::metrics(&counters, 0)].concat()
            }
        }
    }

    /// Asks the nodes that were alive at the last report whether they have their engine.
    pub(crate) async fn ask_others(this: Option<&Self>) -> Reach {
        let mut asked = JoinSet::new();
        for Found { node, address, .. } in this.map_or(Vec::new(), |this| this.peers.all()) {
            let Some(handshake) = this.map(|this| this.handshake.clone()) else { continue };
            asked.spawn(timeout(HANDSHAKE_TIMEOUT, async move {
                handshake.probe(&mut TcpStream::connect(&*address).await?, node).await
            }));
        }
        let mut reach = Reach::Nobody;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(Ok(true))) => return Reach::WithEngine,
                Ok(Ok(Ok(false))) => reach = Reach::WithoutEngine,
                // The node can't be reached.
                Ok(Ok(Err(_)) | Err(_)) | Err(_) => {}
            }
        }
        reach
    }

    /// Passes a connection through until either side ends it.
    async fn pass(
        &self,
        node: NodeId,
        address: Arc<str>,
        gone: watch::Receiver<()>,
        connection: ClientConnection,
        permit: RelayPermit,
    ) {
        let dialed = timeout(HANDSHAKE_TIMEOUT, self.dial(node, &address, &connection)).await;
        let owner = match dialed.unwrap_or(Err(Failure::TimedOut)) {
            Ok(owner) => owner,
            Err(failure) => {
                self.counters.count_failure(failure);
                tracing::debug!(%node, %address, reason = failure.name(), "a node can't be reached");
                // The connection is counted again where it arrives.
                drop(permit);
                return self.give_back(connection);
            }
        };
        let ClientConnection { socket, input, .. } = connection;
        let Ok(client) = TcpStream::from_std(socket) else { return };
        if tunnel::run(client, owner, input, gone, |bytes| permit.set_buffered(bytes)).await.is_err() {
            self.counters.count_failure(Failure::Broken);
        }
    }

    /// Gives a connection back to its core, which answers the request itself.
    fn give_back(&self, connection: ClientConnection) {
        if let Some(plane) = self.plane.get() {
            plane.adopt(connection, Handover::Returned);
        }
    }

    /// Connects to a node. Both nodes prove that they belong to the cluster.
    async fn dial(
        &self,
        node: NodeId,
        address: &str,
        connection: &ClientConnection,
    ) -> Result<TcpStream, Failure> {
        let mut owner = TcpStream::connect(address).await.map_err(|_| Failure::Unreachable)?;
        let _ = owner.set_nodelay(true);
        let ClientConnection { peer: address, is_tls, is_gateway, .. } = *connection;
        let client = Client { address, is_tls, is_gateway };
        match self.handshake.dial(&mut owner, node, client).await {
            Ok(()) => Ok(owner),
            Err(HandshakeError::NotAuthentic) => Err(Failure::NotAuthentic),
            Err(HandshakeError::Malformed | HandshakeError::Io(_)) => Err(Failure::Unreachable),
        }
    }
}

impl Relay for Relays {
    fn reaches(&self, node: NodeTag) -> bool {
        self.peers.find(node).is_some()
    }

    fn relay(&self, node: NodeTag, connection: ClientConnection, permit: RelayPermit) {
        // The node has left since the core asked for it.
        let (Some(peer), Some(this)) = (self.peers.find(node), self.this.upgrade()) else {
            return self.give_back(connection);
        };
        self.runtime
            .spawn(async move { this.pass(peer.node, peer.address, peer.gone, connection, permit).await });
    }

    fn find(&self, node: NodeTag, done: Done<Location>) {
        let peers = self.peers.clone();
        self.runtime.spawn(async move {
            let is_there = peers.wait_for(node).await;
            done.answer(Ok(if is_there { Location::Node(node) } else { Location::Unknown }));
        });
    }

    fn locate(&self, session: SessionName<'_>, claims: bool, done: Done<Location>) {
        self.claims.locate(session, claims, done, self.peers.clone());
    }
}
