//! A connection to a primary.

use super::connection::Connection;
use super::publications::Publications;
use super::receiver::{Commands, Replies};
use super::scripts::KnownScripts;
use super::server::Server;
use super::values::{explain, text};
use crate::engine::PAYLOAD_BYTES_MAX;
use crate::engine::common::{Endpoint, check_version, within_connect_timeout};
use redis::aio::AsyncPushSender;
use redis::{Pipeline, Value};
use std::net::TcpStream;
use std::sync::Arc;

/// The oldest supported version of a server: it has exclusive ranges of streams, and `GET` within `SET`.
const VERSION_MIN: &[u32] = &[6, 2];
/// The oldest supported version of a cluster: its nodes report the links between them.
const CLUSTER_VERSION_MIN: &[u32] = &[7, 0];
/// Size of the largest message, with its prefix.
const BULK_BYTES_MIN: usize = PAYLOAD_BYTES_MAX + 1_024;

/// A connection to a primary. It ends when it is dropped.
pub(crate) struct Link {
    server: Arc<Server>,
    connection: Connection,
    /// Names the incarnation of the server's data. Redis draws it anew when a replica becomes the primary, and when the
    /// server starts.
    replication_id: Arc<str>,
    known_scripts: Arc<KnownScripts>,
}

impl Link {
    /// Connects to the primary, and checks its role and its version.
    ///
    /// # Errors
    /// The reason, for people. No secrets.
    pub(crate) async fn connect(
        server: &Arc<Server>,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for endpoint in server.candidates().await? {
            match Self::to(server, endpoint, pushes.clone()).await {
                Ok(link) => return Ok(link),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    /// Connects to this primary.
    ///
    /// # Errors
    /// The reason, for people. No secrets.
    pub(crate) async fn to(
        server: &Arc<Server>,
        endpoint: Endpoint,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        within_connect_timeout(&endpoint.clone(), Self::open(server, endpoint, pushes)).await
    }

    async fn open(
        server: &Arc<Server>,
        endpoint: Endpoint,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let login = server.address.login();
        let connection = Connection::open(server.connecting(), endpoint, login, pushes).await?;
        let mut link = Self {
            server: server.clone(),
            connection,
            replication_id: "".into(),
            known_scripts: Arc::default(),
        };
        let info = link.info(&["server", "replication"]).await?;
        let version = field(&info, "redis_version").unwrap_or_default();
        let is_cluster = server.is_cluster();
        let (oldest, place) =
            if is_cluster { (CLUSTER_VERSION_MIN, " in a cluster") } else { (VERSION_MIN, "") };
        check_version("Redis", version, oldest, place)?;
        // Valkey calls the field `server_mode`.
        let mode = field(&info, "redis_mode").or_else(|| field(&info, "server_mode"));
        if !is_cluster && mode == Some("cluster") {
            return Err("the server is a node of a Redis Cluster; write redis+cluster:// for it".into());
        }
        link.replication_id = primary_of(&info)?.into();
        link.check_sizes().await?;
        Ok(link)
    }

    /// Checks that the server accepts the largest message. It would close the connection on a larger message, and so
    /// lose other messages.
    async fn check_sizes(&self) -> Result<(), String> {
        // A user with few permissions may not read the configuration.
        if !self.server.address.login.user.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CONFIG").arg("GET").arg("proto-max-bulk-len");
        let Some(Value::Map(settings)) = self.send(&pipeline).await?.pop() else { return Ok(()) };
        let bytes_max = settings.into_iter().find_map(|(_, value)| text(value)?.parse::<usize>().ok());
        match bytes_max.filter(|bytes_max| *bytes_max < BULK_BYTES_MIN) {
            Some(bytes_max) => {
                Err(format!("proto-max-bulk-len is {bytes_max}; Stentor needs {BULK_BYTES_MIN} or more"))
            }
            None => Ok(()),
        }
    }

    /// Checks that the server is still the same primary, and the one to use. An answer proves that the connection
    /// works.
    pub(crate) async fn check(&self) -> Result<(), String> {
        // The section `replication` alone suffices. `server` would be most of the bytes.
        let info = self.info(&["replication"]).await?;
        if primary_of(&info)? != &*self.replication_id {
            return Err("the server's data has changed".into());
        }
        if self.server.is_replaced(&self.connection.endpoint).await {
            return Err("another server is the primary now".into());
        }
        Ok(())
    }

    /// The links over which this node of a cluster receives messages published at the others, each with its start time.
    /// Empty without a cluster.
    pub(super) async fn incoming_links(&self) -> Result<Vec<(String, i64)>, String> {
        if !self.server.is_cluster() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLUSTER").arg("LINKS");
        match self.send(&pipeline).await?.pop() {
            Some(Value::Array(links)) => {
                let mut links: Vec<_> = links.into_iter().filter_map(incoming_link).collect();
                links.sort_unstable();
                Ok(links)
            }
            Some(Value::ServerError(error)) => Err(explain(error)),
            _ => Err("the server isn't Redis".into()),
        }
    }

    /// Compares the cluster, as this node of it sees it, with `seen`. If it has changed or is down, this node may be cut off from the
    /// others, or removed: the next check reads the primaries again.
    pub(crate) async fn watch_cluster(&self, seen: &mut Option<String>) -> Result<(), String> {
        if !self.server.is_cluster() {
            return Ok(());
        }
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLUSTER").arg("INFO");
        let info = self.send(&pipeline).await?.pop().and_then(text).unwrap_or_default();
        let names = ["cluster_state", "cluster_known_nodes", "cluster_current_epoch"];
        let view = names.map(|name| field(&info, name).unwrap_or_default()).join(" ");
        let is_down = !view.starts_with("ok ");
        if seen.replace(view.clone()).is_some_and(|before| before != view) || is_down {
            self.server.expire_primaries();
        }
        Ok(())
    }

    async fn info(&self, sections: &[&str]) -> Result<String, String> {
        let mut pipeline = Pipeline::new();
        // Several sections in one command need Redis 7.
        for section in sections {
            pipeline.cmd("INFO").arg(*section);
        }
        let replies = self.send(&pipeline).await?;
        if let Some(Value::ServerError(error)) = replies.first() {
            return Err(explain(error.clone()));
        }
        Ok(replies.into_iter().filter_map(text).collect())
    }

    /// The connection's commands, and a second handle to its socket. `None` if the connection is encrypted. Must be dropped before the
    /// connection, which it keeps open.
    pub(super) fn direct(&mut self) -> Option<(Commands, TcpStream)> {
        Some((self.connection.commands.clone(), self.connection.socket.take()?))
    }

    /// The sender of commands over this connection.
    pub(crate) fn sender(&self) -> Sender {
        Sender {
            host: self.connection.endpoint.host.clone(),
            commands: self.connection.commands.clone(),
            replication_id: self.replication_id.clone(),
            known_scripts: self.known_scripts.clone(),
        }
    }

    /// See [`Sender::send`].
    pub(crate) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        self.connection.send(pipeline).await
    }

    /// Subscribes to patterns.
    pub(crate) async fn subscribe_patterns(&self, patterns: &[String]) -> Result<(), String> {
        let patterns: Vec<&str> = patterns.iter().map(|pattern| &**pattern).collect();
        self.connection.commands.subscribe("PSUBSCRIBE", &patterns).await
    }

    /// Subscribes to channels, or unsubscribes.
    pub(crate) async fn subscribe(&self, channels: &[Arc<str>], is_interested: bool) -> Result<(), String> {
        let channels: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let command = if is_interested { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        self.connection.commands.subscribe(command, &channels).await
    }

    /// Subscribes to sharded channels, or unsubscribes. Returns the replies of the server, of which each subscription has one.
    pub(crate) async fn subscribe_sharded(
        &self,
        channels: &[Arc<str>],
        is_interested: bool,
    ) -> Result<Vec<Value>, String> {
        self.connection.commands.subscribe_sharded(channels, is_interested).await
    }

    /// Waits until the connection is lost.
    pub(crate) async fn closed(&mut self) -> String {
        self.connection.closed().await
    }
}

/// Sends commands over a connection.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(super) host: String,
    commands: Commands,
    pub(super) replication_id: Arc<str>,
    pub(super) known_scripts: Arc<KnownScripts>,
}

impl Sender {
    /// Sends commands at once. An error means that the connection failed, or didn't answer in time.
    pub(crate) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        Ok(self.replies(pipeline).await?.values)
    }

    /// Publishes messages. Returns the servers' replies, or the error of [`Self::send`].
    pub(crate) async fn publish(&self, publications: Publications) -> Result<Vec<Value>, String> {
        Ok(self.commands.send_packed(publications.packed, publications.count).await?.values)
    }

    /// Does the same as [`Self::send`]. The replies are charged until they are dropped.
    pub(super) async fn replies(&self, pipeline: &Pipeline) -> Result<Replies, String> {
        self.commands.send(pipeline).await
    }
}

/// The replication id, if the server is a primary.
fn primary_of(info: &str) -> Result<&str, String> {
    match (field(info, "role"), field(info, "master_replid")) {
        (Some("master"), Some(id)) => Ok(id),
        (Some(role), _) => Err(format!("the server isn't a primary; its role is `{role}`")),
        (None, _) => Err("the server isn't Redis".into()),
    }
}

fn incoming_link(link: Value) -> Option<(String, i64)> {
    let Value::Map(fields) = link else { return None };
    let (mut node, mut since, mut is_incoming) = (None, None, false);
    for (name, value) in fields {
        match (&*text(name)?, value) {
            ("direction", value) => is_incoming = text(value)? == "from",
            ("node", value) => node = text(value),
            ("create-time", Value::Int(time)) => since = Some(time),
            _ => {}
        }
    }
    node.zip(since).filter(|_| is_incoming)
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
