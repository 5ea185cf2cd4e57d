//! The nodes of a cluster.

use crate::{Done, FeedList, FeedLister, FeedsQuery};
use std::sync::Arc;
use stentor_hub::Room;

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// A random id that the node drew when it started.
    pub id: String,
    /// The node's name in its configuration.
    pub name: String,
    /// Stentor's version.
    pub version: String,
    /// The address at which other nodes reach this node. `None` if they can't.
    pub address: Option<String>,
    /// The Unix time when the node started, in seconds.
    pub started_at_seconds: u64,
    /// The number of client connections, a few seconds ago.
    pub connections: usize,
    /// `true` for this node.
    pub is_this: bool,
}

/// The cluster of a node, for the control plane.
pub trait Topology: Send + Sync {
    /// The nodes that are alive, by id.
    fn nodes(&self) -> Vec<NodeInfo>;

    /// `true` if the engine assigns positions to the messages of a room.
    fn is_ordered(&self, room: &Room) -> bool;

    /// Sets the port that lists this node's feed keys for other nodes. Called once, at the start.
    fn join_feeds(&self, lister: Arc<dyn FeedLister>);

    /// Lists the feed keys of all nodes, and those with pushed documents that have subscribers. `own` are the keys that this node fetches.
    fn list_feeds(&self, query: FeedsQuery, own: FeedList, done: Done<FeedList>);
}
