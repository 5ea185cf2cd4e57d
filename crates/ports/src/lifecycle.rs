//! The lifecycle of a node, and its figures.

use crate::{Done, Histogram, Metric, Readiness};
use std::time::Duration;

/// How a node drains. From the first moment on it isn't ready ([`Lifecycle::readiness`]).
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

/// The lifecycle of the data plane. No call blocks.
pub trait Lifecycle: Send + Sync {
    /// Whether load balancers should choose the node for new clients, and why not.
    fn readiness(&self) -> Readiness;

    /// Connections of clients.
    fn connections(&self) -> usize;

    /// Stops accepting connections on all cores, or accepts them again, and then answers. The listening sockets stay open, for
    /// another process has them, too.
    fn pause_accepting(&self, is_paused: bool, done: Done<()>);

    /// Ends all sessions and connections. A second call replaces the times of the first.
    fn drain(&self, drain: Drain);
}

/// A part of the process that has figures.
pub trait MetricSource: Send + Sync {
    /// All counters and gauges of the part.
    fn metrics(&self) -> Vec<Metric>;

    /// The histograms of the part.
    fn histograms(&self) -> Vec<Histogram>;
}
