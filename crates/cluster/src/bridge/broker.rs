//! All bridges of a node, between its data plane and the rest of its cluster.

use super::metrics::metrics;
use super::{Adapter, Bridge, ConnectError, Namespace, Options, Parser, Pushes, SubscriptionMode};
use crate::engine::redis::link::Link;
use crate::engine::{Address, Limits};
use crate::metrics::count;
use crate::space::Space;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use stentor_hub::{Key, OutgoingPresence, Room, Topic};
use stentor_ports::{
    Broadcast, Broker, Busy, ControlPlane, Done, EngineAway, Ledger, LocalNode, MemberList, MembersQuery,
    Metric, MetricSource, PermissionReply, SocketQuestion,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The bridges of one node.
pub struct Bridges {
    bridges: Vec<Arc<Bridge>>,
    /// The ways in which each shared namespace is shared. The first one connects the nodes of Stentor.
    pub(super) namespaces: HashMap<Arc<str>, Vec<Way>>,
    /// The broker of the other namespaces. `None` if there are no other nodes.
    inner: Option<Arc<dyn Broker>>,
    control: OnceLock<Arc<dyn ControlPlane>>,
    space: Arc<Space>,
}

/// A bridge, with a namespace that it shares.
pub(super) type Way = (Arc<Bridge>, Arc<Namespace>);

/// The bridges' first connections.
pub struct Connections(Vec<Option<(Link, Arc<Pushes>)>>);

impl fmt::Debug for Bridges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridges").field("namespaces", &self.namespaces.keys()).finish_non_exhaustive()
    }
}

impl Bridges {
    /// Makes bridges that aren't connected yet. `inner` carries the namespaces that aren't shared. Memory is charged to `ledger`.
    ///
    /// # Errors
    /// The mistake in the options.
    pub fn new(
        options: &[Options],
        inner: Option<Arc<dyn Broker>>,
        ledger: &Arc<Ledger>,
    ) -> Result<Arc<Self>, ConnectError> {
        let space = Arc::new(Space::default());
        let is_only =
            |name: &String| options.iter().filter(|options| options.namespaces.contains(name)).count() < 2;
        let bridges = options.iter().map(|options| Bridge::new(options, is_only, space.clone(), ledger));
        let bridges = bridges.collect::<Result<Vec<_>, _>>()?;
        let mut namespaces: HashMap<_, Vec<Way>> = HashMap::new();
        for bridge in &bridges {
            for namespace in &bridge.namespaces {
                namespaces
                    .entry(namespace.name.clone())
                    .or_default()
                    .push((bridge.clone(), namespace.clone()));
            }
        }
        // The ways of Python's adapter come last. Servers in Python can't be asked, and nodes of Stentor ignore each
        // other on their channel.
        for ways in namespaces.values_mut() {
            ways.sort_by_key(|(bridge, _)| bridge.options.adapter == Adapter::Python);
        }
        Ok(Arc::new(Self { bridges, namespaces, inner, control: OnceLock::new(), space }))
    }

    /// The bridges of a node that shares a namespace with no server, to list the metrics of such a node.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn alone() -> Result<Arc<Self>, ConnectError> {
        let options = Options {
            address: Address::parse("redis://127.0.0.1").map_err(ConnectError)?,
            ca_file: None,
            identity: None,
            wait: true,
            limits: Limits::default(),
            prefix: "PREFIX".into(),
            namespaces: Vec::new(),
            adapter: Adapter::default(),
            mode: SubscriptionMode::default(),
            parser: Parser::default(),
        };
        Self::new(&[options], None, &Arc::new(Ledger::new(0)))
    }

    /// Connects the bridges that the node must not start without.
    ///
    /// # Errors
    /// A server can't be reached, refuses the credentials, is too old, or is another program.
    pub async fn connect(&self) -> Result<Connections, ConnectError> {
        let mut connections = Vec::new();
        for bridge in &self.bridges {
            connections.push(match bridge.options.wait {
                true => None,
                false => {
                    let shard = bridge.shards.all().pop().unwrap_or_default();
                    let opened = bridge.open(&shard).await.map_err(ConnectError)?;
                    (!bridge.is_spread()).then_some(opened)
                }
            });
        }
        Ok(Connections(connections))
    }

    /// Returns the observer that the data plane notifies. It forwards each notification to `control`. `space` (a full
    /// inbox has space again) also wakes the bridges.
    pub fn observe(self: &Arc<Self>, control: Arc<dyn ControlPlane>) -> Arc<dyn ControlPlane> {
        // A second call would be a bug of the node's start.
        assert!(self.control.set(control).is_ok());
        self.clone()
    }

    /// Runs until `stop` is set.
    pub async fn run(
        self: Arc<Self>,
        connections: Connections,
        plane: Arc<dyn LocalNode>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut tasks = JoinSet::new();
        for (bridge, first) in self.bridges.iter().zip(connections.0) {
            let namespaces: Vec<&str> = bridge.namespaces.iter().map(|namespace| &*namespace.name).collect();
            tracing::info!(
                redis = %bridge.options.address,
                adapter = ?bridge.options.adapter,
                prefix = bridge.options.prefix,
                namespaces = namespaces.join(", "),
                "sharing namespaces with Socket.IO's servers"
            );
            match bridge.shards.all().pop() {
                Some(only) if !bridge.is_spread() => {
                    tasks.spawn(bridge.clone().subscribe(only, first));
                    tasks.spawn(bridge.clone().publish_all());
                }
                _ => {
                    tasks.spawn(bridge.clone().follow_slots());
                    tasks.spawn(bridge.clone().publish_sharded());
                }
            }
            tasks.spawn(bridge.clone().pass_interest());
            tasks.spawn(bridge.clone().ask_all());
            tasks.spawn(bridge.clone().handle_all(plane.clone()));
        }
        // The tasks end with the set. If the sender is dropped, the node has ended.
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
    }

    /// The ways in which a namespace is shared. Empty if it isn't.
    pub(super) fn find(&self, namespace: &str) -> &[Way] {
        self.namespaces.get(namespace).map_or(&[], |ways| &**ways)
    }
}

