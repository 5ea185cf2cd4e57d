//! Namespaces that Stentor shares with Socket.IO's own servers and emitters, over Redis.
//!
//! ```text
//!  cores ── Broker::publish ───────────► Bridge ──► Redis ──► Socket.IO's servers, other nodes
//!  cores ◄── NodeInbox::receive ───── Bridge ◄── Redis ◄── Socket.IO's servers, emitters, other nodes
//! ```
//!
//! Messages of a shared namespace are sent only over Redis, also between nodes of Stentor, which are servers among
//! others. Messages from other servers are bounded and reach only the configured namespaces. Refused messages are
//! counted by reason.
//!
//! [`crate::socketio`] has the formats.

mod answers;
mod bridged;
mod broker;
mod commands;
mod connection;
mod delivery;
mod expected;
mod inbox;
mod metrics;
mod namespace;
mod ordered;
mod pending;
mod protocol;
mod publisher;
mod refused;
mod sessions;
mod shards;

pub use bridged::BridgedCommands;
pub use broker::{Bridges, Connections};

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
use ordered::Ordered;
use parking_lot::Mutex;
use pending::Pending;
use publisher::Publisher;
use shards::Shards;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stentor_cluster_settings::{Adapter, SubscriptionMode};
use stentor_ports::{Broadcast as Message, Busy, Ledger};
use tokio::sync::{Notify, Semaphore, mpsc};

/// Options for sharing namespaces.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Redis that Socket.IO's servers use.
    pub address: Address,
    /// The file of the certificates to trust, in PEM, if Redis speaks TLS. `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The node's certificate for TLS, if Redis asks for one.
    pub identity: Option<Identity>,
    /// `true` to wait until Redis can be reached, instead of failing.
    pub wait: bool,
    /// Limits of the queues.
    pub limits: Limits,
    /// The prefix of the channels.
    pub prefix: String,
    /// The namespaces, each with its slash.
    pub namespaces: Vec<String>,
    /// The protocol of the other servers.
    pub adapter: Adapter,
    /// Rooms with channels of their own, for the sharded adapter.
    pub mode: SubscriptionMode,
    /// The encoding of messages, for the classic adapter.
    pub parser: Parser,
}

/// Namespaces that are shared over one Redis.
pub struct Bridge {
    options: Options,
    server: Arc<Server>,
    namespaces: Vec<Arc<Namespace>>,
    /// The channel over which the node proves that messages arrive.
    probe: Arc<str>,
    publisher: Publisher,
    inbox: Inbox,
    pending: Pending,
    questions: Questions,
    shards: Shards,
    allowance: Allowance,
    /// Permits for answers that are made at the same time.
    answers: Arc<Semaphore>,
    /// Notified when rooms have gained their first member or lost the last one.
    interest_changed: Notify,
    counters: Counters,
    ordered: Ordered,
    has_reported_refusal: AtomicBool,
}

impl Bridge {
    /// Makes a bridge. `is_only` returns `true` if a namespace is shared in no other way.
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
        let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
        Ok(Arc::new(Self {
            options: options.clone(),
            namespaces,
            probe: format!("{}-probe#{:016x}", options.prefix, fastrand::u64(..)).into(),
            publisher: Publisher::new(options, ledger.clone()),
            inbox: Inbox::new(&options.limits, ledger.clone()),
            pending: Pending::default(),
            questions: (questions, Mutex::new(Some(receiver))),
            shards: Shards::new(options.adapter == Adapter::Sharded && server.is_cluster()),
            server: Arc::new(server),
            allowance: Allowance::default(),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            interest_changed: Notify::new(),
            counters: Counters::default(),
            ordered: Ordered::new(space)?,
            has_reported_refusal: AtomicBool::new(false),
        }))
    }

    /// Returns `true` if the channels are distributed over the primaries of a Redis Cluster.
    fn is_spread(&self) -> bool {
        self.options.adapter == Adapter::Sharded && self.server.is_cluster()
    }

    /// Publishes a message of this node.
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
                if self.publisher.push(channel, payload) {
                    count(&self.counters.sent);
                } else if self.publisher.is_connected() {
                    return Err(Busy);
                } else {
                    // Clients of this node don't wait for a Redis that can't be reached.
                    count(&self.counters.not_sent);
                }
            }
            // Socket.IO's servers don't receive this message.
            Err(error) => _ = self.publish_now(Err(error)),
        }
        Ok(())
    }
}
