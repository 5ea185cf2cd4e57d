//! Commands of a node that shares namespaces, as the control plane sees them. Commands for sessions of these namespaces
//! also reach the sessions of Socket.IO's servers.

use super::Bridges;
use std::sync::Arc;
use stentor_hub::Key;
use stentor_ports::{
    Busy, Command, Commands, Concerned, Denial, Done, LinkApp, MemberList, MembersQuery, Publish, Recheck,
    RoomList, RoomsQuery, SessionList, SessionsQuery, SubscriberCounts, Target,
};

/// Commands for a node, and for the sessions of Socket.IO's servers.
pub struct BridgedCommands {
    local: Arc<dyn Commands>,
    /// The data plane with the sessions of the other nodes of the cluster.
    inner: Arc<dyn Commands>,
    bridges: Arc<Bridges>,
}

impl BridgedCommands {
    /// Commands for the node `local`, which are `inner` with the other nodes of its cluster.
    pub fn new(local: Arc<dyn Commands>, inner: Arc<dyn Commands>, bridges: Arc<Bridges>) -> Self {
        Self { local, inner, bridges }
    }
}

impl Commands for BridgedCommands {
    fn publish(&self, message: Publish) -> Result<(), Busy> {
        self.inner.publish(message)
    }

    fn publish_kept(&self, message: Publish, key: Option<Arc<str>>, done: Done<Result<(), Denial>>) {
        self.inner.publish_kept(message, key, done);
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

    fn recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        self.inner.recheck(recheck, done);
    }

    fn list_members(&self, query: MembersQuery, done: Done<MemberList>) {
        self.inner.list_members(query, done);
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

    fn list_sessions(&self, query: SessionsQuery, done: Done<SessionList>) {
        self.inner.list_sessions(query, done);
    }

    fn count_subscribers(&self, keys: Vec<Key>, done: Done<SubscriberCounts>) {
        self.inner.count_subscribers(keys, done);
    }

    fn command_link(&self, app: LinkApp, target: Target, command: Command) {
        self.inner.command_link(app, target, command);
    }

    fn list_link_rooms(&self, app: LinkApp, query: RoomsQuery, done: Done<RoomList>) {
        self.inner.list_link_rooms(app, query, done);
    }
}
