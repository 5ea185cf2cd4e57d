//! The other nodes to which connections can be passed through.

use crate::NodeId;
use crate::registry::NodeRecord;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::NodeTag;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Maximum number of updates to wait for an unknown node. The first update may already have been on its way.
const UPDATES_MAX: usize = 2;
/// Maximum time to wait for an update: longer than the time between two reads of the registry.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of nodes that are remembered after they have left.
const LEFT_MAX: usize = 64;

struct Peer {
    node: NodeId,
    address: Arc<str>,
    /// Dropped when the node has left.
    alive: watch::Sender<()>,
}

impl Peer {
    fn found(&self) -> Found {
        Found { node: self.node, address: self.address.clone(), gone: self.alive.subscribe() }
    }
}

/// A node that is alive.
pub(super) struct Found {
    pub(super) node: NodeId,
    pub(super) address: Arc<str>,
    /// Fails when the node has left.
    pub(super) gone: watch::Receiver<()>,
}

/// The other nodes that are alive and have published an address.
#[derive(Default)]
pub(super) struct Peers {
    known: Mutex<Known>,
    /// Changes with each call of [`Peers::update`].
    updates: watch::Sender<()>,
    /// Notified when a request waits for an unknown node.
    wanted: Notify,
}

#[derive(Default)]
struct Known {
    peers: HashMap<NodeTag, Peer>,
    /// Nodes that have left, the last one at the end. Requests don't wait for them.
    left: VecDeque<NodeTag>,
}

impl Peers {
    /// Waits until a request waits for an unknown node.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Returns `true` if a node is alive. Waits for updates if the node is unknown, because it may have started a
    /// moment ago.
    pub(super) async fn wait_for(&self, tag: NodeTag) -> bool {
        let mut updates = self.updates.subscribe();
        for _ in 0..UPDATES_MAX {
            {
                let known = self.known.lock();
                if known.peers.contains_key(&tag) || known.left.contains(&tag) {
                    break;
                }
            }
            self.wanted.notify_one();
            if !matches!(timeout(UPDATE_TIMEOUT, updates.changed()).await, Ok(Ok(()))) {
                break;
            }
        }
        self.has(tag)
    }

    /// Sets the nodes that are alive, `own` among them.
    pub(super) fn update(&self, own: NodeId, nodes: &BTreeMap<NodeId, NodeRecord>) {
        let Known { peers, left } = &mut *self.known.lock();
        peers.retain(|tag, peer| {
            let record = nodes.get(&peer.node);
            if record.is_none() {
                left.push_back(*tag);
            }
            record.is_some_and(|record| record.address.as_deref() == Some(&*peer.address))
        });
        // A node that was only silent for too long is alive again.
        left.retain(|tag| !nodes.keys().any(|node| node.tag() == *tag));
        left.drain(..left.len().saturating_sub(LEFT_MAX));
        for (node, record) in nodes.iter().filter(|(node, _)| **node != own) {
            if let Some(address) = record.address.as_deref() {
                peers.entry(node.tag()).or_insert_with(|| Peer {
                    node: *node,
                    address: address.into(),
                    alive: watch::Sender::new(()),
                });
            }
        }
        self.updates.send_replace(());
    }

    /// The node of a tag.
    pub(super) fn find(&self, tag: NodeTag) -> Option<Found> {
        self.known.lock().peers.get(&tag).map(Peer::found)
    }

    /// All nodes.
    pub(super) fn all(&self) -> Vec<Found> {
        self.known.lock().peers.values().map(Peer::found).collect()
    }

    /// Returns `true` if a node is alive and can be reached.
    pub(super) fn has(&self, tag: NodeTag) -> bool {
        self.known.lock().peers.contains_key(&tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(all: &[(u64, Option<&str>)]) -> BTreeMap<NodeId, NodeRecord> {
        let record = |address: Option<&str>| NodeRecord {
            name: String::new(),
            version: String::new(),
            address: address.map(Into::into),
            started_at_seconds: 0,
            connections: 0,
        };
        all.iter().map(|(node, address)| (NodeId(*node), record(*address))).collect()
    }

    #[test]
    fn nodes_that_left_or_moved_are_gone() {
        let peers = Peers::default();
        peers.update(NodeId(1), &nodes(&[(1, Some("own")), (2, Some("two")), (3, None), (4, Some("four"))]));
        let tag = |node| NodeId(node).tag();
        assert_eq!([1, 2, 3, 4].map(|node| peers.has(tag(node))), [false, true, false, true]);
        let (two, four) = (peers.find(tag(2)).unwrap(), peers.find(tag(4)).unwrap());
        assert_eq!((two.node, &*two.address), (NodeId(2), "two"));
        peers.update(NodeId(1), &nodes(&[(2, Some("two")), (4, Some("elsewhere"))]));
        assert!(two.gone.has_changed().is_ok() && four.gone.has_changed().is_err());
        assert_eq!(&*peers.find(tag(4)).unwrap().address, "elsewhere");
        peers.update(NodeId(1), &nodes(&[]));
        assert!(two.gone.has_changed().is_err() && !peers.has(tag(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_not_known_is_waited_for() {
        let peers = Arc::new(Peers::default());
        let wait = |node| {
            let peers = peers.clone();
            tokio::spawn(async move { peers.wait_for(NodeId(node).tag()).await })
        };
        let (two, three) = (wait(2), wait(3));
        peers.wanted().await;
        peers.update(NodeId(1), &nodes(&[(1, None)]));
        peers.wanted().await;
        assert!(!two.is_finished());
        peers.update(NodeId(1), &nodes(&[(1, None), (2, Some("two"))]));
        assert_eq!((two.await.unwrap(), three.await.unwrap()), (true, false));
        // Without an answer, the wait ends after a timeout.
        let start = tokio::time::Instant::now();
        assert!(!wait(4).await.unwrap());
        assert_eq!(start.elapsed(), UPDATE_TIMEOUT);
        // The node was alive, and is dead now: the wait ends at once.
        peers.update(NodeId(1), &nodes(&[(1, None)]));
        assert!(!wait(2).await.unwrap());
        assert_eq!(start.elapsed(), UPDATE_TIMEOUT, "at once");
    }
}
