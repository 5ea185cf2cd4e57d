//! A connection to a server, from its first byte until the server has accepted the node.

use super::address::Servers;
use super::protocol::{self, Op};
use crate::engine::common::{
    Endpoint, Stream, check_version, connect, encrypt, explain_alert, within_connect_timeout,
};
use bytes::BytesMut;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The oldest supported version of the server.
const VERSION_MIN: &[u32] = &[2, 9, 0];
/// The oldest supported version of the servers of a cluster. Earlier ones may store two messages that expect the same predecessor
/// (<https://github.com/nats-io/nats-server/issues/4320>).
const CLUSTER_VERSION_MIN: &[u32] = &[2, 9, 21];
/// A server's description of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    /// The server's id, drawn anew at each start.
    pub(super) server_id: String,
    version: String,
    pub(super) max_payload: usize,
    /// The name of the cluster, if the server is in one.
    #[serde(default)]
    pub(super) cluster: String,
    #[serde(default)]
    tls_required: bool,
    #[serde(default)]
    nonce: String,
}

/// A connection that the server has accepted.
pub(super) struct Link {
    pub(super) info: Info,
    pub(super) stream: Box<dyn Stream>,
    /// Received bytes that aren't parsed.
    pub(super) received: BytesMut,
}

impl Link {
    /// Connects to one of the servers, in turn by `attempt`.
    ///
    /// # Errors
    /// The reason, for people. No secrets.
    pub(super) async fn connect(servers: &Servers, attempt: usize) -> Result<Self, String> {
        let endpoint = &servers.endpoints[attempt % servers.endpoints.len()];
        within_connect_timeout(endpoint, Self::open(servers, endpoint)).await
    }

    async fn open(servers: &Servers, endpoint: &Endpoint) -> Result<Self, String> {
        let mut stream = connect(endpoint, None).await?;
        let mut received = BytesMut::new();
        let info: Info = match next(&mut stream, &mut received).await? {
            Op::Info(info) => serde_json::from_str(&info).map_err(|_| "the server isn't NATS".to_string())?,
            Op::Error(error) => return Err(error),
            _ => return Err("the server doesn't speak NATS's protocol".into()),
        };
        let (oldest, place) = match info.cluster.is_empty() {
            true => (VERSION_MIN, ""),
            false => (CLUSTER_VERSION_MIN, " in a cluster of servers"),
        };
        check_version("nats-server", &info.version, oldest, place)?;
        if info.tls_required || servers.requires_tls {
            if !received.is_empty() {
                return Err("the server sent more than it may before TLS".into());
            }
            stream = encrypt(servers.tls.as_ref().map_err(String::clone)?, &endpoint.host, stream).await?;
        }
        let mut connect = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true, "protocol": 1,
            "lang": "rust", "name": "stentor", "version": env!("CARGO_PKG_VERSION"),
            "tls_required": servers.requires_tls,
        });
        if let Some(fields) = connect.as_object_mut() {
            fields.extend(servers.log_in(&info.nonce));
        }
        let connect = format!("CONNECT {connect}\r\nPING\r\n");
        stream.write_all(connect.as_bytes()).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        loop {
            match next(&mut stream, &mut received).await? {
                Op::Pong => return Ok(Self { info, stream, received }),
                Op::Error(error) => return Err(explain(&error)),
                Op::Info(_) | Op::Ping | Op::Message(_) => {}
            }
        }
    }
}

/// Reads until an operation is complete.
async fn next(stream: &mut Box<dyn Stream>, received: &mut BytesMut) -> Result<Op, String> {
    loop {
        if let Some(op) = protocol::parse(received)? {
            return Ok(op);
        }
        if stream.read_buf(received).await.map_err(|error| explain_alert(error.to_string()))? == 0 {
            return Err("the connection was closed".into());
        }
    }
}

/// The server's reason for ending a connection, for people.
pub(super) fn explain(error: &str) -> String {
    let lower = error.to_ascii_lowercase();
    match lower.contains("authorization") || lower.contains("authentication") {
        true => format!("the server refused the credentials: {error}"),
        false => format!("the server reports: {error}"),
    }
}
