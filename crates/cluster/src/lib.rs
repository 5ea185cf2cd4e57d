//! Several nodes on one engine: what they tell each other, and what survives a node.
//!
//! - [`engine`]: what carries messages between nodes and keeps the state that must survive one: in memory, Redis or NATS.
//!
//! State machines here are sans-I/O, as in the other crates. Only engines, and the task that joins them with a node, know
//! tokio.
#![forbid(unsafe_code)]

pub mod engine;
mod node_id;

pub use node_id::NodeId;
