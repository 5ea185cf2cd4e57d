//! A node's membership in a cluster: connecting, starting and leaving.

use crate::config::options::{BridgeOptions, ClusterOptions};
use crate::own_thread::OwnThread;
use anyhow::Context;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stentor_cluster::bridge::{self, BridgedCommands, Bridges, Connections};
use stentor_cluster::engine::{
    ConnectError, ConnectOptions, EventReceiver, Limits, connect as connect_engine,
};
use stentor_cluster::{Cluster, ClusterCommands, NodeId, Options, Relays};
use stentor_cluster_settings::Identity;
use stentor_ports::{
    Broker, ControlPlane, DataPlane, Ledger, LinkCarrier, LocalNode, NodeTag, NoticeSink, Relay,
    RevocationList,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Maximum time for notifying the other nodes that this node leaves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Adds the metrics of a cluster and of bridges to a data plane, for the generated reference.
pub(crate) fn add_all_metrics(data_plane: &mut DataPlane) -> anyhow::Result<()> {
    data_plane.metrics.push(Cluster::alone());
    data_plane.metrics.push(Bridges::alone()?);
    Ok(())
}

/// A node that is connected to its engine, or to Socket.IO's servers, before its data plane starts.
pub(crate) struct Joining {
    cluster: Option<JoinedCluster>,
    bridges: Option<(Arc<Bridges>, Connections)>,
    thread: OwnThread,
}

/// A node that is connected to its engine.
struct JoinedCluster {
    cluster: Arc<Cluster>,
    events: EventReceiver,
    relays: Arc<Relays>,
    /// The listener for connections that other nodes relay.
    internal: TcpListener,
}

/// A node of a cluster.
pub(crate) struct Member {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    internal: Option<JoinHandle<()>>,
    _thread: OwnThread,
}

/// Connects a node to its engine and its Socket.IO bridges. Returns `None` if neither is configured. Their
/// memory is charged to `ledger`.
pub(crate) async fn connect(
    mut options: ClusterOptions,
    edge: &stentor_edge::Options,
    control: &stentor_control::Options,
    ledger: Arc<Ledger>,
    revocations: Option<Arc<dyn RevocationList>>,
) -> anyhow::Result<Option<Joining>> {
    let bridges = bridges(&mut options, Limits::within(edge.limits.memory_bytes_max));
    if options.engine.is_none() && bridges.is_empty() {
        return Ok(None);
    }
    let thread = OwnThread::start("cluster")?;
    let cluster = connect_cluster(&thread, options, edge, control, ledger.clone(), revocations).await?;
    let broker = cluster.as_ref().map(|joined| joined.cluster.clone() as Arc<dyn Broker>);
    let bridges = if bridges.is_empty() {
        None
    } else {
        let bridges = Bridges::new(&bridges, broker, &ledger);
        let connect = async move {
            let bridges = bridges?;
            let connections = bridges.connect().await?;
            Ok::<_, ConnectError>((bridges, connections))
        };
        let connected = thread.spawn(connect).await?;
        let what = "can't share namespaces with Socket.IO's servers ([[cluster.socketio]])";
        Some(connected.context(what)?)
    };
    Ok(Some(Joining { cluster, bridges, thread }))
}

/// An attempt to connect once: its kind, its name, and a description of the result.
pub(crate) type Attempt =
    (&'static str, String, Pin<Box<dyn Future<Output = Result<String, String>> + Send>>);

/// Returns attempts to connect to the engine and to Socket.IO's servers, which don't wait until these can be reached.
pub(crate) fn attempts(mut options: ClusterOptions, edge: &stentor_edge::Options) -> Vec<Attempt> {
    let limits = Limits::within(edge.limits.memory_bytes_max);
    let ledger = Arc::new(Ledger::new(edge.limits.memory_bytes_max));
    let mut attempts: Vec<Attempt> = Vec::new();
    for shared in bridges(&mut options, limits) {
        let (name, ledger) = (shared.address.to_string(), ledger.clone());
        let shared = bridge::Options { wait: false, ..shared };
        let attempt = async move {
            let bridges = Bridges::new(&[shared], None, &ledger).map_err(|error| error.to_string())?;
            bridges.connect().await.map(|_| "it answers".into()).map_err(|error| error.to_string())
        };
        attempts.push(("Socket.IO servers", name, Box::pin(attempt)));
    }
    let identity = identity(&options);
    let ClusterOptions { engine, prefix, ca_file, credentials_file, .. } = options;
    if let Some(address) = engine {
        let options =
            ConnectOptions { prefix, wait: false, ca_file, credentials_file, identity, limits, ledger };
        let name = address.to_string();
        let attempt = async move {
            let connected = connect_engine(NodeId::draw(), &address, options).await;
            connected.map(|_| "it answers".into()).map_err(|error| error.to_string())
        };
        attempts.push(("engine", name, Box::pin(attempt)));
    }
    attempts
}

/// Returns the certificate that identifies the node in TLS. `None` if the configuration names no files.
fn identity(options: &ClusterOptions) -> Option<Identity> {
    let files = options.certificate_file.clone().zip(options.key_file.clone());
    files.map(|(certificate_file, key_file)| Identity { certificate_file, key_file })
}

/// Returns the bridges to Socket.IO's servers.
fn bridges(options: &mut ClusterOptions, limits: Limits) -> Vec<bridge::Options> {
    let identity = identity(options);
    let ClusterOptions { engine, ca_file, wait, bridges, .. } = options;
    let bridges = std::mem::take(bridges).into_iter();
    bridges
        .filter_map(|BridgeOptions { url, prefix, namespaces, adapter, mode, parser }| {
            Some(bridge::Options {
                // The configuration has a URL for the bridge or an engine.
                address: url.or_else(|| engine.clone())?,
                ca_file: ca_file.clone(),
                identity: identity.clone(),
                wait: *wait,
                limits,
                prefix: prefix.unwrap_or_else(|| adapter.default_prefix().into()),
                namespaces,
                adapter,
                mode,
                parser,
            })
        })
        .collect()
}

async fn connect_cluster(
    thread: &OwnThread,
    options: ClusterOptions,
    edge: &stentor_edge::Options,
    control: &stentor_control::Options,
    ledger: Arc<Ledger>,
    revocations: Option<Arc<dyn RevocationList>>,
) -> anyhow::Result<Option<JoinedCluster>> {
    let identity = identity(&options);
    let ClusterOptions {
        engine,
        node: name,
        secret,
        listen,
        advertise,
        ca_file,
        credentials_file,
        prefix,
        wait,
        unready_after,
        vacant_rooms_max,
        ..
    } = options;
    let Some(address) = engine else { return Ok(None) };
    let internal = listen_internally(listen, secret.is_some()).await?;
    let advertise = match advertise {
        Some(advertise) => advertise,
        None => advertised(&internal)?,
    };
    let node = NodeId::draw();
    let name = name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let limits = Limits::within(edge.limits.memory_bytes_max);
    let options =
        ConnectOptions { prefix, wait, ca_file, credentials_file, identity, limits, ledger: ledger.clone() };
    let what = format!("can't join the cluster at {address} ([cluster] engine)");
    let shown = address.to_string();
    let connect = async move { connect_engine(node, &address, options).await };
    let (engine, events) = thread.spawn(connect).await?.context(what)?;
    tracing::info!(engine = shown, node = name, id = %node, "joined the cluster");
    if secret.is_none() {
        tracing::warn!(
            "the cluster has no secret: whoever can write to its engine can send messages to clients; set secret in [cluster] \
             (or STENTOR_CLUSTER_SECRET)"
        );
    }
    tracing::info!(%advertise, "listening for other nodes");
    let secret: Option<Arc<[u8]>> = secret.map(|secret| secret.into_bytes().into());
    let relays = Relays::new(node, secret.as_deref(), engine.clone(), ledger.clone());
    let options = Options {
        name,
        advertise: Some(advertise),
        secret,
        unready_after: (!unready_after.is_zero()).then_some(unready_after),
        relays: Some(relays.clone()),
        version: env!("CARGO_PKG_VERSION").into(),
        history: edge.rooms.history.clone(),
        vacant_rooms_max,
        decision_timeout: edge.limits.decision_timeout,
        feed_source: Arc::new(control.feeds.sources()),
        feed_idle_ttl: control.feeds.idle_ttl,
        feed_keys_max: control.feeds.keys_max,
        document_bytes_max: document_bytes_max(&control.feeds),
        ledger,
        revocations,
    };
    let started_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let cluster = Cluster::new(node, options, engine, &events, started_at.as_secs());
    Ok(Some(JoinedCluster { cluster, events, relays, internal }))
}

/// Opens the internal listener. Refuses an address beyond loopback without a secret, because any peer that
/// reaches the listener could impersonate a node.
async fn listen_internally(addr: SocketAddr, has_secret: bool) -> anyhow::Result<TcpListener> {
    if !addr.ip().is_loopback() && !has_secret {
        anyhow::bail!(
            "the internal listener at {addr} can be reached from other machines: set secret in [cluster] (or \
             STENTOR_CLUSTER_SECRET)"
        );
    }
    TcpListener::bind(addr).await.with_context(|| format!("can't listen at {addr} ([cluster] listen)"))
}

/// Returns the address at which other nodes reach the internal listener.
fn advertised(internal: &TcpListener) -> anyhow::Result<String> {
    let addr = internal.local_addr().context("the internal listener has no address")?;
    if addr.ip().is_unspecified() {
        anyhow::bail!(
            "[cluster] listen = \"{addr}\" names no address of this machine: set advertise as well"
        );
    }
    Ok(addr.to_string())
}

/// Returns the maximum size of a document of any feed.
fn document_bytes_max(feeds: &stentor_control::FeedsOptions) -> usize {
    let fetched = feeds.upstreams.iter().map(|upstream| upstream.document_bytes_max);
    fetched.chain([feeds.pushed_document_bytes_max]).max().unwrap_or_default()
}

impl Joining {
    /// Returns the broker that passes the data plane's messages to other nodes.
    pub(crate) fn broker(&self) -> Option<Arc<dyn Broker>> {
        let bridges = self.bridges.as_ref().map(|(bridges, _)| bridges.clone() as Arc<dyn Broker>);
        bridges.or_else(|| self.cluster.as_ref().map(|joined| joined.cluster.clone() as _))
    }

    /// Returns `true` if Socket.IO's own servers may request this node's clients.
    pub(crate) fn has_bridges(&self) -> bool {
        self.bridges.is_some()
    }

    /// Returns the observer of sessions: the bridges, if there are any, which also notify `inner`, or else
    /// `inner`.
    pub(crate) fn observe_sessions(&self, inner: Option<Arc<dyn NoticeSink>>) -> Option<Arc<dyn NoticeSink>> {
        match &self.bridges {
            Some((bridges, _)) => bridges.observe_sessions(inner),
            None => inner,
        }
    }

    /// Returns the tag of this node that the ids of its clients contain.
    pub(crate) fn node_tag(&self) -> NodeTag {
        self.cluster.as_ref().map_or_else(|| NodeId::draw().tag(), |joined| joined.cluster.node().tag())
    }

    /// Returns the id by which other nodes know this node. `None` outside a cluster.
    pub(crate) fn node_id(&self) -> Option<String> {
        self.cluster.as_ref().map(|joined| joined.cluster.node().to_string())
    }

    /// Returns the relay of connections to other nodes.
    pub(crate) fn relay(&self) -> Option<Arc<dyn Relay>> {
        self.cluster.as_ref().map(|joined| joined.relays.clone() as _)
    }

    /// Returns the carrier of the application link's messages to other nodes.
    pub(crate) fn link_carrier(&self) -> Option<Arc<dyn LinkCarrier>> {
        self.cluster.as_ref().map(|joined| joined.cluster.clone() as _)
    }

    /// Returns the observer that the data plane notifies: the cluster and the bridges, which also notify
    /// `control`, or else `control`.
    pub(crate) fn observe(&self, control: Arc<dyn ControlPlane>) -> Arc<dyn ControlPlane> {
        let control = match &self.cluster {
            Some(joined) => joined.cluster.observe(control),
            None => control,
        };
        match &self.bridges {
            Some((bridges, _)) => bridges.observe(control),
            None => control,
        }
    }

    /// Connects the data plane with the cluster. Returns the data plane that the control plane must use.
    pub(crate) fn start(self, local: Arc<dyn LocalNode>) -> (DataPlane, Member) {
        let (stop, stopped) = watch::channel(false);
        let (mut plane, mut tasks, mut own) = (DataPlane::new(local.clone()), Vec::new(), None);
        if let Some(JoinedCluster { cluster, events, relays, internal }) = self.cluster {
            own = Some(relays.start(internal, local.clone()));
            tasks.push(self.thread.spawn(cluster.clone().run(events, local.clone(), stopped.clone())));
            let commands = Arc::new(ClusterCommands::new(local.clone(), cluster.clone()));
            plane.commands = commands.clone();
            plane.feeds = commands.clone();
            plane.lifecycle = commands;
            plane.metrics.push(cluster.clone());
            plane.topology = Some(cluster);
        }
        if let Some((bridges, connections)) = self.bridges {
            tasks.push(self.thread.spawn(bridges.clone().run(connections, local.clone(), stopped)));
            plane.metrics.push(bridges.clone());
            plane.commands = Arc::new(BridgedCommands::new(local, plane.commands, bridges));
        }
        (plane, Member { stop, tasks, internal: own, _thread: self.thread })
    }
}

impl Member {
    /// Notifies the other nodes that this node leaves.
    pub(crate) async fn leave(self) {
        self.internal.iter().for_each(JoinHandle::abort);
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = tokio::time::timeout(LEAVE_TIMEOUT, task).await;
        }
    }
}
