//! The lifecycle of a node, and its metrics.

use crate::{Done, Histogram, Metric, Readiness};
use std::time::Duration;

/// The process that accepts new connections while a node drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewConnections {
    /// This process, until the window is over.
    Accepted,
    /// The process that starts after this one. A service manager may have the listening sockets: then connections wait in their queues.
    #[default]
    Waiting,
    /// Another process, which has taken the listening sockets over.
    Elsewhere,
}

/// The times of a drain. The node isn't ready ([`Lifecycle::readiness`]) as soon as the drain begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// Time during which all requests are served as before, so that load balancers notice that the node isn't ready.
    pub delay: Duration,
    /// Time after `delay` during which sessions end, evenly distributed. New sessions are refused.
    pub window: Duration,
    /// Time after `window` until which the remaining connections must end.
    pub timeout: Duration,
    /// The process that accepts new connections.
    pub new_connections: NewConnections,
}

impl Drain {
    /// A drain with a timeout and without delay and window.
    pub fn within(timeout: Duration) -> Self {
        Self { timeout, ..Self::default() }
    }
}

/// The lifecycle of the data plane. No call blocks.
pub trait Lifecycle: Send + Sync {
    /// The readiness of the node for new clients.
    fn readiness(&self) -> Readiness;

    /// The number of client connections.
    fn connections(&self) -> usize;

    /// Stops or resumes accepting connections on all cores, and answers `done` when all cores have done so. The listening
    /// sockets stay open, because another process has them too.
    fn pause_accepting(&self, is_paused: bool, done: Done<()>);

    /// Ends all sessions and connections. A second call replaces the times of the first.
    fn drain(&self, drain: Drain);
}

/// A part of the process that has metrics.
pub trait MetricSource: Send + Sync {
    /// All counters and gauges of the part.
    fn metrics(&self) -> Vec<Metric>;

    /// The histograms of the part.
    fn histograms(&self) -> Vec<Histogram> {
        Vec::new()
    }
}
