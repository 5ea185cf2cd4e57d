//! The tag of a node in the ids of its clients.

/// Names a node of a cluster in the ids of its Engine.IO clients and in the `pid`s of its Socket.IO sockets. In a cluster of a
/// hundred nodes, two have the same tag with a probability of one in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeTag(pub u32);
