//! Which other nodes connections can be passed through to.

use crate::NodeId;
use crate::registry::NodeRecord;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_edge::NodeTag;
use tokio::sync::watch;

struct Peer {
    node: NodeId,
    address: Arc<str>,
    /// Dropped when the node has left.
    alive: watch::Sender<()>,
}

/// A node that is alive.
pub(super) struct Found {
    pub(super) node: NodeId,
    pub(super) address: Arc<str>,
    /// Fails when the node has left.
    pub(super) gone: watch::Receiver<()>,
}

/// The other nodes that are alive and have said where they can be reached, by their tags.
#[derive(Default)]
pub(super) struct Peers(Mutex<HashMap<NodeTag, Peer>>);

impl Peers {
    fn peers(&self) -> MutexGuard<'_, HashMap<NodeTag, Peer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the nodes that are alive, `own` among them.
    pub(super) fn update(&self, own: NodeId, nodes: &BTreeMap<NodeId, NodeRecord>) {
        let mut peers = self.peers();
        peers.retain(|_, peer| {
            let record = nodes.get(&peer.node);
            record.is_some_and(|record| record.address.as_deref() == Some(&*peer.address))
        });
        for (node, record) in nodes.iter().filter(|(node, _)| **node != own) {
            if let Some(address) = record.address.as_deref() {
                peers.entry(node.tag()).or_insert_with(|| Peer {
                    node: *node,
                    address: address.into(),
                    alive: watch::Sender::new(()),
                });
            }
        }
    }

    /// The node of a tag.
    pub(super) fn find(&self, tag: NodeTag) -> Option<Found> {
        self.peers().get(&tag).map(|peer| Found {
            node: peer.node,
            address: peer.address.clone(),
            gone: peer.alive.subscribe(),
        })
    }

    /// Whether a node is alive and can be reached.
    pub(super) fn has(&self, tag: NodeTag) -> bool {
        self.peers().contains_key(&tag)
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
    fn those_that_left_or_moved_are_gone() {
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
}
