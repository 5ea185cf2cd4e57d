//! Entries for the other nodes of a cluster, and theirs: workers of all nodes are one application.

use super::Applications;
use crate::inbox::{EngineChanges, NodeCall};
use crate::nodes::{Announced, ELSEWHERE, NodeStats, Nodes, Own, is_of_worker};
use crate::recovery::{Recovery, Source};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_link::{
    Broadcast, Code, Json, Messages, NodeEntry, RECOVERY_MAX, Received, Refusal, Select, Settings,
};

impl Applications {
    /// Counts of the other nodes. `None` without a cluster.
    pub(crate) fn nodes(&self, app: usize) -> Option<NodeStats> {
        self.nodes.as_ref().map(|nodes| nodes.stats(app))
    }

    /// Refuses a worker that has other settings than the workers beside other nodes, unless this node's workers or clients decide.
    pub(super) fn check_settings(&self, app: usize, settings: &Settings) -> Result<(), Refusal> {
        let known = self.nodes.as_ref().filter(|_| !self.applications[app].is_bound());
        let known = known.and_then(|nodes| nodes.settings(app));
        match known.and_then(|known| known.difference(settings, ELSEWHERE)) {
            Some(difference) => Err(Refusal::new(Code::OptionsConflict, difference)),
            None => Ok(()),
        }
    }

    /// Other nodes no longer count this node's workers.
    pub(crate) fn leave(&mut self) {
        self.nodes.iter_mut().for_each(Nodes::leave);
    }

    /// `true` while other nodes may take sockets, or one that was given away waits for the engine.
    pub(crate) fn keeps_sockets(&self) -> bool {
        let keeps = |nodes: &Nodes| nodes.is_blocked() || self.recoveries.iter().any(Recovery::keeps_sockets);
        self.nodes.as_ref().is_some_and(keeps)
    }

    /// This node's part of an application.
    fn own(&self, app: usize) -> Own {
        Own { workers: self.applications[app].servers(), last: self.recoveries[app].origins.own() }
    }

    /// Announces this node's workers, and gives messages for other nodes to the engine.
    pub(super) fn flush_nodes(&mut self, now: Instant) {
        for app in 0..self.applications.len() {
            let own = self.own(app);
            self.nodes.iter_mut().for_each(|nodes| nodes.announce(app, own, now));
        }
        self.nodes.iter_mut().for_each(|nodes| nodes.flush(now));
        self.count_workers();
    }

    /// Passes the number of other nodes' workers on to this node's.
    fn count_workers(&mut self) {
        let Some(nodes) = &self.nodes else { return };
        for (app, application) in self.applications.iter_mut().enumerate() {
            application.set_servers_elsewhere(nodes.stats(app).workers);
        }
    }

    // Entries for other nodes.

