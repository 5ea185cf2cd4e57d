//! A connection to a server, from its first byte until the server has accepted who connects.

use super::address::Servers;
use super::protocol::{self, Op};
use crate::engine::redis::{explain_alert, explain_tls};
use bytes::BytesMut;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The oldest server that will do.
const VERSION_MIN: [u32; 3] = [2, 9, 0];
/// The oldest one in a cluster. Those before may store two messages that expect the same one before them
/// (<https://github.com/nats-io/nats-server/issues/4320>).
const CLUSTER_VERSION_MIN: [u32; 3] = [2, 9, 21];
/// How long a connection may take to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What a server says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    /// Drawn anew when the server starts.
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
    /// What was received and isn't parsed.
    pub(super) received: BytesMut,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// Why not, for people. No secrets.
    pub(super) async fn connect(servers: &Servers, attempt: usize) -> Result<Self, String> {
        let (host, port) = &servers.hosts[attempt % servers.hosts.len()];
        match timeout(CONNECT_TIMEOUT, Self::open(servers, host, *port)).await {
            Ok(result) => result.map_err(|reason| format!("{host}:{port}: {reason}")),
            Err(_) => Err(format!("{host}:{port}: no connection within {} s", CONNECT_TIMEOUT.as_secs())),
        }
    }

    async fn open(servers: &Servers, host: &str, port: u16) -> Result<Self, String> {
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut stream: Box<dyn Stream> = Box::new(stream);
        let mut received = BytesMut::new();
        let info: Info = match next(&mut stream, &mut received).await? {
            Op::Info(info) => serde_json::from_str(&info).map_err(|_| "the server isn't NATS".to_string())?,
            Op::Error(error) => return Err(error),
            _ => return Err("the server doesn't speak NATS's protocol".into()),
        };
        check_version(&info)?;
        if info.tls_required || servers.requires_tls {
            if !received.is_empty() {
                return Err("the server sent more than it may before TLS".into());
            }
            let (connector, name) = servers.tls(host)?;
            let encrypted = connector.connect(name, stream).await;
            stream = Box::new(encrypted.map_err(|error| explain_tls(&error))?);
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

/// Refuses servers that are too old.
fn check_version(info: &Info) -> Result<(), String> {
    let version = info.version.split(['.', '-']).map_while(|number| number.parse().ok());
    let version: Vec<u32> = version.chain([0; 3]).take(3).collect();
    let (least, place) = match info.cluster.is_empty() {
        true => (VERSION_MIN, ""),
        false => (CLUSTER_VERSION_MIN, " in a cluster of servers"),
    };
    if version < least.to_vec() {
        let least = least.map(|number| number.to_string()).join(".");
        return Err(format!(
            "nats-server {} is too old; Stentor needs {least} or newer{place}",
            info.version
        ));
    }
    Ok(())
}

/// Reads until there is a whole operation.
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

/// Why the server ends a connection, for people.
pub(super) fn explain(error: &str) -> String {
    let lower = error.to_ascii_lowercase();
    match lower.contains("authorization") || lower.contains("authentication") {
        true => format!("the server refused the credentials: {error}"),
        false => format!("the server reports: {error}"),
    }
}
