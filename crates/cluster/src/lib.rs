//! Clusters: several nodes on one engine, which exchange messages and keep state that survives a node.
//!
//! - [`engine`]: carries messages between nodes and keeps the state that must survive a node: in memory, Redis or NATS.
//! - [`Cluster`]: joins a node with the others. It is the broker of the node's data plane. [`ClusterCommands`] has the
//!   control plane's commands for the sessions of all nodes.
//! - [`frame`]: the messages of nodes to each other.
//! - [`bridge`]: namespaces that are shared with Socket.IO's own servers.
//! - [`socketio`]: the messages of Socket.IO's own servers and emitters to each other.
//!
//! State machines here are sans-I/O, as in the other crates. Only engines, and the task that joins them with a node, know
//! tokio.
#![forbid(unsafe_code)]

pub mod bridge;
mod calls;
mod clock;
mod cluster;
mod commands;
pub mod engine;
mod feeds;
mod finish;
pub mod frame;
mod metrics;
mod node_id;
mod registry;
mod relay;
mod replaced;
mod rooms;
#[cfg(test)]
mod simulation;
pub mod socketio;
mod space;
mod surveys;
mod tasks;

pub use cluster::{Cluster, Options, REVOCATIONS_INTERVAL};
pub use commands::ClusterCommands;
pub use engine::NODES_MAX;
pub use feeds::SourceOf;
pub use node_id::NodeId;
pub use registry::{HEARTBEAT_INTERVAL, NODE_TTL, NodeRecord};
pub use relay::Relays;
pub use surveys::SURVEY_TIMEOUT;
