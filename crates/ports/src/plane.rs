//! What the control plane sees of the data plane, and the other way round: two small traits.
//!
//! Everything here may be called from any thread and never blocks. The data plane never waits for the
//! control plane, and a full inbox is an answer ([`crate::Busy`]), not a wait: the caller waits for
//! [`ControlPlane::space`] and tries again.

use crate::{ClientConnection, CommandInbox, Done, Handover, Histogram, Metric, PushedFeeds, Readiness};
use std::time::Duration;
use stentor_hub::{Key, Requester, Room};

/// Whether anybody wants a key now. A level, not an event: only the newest answer per key counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub key: Key,
    /// True from the first subscriber on, false after the last one.
    pub wanted: bool,
    /// The sessions that have requested the key since the last call, while it had no state: at most
    /// [`REQUESTERS_MAX`], each once. If the list is full, there may have been more.
    pub requesters: Vec<Requester>,
}

/// Maximum number of requesters that are recorded per key.
pub const REQUESTERS_MAX: usize = 16;

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Drawn at the node's start.
    pub id: String,
    /// Its name in the configuration.
    pub name: String,
    /// Stentor's version.
    pub version: String,
    /// Where other nodes reach it.
    pub address: Option<String>,
    /// When it started, in seconds since 1970.
    pub started_at_seconds: u64,
    /// Connections of clients, a few seconds ago.
    pub connections: usize,
    /// Whether it is this node.
    pub is_this: bool,
}

/// How a node drains. From the first moment on it isn't ready ([`DataPlane::readiness`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// Everything is served as before, so that load balancers learn that the node isn't ready.
    pub delay: Duration,
    /// Then sessions end, evenly over this time. New ones are refused.
    pub window: Duration,
    /// Then the rest has this time to end.
    pub timeout: Duration,
    /// Whether new connections are accepted until the window is over. If not, none is from the first moment on: another
    /// process or a service manager has the listening sockets.
    pub listens: bool,
}

impl Drain {
    /// All at once.
    pub fn within(timeout: Duration) -> Self {
        Self { timeout, ..Self::default() }
    }
}

/// The data plane, as the control plane sees it.
pub trait DataPlane: CommandInbox {
    /// Takes what changed about which keys are wanted, since the last call.
    fn take_wanted(&self) -> Vec<Wanted>;

    /// All figures of the data plane.
    fn metrics(&self) -> Vec<Metric>;

    /// The histograms of the data plane.
    fn histograms(&self) -> Vec<Histogram> {
        Vec::new()
    }

    /// Connections of clients.
    fn connections(&self) -> usize {
        0
    }

    /// The nodes of the cluster that are alive, by id. None: this one is alone.
    fn nodes(&self) -> Vec<NodeInfo> {
        Vec::new()
    }

    /// Where documents that backends push are kept, for all nodes of a cluster. None: the control plane keeps them.
    fn pushed_feeds(&self) -> Option<&dyn PushedFeeds> {
        None
    }

    /// Gives a connection to a core: one that another node has passed through, or one of this node's that came back. It is closed
    /// if there is no room for it.
    fn adopt(&self, _connection: ClientConnection, _handover: Handover) {}

    /// Whether the engine of a cluster gives messages to a room their positions.
    fn is_ordered(&self, _room: &Room) -> bool {
        false
    }

    /// Whether load balancers should choose the node for new clients, and why not.
    fn readiness(&self) -> Readiness;

    /// Stops accepting connections on all cores, or accepts them again, and then answers. The listening sockets stay open, for
    /// another process has them, too.
    fn pause_accepting(&self, is_paused: bool, done: Done<()>);

    /// Ends all sessions and connections. A second call replaces the times of the first.
    fn drain(&self, drain: Drain);
}

/// The control plane, as the data plane sees it. Both are called from a core's thread: they only notify.
pub trait ControlPlane: Send + Sync {
    /// [`DataPlane::take_wanted`] has something.
    fn wanted(&self);

    /// An inbox that was full has room again.
    fn space(&self);
}
