//! One connection to a server, of whatever role.

use super::address::{Address, Endpoint};
use super::receiver::{self, Replies};
use redis::aio::AsyncPushSender;
use redis::{ErrorKind, Pipeline, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use stentor_edge::Ledger;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const TOO_OLD: &str = "the server is too old; Stentor needs Redis 6.2 or newer";

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
    /// Connects to one of the servers of an address and logs in. The ledger has what it replies.
    ///
    /// # Errors
    /// Why not, for people. No secrets.
    pub(super) async fn open(
        (address, ledger): (&Address, &Arc<Ledger>),
        endpoint: Endpoint,
        login: &RedisConnectionInfo,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let Some(connector) = &address.tls else {
            return Self::log_in(ledger, endpoint, login, stream, pushes).await;
        };
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|_| format!("TLS: `{}` can't be the name in a certificate", endpoint.host))?;
        let stream = connector.connect(name, stream).await.map_err(|error| explain_tls(&error))?;
        Self::log_in(ledger, endpoint, login, stream, pushes).await
    }

    async fn log_in<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        ledger: &Arc<Ledger>,
        endpoint: Endpoint,
        login: &RedisConnectionInfo,
        stream: S,
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let (commands, driver) = receiver::start(stream, pushes, ledger);
        let connection = Self { endpoint, commands: Commands(commands), driver };
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
        Ok(self.commands.send(pipeline).await?.values)
    }

    /// Subscribes or unsubscribes; `command` says which.
    pub(super) async fn subscribe(&self, command: &str, names: &[&str]) -> Result<(), String> {
        match self.commands.0.subscribe(command, names).await? {
            Some(Value::ServerError(error)) => Err(explain(error.into())),
            _ => Ok(()),
        }
    }

    /// See [`super::link::Link::subscribe_sharded`].
    pub(super) async fn subscribe_sharded(
        &self,
        channels: &[Arc<str>],
        is_interested: bool,
    ) -> Result<Vec<Value>, String> {
        self.commands.0.subscribe_sharded(channels, is_interested).await
    }

    /// Waits until the connection is lost.
    pub(super) async fn closed(&mut self) -> String {
        let _ = (&mut self.driver).await;
        self.commands.0.reason()
    }
}

/// Sends commands over a connection.
#[derive(Clone)]
pub(super) struct Commands(receiver::Commands);

impl Commands {
    /// Sends commands at once. An error means that the connection failed, or didn't answer within
    /// [`SILENCE_MAX`](crate::engine::SILENCE_MAX).
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Replies, String> {
        self.0.send(pipeline).await.map_err(explain_alert)
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
