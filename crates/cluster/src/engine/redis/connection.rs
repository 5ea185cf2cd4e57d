//! One connection to a server, of whatever role.

use super::address::{Address, Endpoint};
use crate::engine::SILENCE_MAX;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A connection. It ends when it is dropped.
pub(super) struct Connection {
    pub(super) endpoint: Endpoint,
    sender: MultiplexedConnection,
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
        let mut config = AsyncConnectionConfig::new().set_response_timeout(Some(SILENCE_MAX));
        if let Some(pushes) = pushes {
            config = config.set_push_sender(Pushes(pushes));
        }
        let (sender, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await.map_err(explain)?;
        Ok(Self { endpoint, sender, driver: tokio::spawn(driver) })
    }

    /// What sends commands over this connection.
    pub(super) fn sender(&self) -> MultiplexedConnection {
        self.sender.clone()
    }

    /// See [`send`].
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        send(&mut self.sender(), pipeline).await
    }

    /// Waits until the connection is lost.
    pub(super) async fn closed(&mut self) -> String {
        let _ = (&mut self.driver).await;
        "the connection was closed".into()
    }
}

/// Sends commands at once. An error means that the connection failed, or didn't answer within [`SILENCE_MAX`].
pub(super) async fn send(
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
) -> Result<Vec<Value>, String> {
    connection.send_packed_commands(pipeline, 0, pipeline.len()).await.map_err(explain)
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
        ErrorKind::RESP3NotSupported => "the server is too old; Stentor needs Redis 6.2 or newer".into(),
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

struct Pushes(Arc<dyn AsyncPushSender>);

impl AsyncPushSender for Pushes {
    fn send(&self, push: redis::PushInfo) -> Result<(), redis::aio::SendError> {
        self.0.send(push)
    }
}
