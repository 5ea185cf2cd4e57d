//! A node's place in a cluster: from the configuration to a member that runs, and leaves.

use crate::config::options::ClusterOptions;
use anyhow::Context;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stentor_cluster::engine::{ConnectOptions, EventReceiver, Limits, connect as connect_engine};
use stentor_cluster::{Cluster, ClusterPlane, NodeId, Options};
use stentor_edge::{Broker, ControlPlane, DataPlane, Ledger, NodeTag};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time for telling the other nodes that this one leaves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A node that is connected to its engine, and has no data plane yet.
pub(crate) struct Joining {
    cluster: Arc<Cluster>,
    events: EventReceiver,
}

/// A node of a cluster.
pub(crate) struct Member {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Connects a node with these planes to its engine, if it has one. What it holds is counted in `ledger`.
pub(crate) async fn connect(
    options: ClusterOptions,
    edge: &stentor_edge::Options,
    control: &stentor_control::Options,
    ledger: Arc<Ledger>,
) -> anyhow::Result<Option<Joining>> {
    let ClusterOptions { engine, node: name, secret, advertise, ca_file, prefix, wait } = options;
    let Some(address) = engine else { return Ok(None) };
    let node = NodeId::draw();
    let name = name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let limits = Limits::within(edge.limits.memory_bytes_max);
    let options = ConnectOptions { prefix, wait, ca_file, limits, ledger: ledger.clone() };
    let (engine, events) = connect_engine(node, &address, options)
        .await
        .with_context(|| format!("can't join the cluster at {address} ([cluster] engine)"))?;
    tracing::info!(engine = %address, node = name, id = %node, "joined the cluster");
    if secret.is_none() {
        tracing::warn!(
            "the cluster has no secret: whoever can write to its engine can send messages to clients; set secret in [cluster] \
             (or STENTOR_CLUSTER_SECRET)"
        );
    }
    let options = Options {
        name,
        advertise,
        secret: secret.map(|secret| secret.into_bytes().into()),
        version: env!("CARGO_PKG_VERSION").into(),
        history: edge.rooms.history.clone(),
        decision_timeout: edge.limits.decision_timeout,
        document_bytes_max: document_bytes_max(&control.feeds),
        ledger,
    };
    let started_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cluster = Cluster::new(node, options, engine, &events, started_at.as_secs());
    Ok(Some(Joining { cluster, events }))
}

/// The largest document of any feed.
fn document_bytes_max(feeds: &stentor_control::FeedsOptions) -> usize {
    let fetched = feeds.upstreams.iter().map(|upstream| upstream.document_bytes_max);
    fetched.chain([feeds.pushed_document_bytes_max]).max().unwrap_or_default()
}

impl Joining {
    /// What hands the data plane's messages to other nodes.
    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        self.cluster.clone()
    }

    /// What names this node in the ids of its clients.
    pub(crate) fn node_tag(&self) -> NodeTag {
        self.cluster.node().tag()
    }

    /// The observer of the data plane, where `control` alone would be.
    pub(crate) fn observe(&self, control: Arc<dyn ControlPlane>) -> Arc<dyn ControlPlane> {
        self.cluster.observe(control)
    }

    /// Joins the data plane with the cluster. Returns the data plane as the control plane is to see it.
    pub(crate) fn start(self, plane: Arc<dyn DataPlane>) -> (Arc<dyn DataPlane>, Member) {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(self.cluster.clone().run(self.events, plane.clone(), stopped));
        (Arc::new(ClusterPlane::new(plane, self.cluster)), Member { stop, task })
    }
}

impl Member {
    /// Tells the other nodes that this one leaves.
    pub(crate) async fn leave(self) {
        let _ = self.stop.send(true);
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.task).await;
    }
}
