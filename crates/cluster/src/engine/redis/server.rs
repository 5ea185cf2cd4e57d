//! Finds the primaries.

use super::address::{Address, Topology};
use super::connection::Connection;
use super::slots::{self, Nodes, Ranges};
use super::values::{explain, text};
use crate::engine::Identity;
use crate::engine::common::{CONNECT_TIMEOUT, Endpoint, Login};
use redis::{Pipeline, Value};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::Ledger;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Time for a Sentinel, or a node of a cluster, to answer before the next one is asked. The last one has
/// [`CONNECT_TIMEOUT`], as a server alone has: no other may know the primaries.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Age up to which these answers are new enough for a connection.
pub(super) const RECENT: Duration = Duration::from_secs(1);
/// Maximum time for which a connection waits for these answers.
const CHECK_TIMEOUT: Duration = Duration::from_millis(200);

/// The address of a Redis deployment (standalone, Sentinel or Cluster) and its discovery state.
pub(crate) struct Server {
    pub(super) address: Address,
    /// The ledger that is charged for replies.
    pub(super) ledger: Arc<Ledger>,
    /// The connection to the Sentinel that answered last. Locked while a Sentinel, or a node of a cluster, is asked.
    discovery: Mutex<Option<Connection>>,
    known: parking_lot::Mutex<Known>,
}

/// The last answer about the nodes of a cluster.
#[derive(Default)]
struct Known {
    nodes: Nodes,
    /// The time of the answer. `None` if the nodes may have changed since.
    read_at: Option<Instant>,
}

impl Known {
    fn primaries(&self) -> impl Iterator<Item = &Endpoint> {
        self.nodes.iter().filter_map(|(_, nodes)| nodes.first())
    }

    fn is_newer_than(&self, age: Duration) -> bool {
        self.read_at.is_some_and(|at| at.elapsed() < age)
    }
}

impl Server {
    /// Parses a URL. `ca_file` has the certificates to trust; `None` for those of the system.
    ///
    /// # Errors
    /// The mistake, without the password.
    pub(crate) fn parse(
        url: &str,
        ca_file: Option<&Path>,
        identity: Option<&Identity>,
        ledger: Arc<Ledger>,
    ) -> Result<Self, String> {
        let address = Address::parse(url, ca_file, identity)?;
        Ok(Self { address, ledger, discovery: Mutex::default(), known: parking_lot::Mutex::default() })
    }