    /// Writes a broadcast of this node's worker for the other nodes, and returns it.
    pub(super) fn share_broadcast(
        &mut self,
        app: usize,
        namespace: &Arc<str>,
        broadcast: Broadcast,
        (number, ttl): (u64, Option<Duration>),
    ) -> Broadcast {
        let Some(nodes) = self.nodes.as_mut().filter(|_| !broadcast.is_local) else { return broadcast };
        let recovery_ms = ttl.map_or(0, |ttl| u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX));
        let entry = NodeEntry::Broadcast { namespace: (**namespace).into(), recovery_ms, number, broadcast };
        nodes.write(app, None, &entry);
        let NodeEntry::Broadcast { broadcast, .. } = entry else { unreachable!("it was made above") };
        broadcast
    }

    /// Writes a change of this node's worker for the other nodes, and returns it.
    pub(super) fn share_select(&mut self, app: usize, namespace: &Arc<str>, select: Select) -> Select {
        let Some(nodes) = self.nodes.as_mut().filter(|_| !select.flags.is_local) else { return select };
        let entry = NodeEntry::Select { namespace: (**namespace).into(), select };
        nodes.write(app, None, &entry);
        let NodeEntry::Select { select, .. } = entry else { unreachable!("it was made above") };
        select
    }

    /// Writes a request for the workers of other nodes, or an answer for one of them.
    pub(super) fn share_relay(
        &mut self,
        app: usize,
        (from, namespace): (u32, &str),
        to: u32,
        body: &Json,
        messages: &Messages,
    ) {
        let Some(nodes) = &mut self.nodes else { return };
        let (node, to) = match to {
            0 => (None, 0),
            to => match nodes.link(to) {
                Some((node, link)) => (Some(node), link),
                None => return,
            },
        };
        let (namespace, body, messages) = (namespace.into(), body.clone(), messages.clone());
        nodes.write(app, node, &NodeEntry::Relay { from, to, namespace, body, messages });
    }

    // Entries of other nodes.

    /// The connection to the engine has changed.
    pub(crate) fn handle_engine(&mut self, changes: EngineChanges, now: Instant) {
        self.nodes.iter_mut().for_each(|nodes| nodes.handle_engine(changes));
        if changes.is_lost {
            let finished = self.searches.end_all();
            self.finish_searches(finished, now);
        }
        self.count_workers();
    }

    /// Counts messages of other nodes that the inbox dropped, by application.
    pub(crate) fn count_missed(&mut self, messages: BTreeMap<usize, u64>, now: Instant) {
        let Some(nodes) = &mut self.nodes else { return };
        messages.into_iter().for_each(|(app, count)| nodes.count_missed(app, count, now));
    }

    pub(crate) fn handle_node_call(&mut self, call: NodeCall, now: Instant) {
        match call {
            NodeCall::Message(node, app, message) => self.handle_node_message(app, node, message, now),
            NodeCall::Left(node) => {
                self.nodes.iter_mut().for_each(|nodes| nodes.handle_left(node));
                let finished = self.searches.handle_left(node);
                self.finish_searches(finished, now);
            }
        }
        self.count_workers();
    }

    fn handle_node_message(&mut self, app: usize, node: u64, message: Bytes, now: Instant) {
        let (mut count, mut is_malformed) = (0, false);
        match Received::<NodeEntry>::new(message) {
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) => {
                            count += u64::from(is_of_worker(&entry));
                            is_malformed |= !self.handle_node_entry(app, node, entry, now);
                        }
                        Err(_) => is_malformed = true,
                    }
                }
            }
            Err(_) => is_malformed = true,
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.count(app, count, is_malformed);
        }
        self.act(app, now);
    }

    /// Returns `false` if the entry is malformed.
    fn handle_node_entry(&mut self, app: usize, node: u64, entry: NodeEntry, now: Instant) -> bool {
        match entry {
            NodeEntry::Workers { count: workers, asks, last, settings } => {
                self.recoveries[app].origins.handle(node, last, now);
                let own = self.own(app);
                if let Some(nodes) = &mut self.nodes {
                    nodes.handle_workers(app, node, Announced { workers, asks, settings }, own, now);
                }
            }
            NodeEntry::Broadcast { namespace, recovery_ms, number, mut broadcast } => {
                broadcast.is_local = false;
                let ttl = Duration::from_millis(recovery_ms.into()).min(RECOVERY_MAX);
                let ttl = Some(ttl).filter(|ttl| !ttl.is_zero());
                let source = Source { node: Some(node), number };
                let entry = self.broadcast(app, namespace.into(), (broadcast, source), (now, ttl));
                self.outbox.push(0, entry);
            }
            NodeEntry::Select { namespace, mut select } => {
                select.flags.is_local = false;
                let entry = self.select(app, 0, namespace.into(), select);
                self.outbox.push(0, entry);
            }
            NodeEntry::Relay { from, to, namespace, body, messages } => {
                self.relay_of_node(app, (node, from), to, &namespace, (&body, &messages), now);
            }
            NodeEntry::Take { request, namespace, pid, offset } => {
                self.handle_take(app, (node, request), &(namespace.into(), pid), &offset, now);
            }
            NodeEntry::Taken { request, socket, missed } => {
                return self.handle_taken(app, (node, request), &socket, missed, now);
            }
        }
        true
    }
}
