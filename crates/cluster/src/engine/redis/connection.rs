//! One connection to a server, of whatever role.

use super::address::{Address, Endpoint};
use super::receiver;
use crate::engine::SILENCE_MAX;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const TOO_OLD: &str = "the server is too old; Stentor needs Redis 6.2 or newer";

/// How many requests may wait to be written. Further ones would lose their order; [`crate::engine::Limits`] allows fewer.
const REQUESTS_MAX: usize = 8_192;

/// A connection. It ends when it is dropped.
pub(super) struct Connection {
    pub(super) endpoint: Endpoint,
    commands: Commands,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects to a server of `address` and logs in.
    ///
    /// # Errors
    /// Why not, for people. No secrets.
    pub(super) async fn open(
        address: &Address,
        endpoint: Endpoint,
        login: &RedisConnectionInfo,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let Some(connector) = &address.tls else {
            return Self::log_in(endpoint, login, stream, pushes).await;
        };
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|_| format!("TLS: `{}` can't be the name in a certificate", endpoint.host))?;
        let stream = connector.connect(name, stream).await.map_err(|error| explain_tls(&error))?;
        Self::log_in(endpoint, login, stream, pushes).await
    }

    async fn log_in<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        endpoint: Endpoint,
        login: &RedisConnectionInfo,
        stream: S,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let Some(pushes) = pushes else {
            let config = AsyncConnectionConfig::new()
                .set_response_timeout(Some(SILENCE_MAX))
                .set_pipeline_buffer_size(REQUESTS_MAX);
            let (commands, driver) =
                MultiplexedConnection::new_with_config(login, stream, config).await.map_err(explain)?;
            return Ok(Self {
                endpoint,
                commands: Commands::Library(commands),
                driver: tokio::spawn(driver),
            });
        };
        let (commands, driver) = receiver::start(stream, pushes);
        let connection = Self { endpoint, commands: Commands::Receiver(commands), driver };
        let mut pipeline = Pipeline::new();
        let hello = pipeline.cmd("HELLO").arg(3);
        if let Some(password) = login.password() {
            hello.arg("AUTH").arg(login.username().unwrap_or("default")).arg(password);
        }
        if login.db() != 0 {
            pipeline.cmd("SELECT").arg(login.db());
        }
        for reply in connection.send(&pipeline).await? {
            if let Value::ServerError(error) = reply {
                let is_old =
                    error.code() == "NOPROTO" || error.details().is_some_and(|it| it.contains("HELLO'"));
                return Err(if is_old { TOO_OLD.into() } else { explain(error.into()) });
            }
        }
        Ok(connection)
    }

    /// What sends commands over this connection.
    pub(super) fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// See [`Commands::send`].
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        self.commands().send(pipeline).await
    }

    /// Subscribes or unsubscribes; `command` says which.
    pub(super) async fn subscribe(&self, command: &str, names: &[&str]) -> Result<(), String> {
        match &self.commands {
            Commands::Receiver(commands) => match commands.subscribe(command, names).await? {
                Some(Value::ServerError(error)) => Err(explain(error.into())),
                _ => Ok(()),
            },
            Commands::Library(_) => Err("this connection receives no messages".into()),
        }
    }

    /// See [`super::link::Link::subscribe_sharded`].
    pub(super) async fn subscribe_sharded(
        &self,
        channels: &[Arc<str>],
        is_interested: bool,
    ) -> Result<Vec<Value>, String> {
        match &self.commands {
            Commands::Receiver(commands) => commands.subscribe_sharded(channels, is_interested).await,
            Commands::Library(_) => Err("this connection receives no messages".into()),
        }
    }

    /// Waits until the connection is lost.
    pub(super) async fn closed(&mut self) -> String {
        let _ = (&mut self.driver).await;
        "the connection was closed".into()
    }
}

/// Sends commands over a connection.
#[derive(Clone)]
pub(super) enum Commands {
    Library(MultiplexedConnection),
    /// One that receives messages.
    Receiver(receiver::Commands),
}

impl Commands {
    /// Sends commands at once. An error means that the connection failed, or didn't answer within [`SILENCE_MAX`].
    pub(super) async fn send(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        match self {
            Self::Library(connection) => {
                connection.send_packed_commands(pipeline, 0, pipeline.len()).await.map_err(explain)
            }
            Self::Receiver(commands) => commands.send(pipeline).await.map_err(explain_alert),
        }
    }
}

/// A reply that is a text.
pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Why a connection failed, for people.
pub(super) fn explain(error: RedisError) -> String {
    let refused = error.code().is_some_and(|code| matches!(code, "NOAUTH" | "WRONGPASS"));
    match error.kind() {
        _ if error.code() == Some("NOPERM") => {
            format!("the user lacks a permission (see \"Permissions\" in docs/cluster.md): {error}")
        }
        _ if refused => format!("the server refused the credentials: {error}"),
        ErrorKind::AuthenticationFailed => format!("the server refused the credentials: {error}"),
        ErrorKind::RESP3NotSupported => TOO_OLD.into(),
        ErrorKind::Parse => "the server doesn't speak Redis's protocol".into(),
        _ if error.is_timeout() => "the server doesn't answer".into(),
        _ if error.is_connection_dropped() => "the connection was closed".into(),
        _ => explain_alert(error.to_string()),
    }
}

/// What to change if this is about the node's certificate: in TLS 1.3, the server looks at it when the client is done.
pub(in crate::engine) fn explain_alert(error: String) -> String {
    if !error.contains("received fatal alert") {
        return error;
    }
    format!(
        "TLS: {error}; set certificate_file and key_file in [cluster] to a certificate that the server accepts"
    )
}

/// Why there is no TLS session, and what to change.
pub(in crate::engine) fn explain_tls(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let advice = match cause {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            "; set ca_file in [cluster] to the certificate of its authority"
        }
        Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::NotValidForName
            | rustls::CertificateError::NotValidForNameContext { .. },
        )) => "; use a name in the URL that the certificate has",
        _ => "",
    };
    format!("TLS: {error}{advice}")
}