    /// The address of the servers, and the ledger for replies: the arguments of [`Connection::open`].
    pub(super) fn connecting(&self) -> (&Address, &Arc<Ledger>) {
        (&self.address, &self.ledger)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.address.topology, Topology::Cluster(_))
    }

    /// The endpoint of the primary. In a cluster: those of all primaries, in the order in which to try them.
    ///
    /// # Errors
    /// The reason why it isn't known, for people. No secrets.
    pub(super) async fn candidates(&self) -> Result<Vec<Endpoint>, String> {
        match &self.address.topology {
            Topology::Standalone(endpoint) => Ok(vec![endpoint.clone()]),
            Topology::Sentinel { sentinels, name, login } => {
                let mut pipeline = Pipeline::new();
                pipeline.cmd("SENTINEL").arg("get-master-addr-by-name").arg(name);
                let read = |replies, _: &Endpoint| primary_of(replies, name);
                let mut discovery = self.discovery.lock().await;
                let asked =
                    self.ask(&mut discovery, "Sentinel ", sentinels, (login, 0), &pipeline, read).await;
                let explain = |reason: String| match reason.contains("refused the credentials") {
                    true => format!("{reason}; see sentinel_user and sentinel_password in the URL"),
                    false => reason,
                };
                asked.map(|primary| vec![primary]).map_err(explain)
            }
            Topology::Cluster(_) => {
                self.nodes(RECENT).await?;
                Ok(self.shuffled_primaries())
            }
        }
    }

    fn shuffled_primaries(&self) -> Vec<Endpoint> {
        let primaries: HashSet<_> = self.known.lock().primaries().cloned().collect();
        let mut primaries: Vec<_> = primaries.into_iter().collect();
        fastrand::shuffle(&mut primaries);
        primaries
    }

    /// Makes the next check of a connection read the primaries of the cluster again.
    pub(super) fn expire_primaries(&self) {
        self.known.lock().read_at = None;
    }

    /// The primaries of a cluster, with their slots, by an answer that is at most as old as `age_max`.
    ///
    /// # Errors
    /// The reason why they aren't known, for people. No secrets.
    pub(crate) async fn ranges(&self, age_max: Duration) -> Result<Ranges, String> {
        let nodes = self.nodes(age_max).await?;
        Ok(nodes.into_iter().filter_map(|(slots, nodes)| Some((slots, nodes.into_iter().next()?))).collect())
    }

    /// The replies of all nodes of a cluster to a command, replicas included. `None` for a node that doesn't answer.
    ///
    /// # Errors
    /// The reason why the nodes aren't known, for people. No secrets.
    pub(crate) async fn ask_each(
        self: &Arc<Self>,
        pipeline: &Pipeline,
    ) -> Result<Vec<Option<Value>>, String> {
        let nodes: HashSet<_> = self.nodes(RECENT).await?.into_iter().flat_map(|(_, nodes)| nodes).collect();
        let mut asked = JoinSet::new();
        for endpoint in nodes {
            let (server, pipeline) = (self.clone(), pipeline.clone());
            asked.spawn(timeout(TIMEOUT, async move {
                let login = server.address.login();
                let connection = Connection::open(server.connecting(), endpoint, login, None).await.ok()?;
                connection.send(&pipeline).await.ok()?.pop()
            }));
        }
        Ok(asked.join_all().await.into_iter().map(|answer| answer.ok().flatten()).collect())
    }

    async fn nodes(&self, age_max: Duration) -> Result<Nodes, String> {
        let Topology::Cluster(seeds) = &self.address.topology else { return Ok(Vec::new()) };
        let called_at = Instant::now();
        let mut discovery = self.discovery.lock().await;
        {
            // Another task may have asked in the meantime.
            let known = self.known.lock();
            if known.is_newer_than(age_max + called_at.elapsed()) {
                return Ok(known.nodes.clone());
            }
        }
        // Each question goes to another primary, at random: all of them know the slots.
        let nodes = [&self.shuffled_primaries()[..], seeds].concat();
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
        let nodes = self.ask(&mut discovery, "", &nodes, self.address.login(), &pipeline, nodes_of).await?;
        *self.known.lock() = Known { nodes: nodes.clone(), read_at: Some(Instant::now()) };
        Ok(nodes)
    }

    /// Returns `true` if another server has replaced this one. Returns `false` if this is unknown: a server is used
    /// while its Sentinels don't answer. Sentinels are asked each time, nodes of a cluster only if the last answer is old.
    pub(super) async fn is_replaced(self: &Arc<Self>, endpoint: &Endpoint) -> bool {
        if matches!(self.address.topology, Topology::Standalone(_)) {
            return false;
        }
        {
            let known = self.known.lock();
            if known.is_newer_than(slots::AGE_MAX) {
                return !known.primaries().any(|primary| primary == endpoint);
            }
        }
        // One task asks at a time. Without an answer, the timeout bounds the delay of requests that wait for this
        // connection.
        if timeout(CHECK_TIMEOUT, self.discovery.lock()).await.is_err() {
            return false;
        }
        let server = self.clone();
        // The task continues after the timeout, so it finds a server that answers.
        let asked = tokio::spawn(async move { server.candidates().await });
        match timeout(CHECK_TIMEOUT, asked).await {
            Ok(Ok(Ok(primaries))) => !primaries.contains(endpoint),
            _ => false,
        }
    }

    /// Asks the Sentinel that answered last, or else each of `endpoints`, until one has a readable answer.
    async fn ask<T>(
        &self,
        discovery: &mut Option<Connection>,
        kind: &str,
        endpoints: &[Endpoint],
        login: (&Login, u32),
        pipeline: &Pipeline,
        read: impl Fn(Vec<Value>, &Endpoint) -> Result<T, String>,
    ) -> Result<T, String> {
        if let Some(connection) = discovery.take()
            && let Ok(Ok(replies)) = timeout(TIMEOUT, connection.send(pipeline)).await
            && let Ok(answer) = read(replies, &connection.endpoint)
        {
            *discovery = Some(connection);
            return Ok(answer);
        }
        let mut reasons = Vec::new();
        let mut rest = endpoints.iter();
        while let Some(endpoint) = rest.next() {
            let time = if rest.len() == 0 { CONNECT_TIMEOUT } else { TIMEOUT };
            let asked = timeout(time, async {
                let connection = Connection::open(self.connecting(), endpoint.clone(), login, None).await?;
                let replies = connection.send(pipeline).await?;
                Ok::<_, String>((connection, replies))
            });
            let asked = asked.await.unwrap_or_else(|_| Err("it doesn't answer".into()));
            match asked.and_then(|(connection, replies)| Ok((connection, read(replies, endpoint)?))) {
                Ok((connection, answer)) => {
                    *discovery = (!self.is_cluster()).then_some(connection);
                    return Ok(answer);
                }
                Err(reason) => reasons.push(format!("{kind}{endpoint}: {reason}")),
            }
        }
        Err(reasons.join("; "))
    }
}

/// Reads a Sentinel's answer about the primary of this name.
fn primary_of(mut replies: Vec<Value>, name: &str) -> Result<Endpoint, String> {
    match replies.pop() {
        Some(Value::Array(address)) => {
            let mut address = address.into_iter().filter_map(text);
            let endpoint = address.next().zip(address.next().and_then(|port| port.parse().ok()));
            endpoint.map(|(host, port)| Endpoint { host, port }).ok_or_else(|| "it isn't a Sentinel".into())
        }
        Some(Value::Nil) => Err(format!("it doesn't know a primary of the name `{name}`")),
        Some(Value::ServerError(error)) if error.code() == "NOPERM" => Err(explain(error)),
        _ => Err("it isn't a Sentinel".into()),
    }
}

/// Reads a cluster node's answer about itself and its slots.
fn nodes_of(replies: Vec<Value>, node: &Endpoint) -> Result<Nodes, String> {
    let Ok([info, slots]) = <[Value; 2]>::try_from(replies) else { return Err("it isn't Redis".into()) };
    if let Value::ServerError(error) = info {
        return Err(match error.code() {
            "NOPERM" => explain(error),
            _ => "it isn't a node of a Redis Cluster; write redis:// for a server alone".into(),
        });
    }
    if !text(info).is_some_and(|info| info.contains("cluster_state:ok")) {
        return Err("the cluster is down, as this node sees it (CLUSTER INFO)".into());
    }
    slots::nodes(slots, &node.host).ok_or_else(|| "it isn't a node of a Redis Cluster".into())
}
