//! The application link between the nodes of a cluster: the port between the link, which has the workers of this node, and the cluster,
//! which carries the link's messages to other nodes.
//!
//! A message is opaque: the link of one node writes it for the links of others. Messages about one application that one node sends to all
//! others, or to the same one, arrive in the order in which they were sent, each at most once. A node whose link is behind drops some.

use crate::Busy;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// The cluster, as the link calls it. No call blocks.
pub trait LinkCarrier: fmt::Debug + Send + Sync {
    /// Begins to receive the messages about these applications.
    fn join(&self, apps: &[Arc<str>], sink: Arc<dyn LinkNodeSink>);

    /// Sends a message about an application to a node, or, without one, to all others that have the application. Returns `false` if the
    /// message is too large for the engine, and so dropped.
    ///
    /// # Errors
    /// Too much waits for the engine.
    fn carry(&self, app: &Arc<str>, node: Option<u64>, message: Bytes) -> Result<bool, Busy>;
}

/// The link, as the cluster calls it. No call blocks.
pub trait LinkNodeSink: fmt::Debug + Send + Sync {
    /// Takes a message about an application from another node. The link drops and counts the message if too many wait, as if the engine
    /// had lost it.
    fn receive(&self, node: u64, app: &str, message: &Bytes);

    /// Reports that a node has left the cluster, or is dead.
    fn node_left(&self, node: u64);

    /// Reports that the engine is connected, so that other nodes receive messages, or that its connection is lost.
    fn engine_changed(&self, is_connected: bool);
}
