//! The data plane, as the control plane sees it.

use crate::{
    Answers, Commands, Feeds, Histogram, Lifecycle, LinkInbox, Metric, MetricSource, NodeInbox, NodeInfo,
    Topology,
};
use std::sync::Arc;
use stentor_hub::Room;

/// All ports that the data plane of one node offers.
pub trait LocalNode: Commands + Answers + Feeds + NodeInbox + LinkInbox + Lifecycle + MetricSource {}

impl<T: Commands + Answers + Feeds + NodeInbox + LinkInbox + Lifecycle + MetricSource> LocalNode for T {}

/// The data plane, as the control plane sees it. A cluster and bridges replace the fields that they implement themselves.
#[derive(Clone)]
pub struct DataPlane {
    /// Commands for sessions and rooms, of all nodes.
    pub commands: Arc<dyn Commands>,
    /// The feeds that this node fetches.
    pub feeds: Arc<dyn Feeds>,
    /// The lifecycle of this node.
    pub lifecycle: Arc<dyn Lifecycle>,
    /// All parts that have metrics.
    pub metrics: Vec<Arc<dyn MetricSource>>,
    /// The cluster of this node. `None` without a cluster.
    pub topology: Option<Arc<dyn Topology>>,
}

impl DataPlane {
    /// The data plane of a node without a cluster.
    pub fn new(node: Arc<dyn LocalNode>) -> Self {
        Self {
            commands: node.clone(),
            feeds: node.clone(),
            lifecycle: node.clone(),
            metrics: vec![node as Arc<dyn MetricSource>],
            topology: None,
        }
    }

    /// The live nodes of the cluster, by id. Empty without a cluster.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.topology.as_ref().map_or_else(Vec::new, |topology| topology.nodes())
    }

    /// `true` if the engine of a cluster assigns positions to the messages of a room.
    pub fn is_ordered(&self, room: &Room) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.is_ordered(room))
    }

    /// The counters and gauges of all parts.
    pub fn metrics(&self) -> Vec<Metric> {
        self.metrics.iter().flat_map(|part| part.metrics()).collect()
    }

    /// The histograms of all parts.
    pub fn histograms(&self) -> Vec<Histogram> {
        self.metrics.iter().flat_map(|part| part.histograms()).collect()
    }
}
