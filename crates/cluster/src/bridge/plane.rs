//! The data plane of a node that shares namespaces, as the control plane sees it: commands for sessions of these namespaces reach
//! those of Socket.IO's servers.

use super::{Adapter, Bridges, Options, Parser, SubscriptionMode};
use crate::engine::{Address, ConnectError, Limits};
use std::sync::Arc;
use stentor_hub::{Key, PresenceMessage, Room};
use stentor_ports::{
    Broadcast, Busy, ClientConnection, Command, CommandInbox, Concerned, DataPlane, Denial, Done, Drain,
    FeedUpdate, Handover, Histogram, Identity, Ledger, MemberList, MembersQuery, Metric, MovingSocket,
    NodeInfo, PublicId, Publish, PushedFeeds, Readiness, Recheck, RoomList, RoomUpdate, RoomsQuery,
    SocketName, SocketRequest, Target, Ticket, Wanted,
};

/// A node's data plane, with the sessions of Socket.IO's servers.
pub struct BridgedPlane {
    local: Arc<dyn DataPlane>,
    /// With the sessions of the other nodes of the cluster.
    inner: Arc<dyn DataPlane>,
    bridges: Arc<Bridges>,
}

impl BridgedPlane {
    /// The data plane `local` of a node, which is `inner` with the other nodes of its cluster.
    pub fn new(local: Arc<dyn DataPlane>, inner: Arc<dyn DataPlane>, bridges: Arc<Bridges>) -> Self {
        Self { local, inner, bridges }
    }
}

/// The data plane of a node that shares a namespace with nobody, to show what such a node measures.
///
/// # Errors
/// Never.
pub fn alone(inner: Arc<dyn DataPlane>) -> Result<BridgedPlane, ConnectError> {
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
    Ok(BridgedPlane::new(inner.clone(), inner, Bridges::new(&[options], None, &Arc::new(Ledger::new(0)))?))
}

impl CommandInbox for BridgedPlane {
    fn publish(&self, message: Publish) -> Result<(), Busy> {
        self.inner.publish(message)
    }

    fn publish_kept(&self, message: Publish, key: Option<Arc<str>>, done: Done<Result<(), Denial>>) {
        self.inner.publish_kept(message, key, done);
    }

    fn receive(&self, message: Broadcast) -> Result<(), Busy> {
        self.inner.receive(message)
    }

    fn receive_in_order(&self, message: Broadcast) -> Result<(), Busy> {
        self.inner.receive_in_order(message)
    }

    fn may_have(&self, id: PublicId) -> bool {
        self.inner.may_have(id)
    }

    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy> {
        self.inner.update_room(room, update)
    }

    fn decide(&self, ticket: Ticket, answer: Result<(), Denial>) -> Result<(), Busy> {
        self.inner.decide(ticket, answer)
    }

    fn identify(&self, ticket: Ticket, answer: Result<Arc<Identity>, Denial>) -> Result<(), Busy> {
        self.inner.identify(ticket, answer)
    }

    fn recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        self.inner.recheck(recheck, done);
    }

    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy> {
        self.inner.update_feed(key, update)
    }

    fn command(&self, target: Target, command: Command) {
        let ways = self.bridges.find(target.namespace());
        if ways.is_empty() {
            return self.inner.command(target, command);
        }
        let command = ways
            .iter()
            .fold(command, |command, (bridge, namespace)| bridge.then_ask(namespace, &target, command));
        self.local.command(target, command);
    }

    fn list_members(&self, query: MembersQuery, done: Done<MemberList>) {
        self.inner.list_members(query, done);
    }

    fn update_presence(&self, room: &Room, node: u64, message: PresenceMessage) -> Result<(), Busy> {
        self.inner.update_presence(room, node, message)
    }

    fn lose_node(&self, node: u64) -> Result<(), Busy> {
        self.inner.lose_node(node)
    }

    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>) {
        let ways = self.bridges.find(&query.namespace);
        if ways.is_empty() {
            return self.inner.list_rooms(query, done);
        }
        let done = ways
            .iter()
            .fold(done, |done, (bridge, namespace)| bridge.then_list_rooms(namespace, &query, done));
        self.local.list_rooms(query, done);
    }

    fn request_socket(&self, name: SocketName, request: SocketRequest, done: Done<Option<MovingSocket>>) {
        self.inner.request_socket(name, request, done);
    }

    fn expect_socket(&self, ticket: Ticket, socket: MovingSocket, done: Done<bool>) {
        self.inner.expect_socket(ticket, socket, done);
    }

    fn deliver_socket(&self, ticket: Ticket, socket: Option<MovingSocket>) -> Result<(), Busy> {
        self.inner.deliver_socket(ticket, socket)
    }
}

impl DataPlane for BridgedPlane {
    fn take_wanted(&self) -> Vec<Wanted> {
        self.inner.take_wanted()
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut all = self.inner.metrics();
        all.extend(self.bridges.metrics());
        all
    }

    fn histograms(&self) -> Vec<Histogram> {
        self.inner.histograms()
    }

    fn pushed_feeds(&self) -> Option<&dyn PushedFeeds> {
        self.inner.pushed_feeds()
    }

    fn adopt(&self, connection: ClientConnection, handover: Handover) {
        self.inner.adopt(connection, handover);
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }

    fn connections(&self) -> usize {
        self.inner.connections()
    }

    fn nodes(&self) -> Vec<NodeInfo> {
        self.inner.nodes()
    }

    fn is_ordered(&self, room: &Room) -> bool {
        self.inner.is_ordered(room)
    }

    fn pause_accepting(&self, is_paused: bool, done: Done<()>) {
        self.inner.pause_accepting(is_paused, done);
    }

    fn drain(&self, drain: Drain) {
        self.inner.drain(drain);
    }
}