impl MetricSource for Bridges {
    fn metrics(&self) -> Vec<Metric> {
        metrics(&self.bridges)
    }
}

impl Broker for Bridges {
    fn publish(&self, message: &Broadcast) -> Result<(), Busy> {
        let Some(((bridge, namespace), others)) = self.find(message.rooms.first().namespace()).split_first()
        else {
            return self.inner.as_ref().map_or(Ok(()), |inner| inner.publish(message));
        };
        bridge.publish(namespace, message)?;
        for (bridge, namespace) in others {
            if bridge.publish(namespace, message).is_err() {
                // If the publisher waited for this bridge and tried again, the message would be sent twice over the first bridge.
                count(&bridge.counters.not_sent);
            }
        }
        Ok(())
    }

    fn orders_history(&self) -> bool {
        // Only namespaces that aren't shared have history, because the configuration refuses history in shared namespaces.
        self.inner.as_ref().is_some_and(|inner| inner.orders_history())
    }

    fn engine_away(&self) -> Option<EngineAway> {
        self.inner.as_ref()?.engine_away()
    }

    fn find_socket(&self, question: SocketQuestion) -> bool {
        // Messages of other servers have no ids with which two nodes could recognize the same message.
        let inner = self.inner.as_ref().filter(|_| self.find(&question.name.namespace).is_empty());
        inner.is_some_and(|inner| inner.find_socket(question))
    }

    fn id_seed(&self) -> Option<[u64; 2]> {
        self.inner.as_ref()?.id_seed()
    }

    fn publish_with_history(
        &self,
        message: &Broadcast,
        publisher: Option<PermissionReply>,
        source: Option<u64>,
        key: Option<Arc<str>>,
    ) -> Result<(), Busy> {
        let inner = self.inner.as_ref();
        inner.map_or(Ok(()), |inner| inner.publish_with_history(message, publisher, source, key))
    }

    fn send_presence(&self, message: &OutgoingPresence) {
        if let (true, Some(inner)) = (self.find(message.room.namespace()).is_empty(), &self.inner) {
            inner.send_presence(message);
        }
    }

    fn list_members(&self, query: MembersQuery, list: MemberList, done: Done<MemberList>) {
        match &self.inner {
            Some(inner) => inner.list_members(query, list, done),
            None => done.answer(Ok(list)),
        }
    }

    fn confirm_history(&self, room: &Room) {
        if let Some(inner) = &self.inner {
            inner.confirm_history(room);
        }
    }

    fn confirm_feed(&self, key: &Key) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.confirm_feed(key))
    }

    fn set_interest(&self, topic: &Topic, has_subscribers: bool) {
        if let Topic::Room(room) = topic
            && let ways @ [_, ..] = self.find(room.namespace())
        {
            for (bridge, namespace) in ways {
                if namespace.set_interest(room, has_subscribers) {
                    bridge.interest_changed.notify_one();
                }
            }
        } else if let Some(inner) = &self.inner {
            inner.set_interest(topic, has_subscribers);
        }
    }
}

impl ControlPlane for Bridges {
    fn interest_changed(&self) {
        if let Some(control) = self.control.get() {
            control.interest_changed();
        }
    }

    fn space(&self) {
        self.space.notify();
        if let Some(control) = self.control.get() {
            control.space();
        }
    }
}
