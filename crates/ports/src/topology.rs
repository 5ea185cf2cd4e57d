//! The nodes of a cluster.

use stentor_hub::Room;

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// A random id that the node drew when it started.
    pub id: String,
    /// Its name in the configuration.
    pub name: String,
    /// Stentor's version.
    pub version: String,
    /// The address at which other nodes reach it.
    pub address: Option<String>,
    /// When it started, in seconds since 1970.
    pub started_at_seconds: u64,
    /// Connections of clients, a few seconds ago.
    pub connections: usize,
    /// `true` for this node.
    pub is_this: bool,
}

/// The cluster of a node, for the control plane.
pub trait Topology: Send + Sync {
    /// The nodes that are alive, by id.
    fn nodes(&self) -> Vec<NodeInfo>;

    /// Whether the engine assigns positions to the messages of a room.
    fn is_ordered(&self, room: &Room) -> bool;
}
