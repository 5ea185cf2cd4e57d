//! The application link between the nodes of a cluster: the port between the link, which has the workers of this node, and the cluster,
//! which carries the link's messages to other nodes.
//!
//! A message is opaque: the link of one node writes it for the links of others. Messages about one application that one node sends to all
//! others, or to the same one, arrive in the order in which they were sent, each at most once. A node whose link is behind drops some.

use crate::{Busy, Done};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

crate::named! {
    /// The state of a link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum LinkState {
        /// The worker takes sessions.
        Up = "up",
        /// The worker hands its sessions over.
        Draining = "draining",
        /// The connection is broken, and may be restored.
        Lost = "lost",
        /// The link has ended, and its connection closes.
        Ended = "ended",
    }
}

/// A link of a worker, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Name of the node that has the link. `None`: the node is in no cluster.
    pub node: Option<Arc<str>>,
    /// Name of the application.
    pub app: Arc<str>,
    /// Number of the link.
    pub link: u32,
    /// Name of the worker.
    pub worker: Arc<str>,
    /// Id of the worker's process.
    pub instance: Arc<str>,
    /// The state.
    pub state: LinkState,
    /// Policy for messages that the worker hasn't acknowledged when it crashes.
    pub on_crash: Cow<'static, str>,
    /// Sessions of the worker.
    pub sessions: usize,
    /// Bytes that the worker hasn't acknowledged.
    pub unacknowledged_bytes: usize,
}

/// The links of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkList {
    /// The links, unordered.
    pub links: Vec<LinkInfo>,
    /// Names of nodes that didn't answer in time: their links aren't listed.
    pub missing_nodes: Vec<String>,
}

impl LinkList {
    /// The links of one node.
    pub fn new(links: Vec<LinkInfo>) -> Self {
        Self { links, ..Self::default() }
    }

    /// Adds the links of another node.
    pub fn merge(&mut self, other: Self) {
        self.links.extend(other.links);
        self.missing_nodes.extend(other.missing_nodes);
    }
}

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

    /// Maximum delay of a message behind a message that another node sent later.
    fn delay_max(&self) -> Duration;

    /// Lists the links of all nodes.
    fn list_links(&self, done: Done<LinkList>);
}

/// The link, as the cluster calls it. No call blocks.
pub trait LinkNodeSink: fmt::Debug + Send + Sync {
    /// Takes a message about an application from another node. The link drops and counts the message if too many wait, as if the engine
    /// had lost it.
    fn receive(&self, node: u64, app: &str, message: &Bytes);

    /// The links of this node's workers.
    fn links(&self) -> Vec<LinkInfo>;

    /// Reports that a node has left the cluster, or is dead.
    fn node_left(&self, node: u64);

    /// Reports that the engine is connected, so that other nodes receive messages, or that its connection is lost.
    fn engine_changed(&self, is_connected: bool);
}
