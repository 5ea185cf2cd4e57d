//! One connection to the server.

use super::address::Server;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ErrorKind, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::engine::SILENCE_MAX;

/// The oldest server that will do: it has exclusive ranges of streams, and `GET` within `SET`.
const VERSION_MIN: (u32, u32) = (6, 2);
/// How long a connection may take to be established.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a primary. It ends when it is dropped.
pub(crate) struct Link {
    connection: MultiplexedConnection,
    /// Names the incarnation of the server's data. Drawn anew when a replica becomes the primary, and when the server starts.
    pub(crate) replication_id: Arc<str>,
    driver: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    /// Connects, and checks that the server is a primary that will do.
    ///
    /// # Errors
    /// Why not, for people. No secrets.
    pub(crate) async fn connect(
        server: &Server,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let place = format!("{}:{}", server.host, server.port);
        match timeout(CONNECT_TIMEOUT, Self::open(server, pushes)).await {
            Ok(result) => result.map_err(|reason| format!("{place}: {reason}")),
            Err(_) => Err(format!("{place}: no connection within {} s", CONNECT_TIMEOUT.as_secs())),
        }
    }

    async fn open(server: &Server, pushes: Option<Arc<dyn AsyncPushSender>>) -> Result<Self, String> {
        let stream = TcpStream::connect((&*server.host, server.port)).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        match &server.tls {
            None => Self::log_in(server, stream, pushes).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                Self::log_in(server, stream.map_err(|e| format!("TLS: {e}"))?, pushes).await
            }
        }
    }

    async fn log_in<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        server: &Server,
        stream: S,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let mut config = AsyncConnectionConfig::new().set_response_timeout(Some(SILENCE_MAX));
        if let Some(pushes) = pushes {
            config = config.set_push_sender(Pushes(pushes));
        }
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&server.login, stream, config).await.map_err(explain)?;
        let driver = tokio::spawn(driver);
        let mut link = Self { connection, replication_id: "".into(), driver };
        let info = link.info().await?;
        let version = field(&info, "redis_version").unwrap_or_default();
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if (major, minor) < VERSION_MIN {
            return Err(format!("Redis {version} is too old; Stentor needs 6.2 or newer"));
        }
        link.replication_id = primary_of(&info)?.into();
        Ok(link)
    }

    /// Checks that the server is still the same primary. It answers, so the connection works.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let info = self.info().await?;
        if primary_of(&info)? != &*self.replication_id {
            return Err("the server's data has changed".into());
        }
        Ok(())
    }

    async fn info(&self) -> Result<String, String> {
        let mut pipeline = Pipeline::new();
        // Several sections in one command need Redis 7.
        pipeline.cmd("INFO").arg("server").cmd("INFO").arg("replication");
        let replies = self.send(&pipeline).await?;
        Ok(replies.into_iter().filter_map(text).collect())
    }

    /// What sends commands over this connection.
    pub(crate) fn sender(&self) -> Sender {
        Sender { connection: self.connection.clone(), replication_id: self.replication_id.clone() }
    }

    /// See [`Sender::send`].
    pub(crate) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        self.sender().send(pipeline).await
    }

    /// Subscribes to patterns.
    pub(crate) async fn subscribe_patterns(&self, patterns: &[String]) -> Result<(), String> {
        self.connection.clone().psubscribe(patterns).await.map_err(explain)
    }

    /// Subscribes to channels, or unsubscribes.
    pub(crate) async fn subscribe(&self, channels: &[Arc<str>], is_interested: bool) -> Result<(), String> {
        let channels: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let mut connection = self.connection.clone();
        let result = if is_interested {
            connection.subscribe(&channels).await
        } else {
            connection.unsubscribe(&channels).await
        };
        result.map_err(explain)
    }

    /// Waits until the connection is lost.
    pub(crate) async fn closed(&mut self) -> String {
        let _ = (&mut self.driver).await;
        "the connection was closed".into()
    }
}

/// Sends commands over a connection.
#[derive(Clone)]
pub(crate) struct Sender {
    connection: MultiplexedConnection,
    pub(crate) replication_id: Arc<str>,
}

impl Sender {
    /// Sends commands at once. An error means that the connection failed, or didn't answer within [`SILENCE_MAX`].
    pub(crate) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        let mut connection = self.connection.clone();
        connection.send_packed_commands(pipeline, 0, pipeline.len()).await.map_err(explain)
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

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// A reply that is a text.
fn text(value: Value) -> Option<String> {
    match value {
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Why a connection failed, for people.
fn explain(error: RedisError) -> String {
    let refused = error.code().is_some_and(|code| matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM"));
    match error.kind() {
        _ if refused => format!("the server refused the credentials: {error}"),
        ErrorKind::AuthenticationFailed => format!("the server refused the credentials: {error}"),
        ErrorKind::RESP3NotSupported => "the server is too old; Stentor needs Redis 6.2 or newer".into(),
        ErrorKind::Parse => "the server doesn't speak Redis's protocol".into(),
        _ if error.is_timeout() => "the server doesn't answer".into(),
        _ if error.is_connection_dropped() => "the connection was closed".into(),
        _ => error.to_string(),
    }
}

struct Pushes(Arc<dyn AsyncPushSender>);

impl AsyncPushSender for Pushes {
    fn send(&self, push: redis::PushInfo) -> Result<(), redis::aio::SendError> {
        self.0.send(push)
    }
}

/// Waits longer after each failure, up to five seconds, at random, so that not all nodes come back at once.
#[derive(Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) async fn wait(&mut self) {
        let longest = 100 << self.0.min(6);
        self.0 = (self.0 + 1).min(6);
        tokio::time::sleep(Duration::from_millis(fastrand::u64(longest / 2..=longest.min(5_000)))).await;
    }
}
