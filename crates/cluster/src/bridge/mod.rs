//! Namespaces that Stentor shares with Socket.IO's own servers and emitters, over Redis.
//!
//! ```text
//!  cores ── Broker::publish ───────────► Bridge ──► Redis ──► Socket.IO's servers, other nodes
//!  cores ◄── CommandInbox::receive ── Bridge ◄── Redis ◄── Socket.IO's servers, emitters, other nodes
//! ```
//!
//! A shared namespace travels by this way only, between nodes of Stentor as well: they are servers among others. Messages from
//! other servers are bounded and reach only the configured namespaces. Refused ones are counted by reason.
//!
//! [`crate::socketio`] has the formats.

mod answers;
mod broker;
mod commands;
mod connection;
mod delivery;
mod expected;
mod inbox;
mod metrics;
mod namespace;
mod pending;
mod plane;
mod protocol;
mod refused;
mod sessions;
mod shards;

pub use broker::{Bridges, Connections};
pub use plane::{BridgedPlane, alone};

use crate::engine::common::Outgoing;
use crate::engine::redis::publisher::Publish;
use crate::engine::redis::server::Server;
use crate::engine::{Address, ConnectError, Identity, Limits};
use crate::metrics::count;
use crate::socketio::{Event, Parser, Selection};
use crate::space::Space;
use answers::{ANSWERS_MAX, Allowance};
use commands::{QUESTIONS_MAX, Questions};
use connection::Pushes;
use inbox::Inbox;
use metrics::Counters;
use namespace::Namespace;
use pending::Pending;
use shards::Shards;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use stentor_cluster_settings::{Adapter, SubscriptionMode};
use stentor_hub::Room;
use stentor_ports::{Broadcast as Message, Busy, Ledger};
use tokio::sync::{Notify, Semaphore, mpsc};

/// How to share namespaces.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Redis that Socket.IO's servers use.
    pub address: Address,
    /// Certificates to trust, in PEM, if it speaks TLS. `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The node's certificate for TLS, if Redis asks for one.
    pub identity: Option<Identity>,
    /// Whether to wait until Redis can be reached, instead of failing.
    pub wait: bool,
    /// Bounds of what is held.
    pub limits: Limits,
    /// How channels begin.
    pub prefix: String,
    /// The namespaces, each with its slash.
    pub namespaces: Vec<String>,
    /// How the other servers speak.
    pub adapter: Adapter,
    /// Of the sharded adapter: which rooms have channels.
    pub mode: SubscriptionMode,
    /// Of the classic adapter: how messages are written.
    pub parser: Parser,
}

/// Namespaces that are shared over one Redis.
pub struct Bridge {
    prefix: String,
    address: Address,
    server: Arc<Server>,
    /// Whether the node starts without it.
    waits: bool,
    adapter: Adapter,
    namespaces: Vec<Arc<Namespace>>,
    /// The channel over which the node proves that messages arrive.
    probe: Arc<str>,
    outgoing: Outgoing,
    publish_with: Publish,
    inbox: Inbox,
    pending: Pending,
    questions: Questions,
    shards: Shards,
    allowance: Allowance,
    /// Answers that are made at the same time.
    answers: Arc<Semaphore>,
    /// Rooms have gained their first member, or lost the last one.
    interest_changed: Notify,
    counters: Counters,
    space: Arc<Space>,
    has_reported_refusal: AtomicBool,
    /// The connection that publishes is there.
    publishes: AtomicBool,
    /// Messages to rooms were delivered after the last command for sessions.
    has_delivered: AtomicBool,
    /// A room that nobody knows.
    nobody: Room,
}

impl Bridge {
    /// `is_only`: whether a namespace is shared in no other way.
    fn new(
        options: &Options,
        is_only: impl Fn(&String) -> bool,
        space: Arc<Space>,
        ledger: &Arc<Ledger>,
    ) -> Result<Arc<Self>, ConnectError> {
        let (ca_file, identity) = (options.ca_file.as_deref(), options.identity.as_ref());
        let server = Server::parse(options.address.reveal(), ca_file, identity, ledger.clone());
        let server = server.map_err(ConnectError)?;
        let namespaces = options.namespaces.iter();
        let namespaces = namespaces.map(|name| Namespace::new(options, name, is_only(name)).map(Arc::new));
        let namespaces = namespaces.collect::<Result<_, _>>().map_err(|e| ConnectError(e.to_string()))?;
        let command = if options.adapter == Adapter::Sharded { "SPUBLISH" } else { "PUBLISH" };
        let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
        Ok(Arc::new(Self {
            prefix: options.prefix.clone(),
            address: options.address.clone(),
            waits: options.wait,
            adapter: options.adapter,
            namespaces,
            probe: format!("{}-probe#{:016x}", options.prefix, fastrand::u64(..)).into(),
            outgoing: Outgoing::new(ledger.clone(), &options.limits),
            publish_with: Publish { command, prefix: b"" },
            inbox: Inbox::new(&options.limits, ledger.clone()),
            pending: Pending::default(),
            questions: (questions, Mutex::new(Some(receiver))),
            shards: Shards::new(options.adapter == Adapter::Sharded && server.is_cluster()),
            server: Arc::new(server),
            allowance: Allowance::default(),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            interest_changed: Notify::new(),
            counters: Counters::default(),
            space,
            has_reported_refusal: AtomicBool::new(false),
            publishes: AtomicBool::new(false),
            has_delivered: AtomicBool::new(false),
            nobody: Room::plain(&format!("{:016x}", fastrand::u64(..)))
                .map_err(|e| ConnectError(e.to_string()))?,
        }))
    }

    /// Whether its channels are spread over the primaries of a Redis Cluster.
    fn is_spread(&self) -> bool {
        self.adapter == Adapter::Sharded && self.server.is_cluster()
    }

    /// A message of this node leaves it.
    fn publish(&self, namespace: &Namespace, message: &Message) -> Result<(), Busy> {
        match namespace.outgoing(message) {
            Some((selection, event)) => self.emit(namespace, selection, event, message.volatile),
            None => Ok(()),
        }
    }

    fn emit(
        &self,
        namespace: &Namespace,
        selection: Selection,
        event: Event,
        volatile: bool,
    ) -> Result<(), Busy> {
        match namespace.protocol.broadcast(selection, volatile, event) {
            Ok((channel, payload)) => {
                if self.send(channel, payload) {
                    count(&self.counters.sent);
                } else if self.publishes.load(Ordering::Relaxed) {
                    return Err(Busy);
                } else {
                    // Clients of this node don't wait for a Redis that is away.
                    count(&self.counters.not_sent);
                }
            }
            // It is lost for the other servers.
            Err(error) => _ = self.publish_now(Err(error)),
        }
        Ok(())
    }
}
