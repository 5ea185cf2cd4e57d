//! Opening connections, and the signs that one is lost.

use super::Endpoint;
use super::tls::encrypt;
use crate::engine::{PROBE_INTERVAL, SILENCE_MAX};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum time to establish a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum delay between two attempts to connect (ms).
const BACKOFF_MAX_MS: u64 = 5_000;

/// A TCP connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    /// A second handle to the connection's socket, which never blocks. `None` if the connection is encrypted.
    fn socket(&self) -> Option<std::net::TcpStream>;
}

impl Stream for TcpStream {
    fn socket(&self) -> Option<std::net::TcpStream> {
        self.as_fd().try_clone_to_owned().ok().map(Into::into)
    }
}

impl Stream for TlsStream<Box<dyn Stream>> {
    fn socket(&self) -> Option<std::net::TcpStream> {
        None
    }
}

/// Opens a TCP connection, and encrypts it with `tls`.
///
/// # Errors
/// The reason, for people. No secrets.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    tls: Option<&TlsConnector>,
) -> Result<Box<dyn Stream>, String> {
    let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await.map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    match tls {
        Some(connector) => encrypt(connector, &endpoint.host, Box::new(stream)).await,
        None => Ok(Box::new(stream)),
    }
}

/// Limits the time to establish a connection, and names the endpoint in errors.
pub(crate) async fn within_connect_timeout<T>(
    endpoint: &Endpoint,
    opening: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let opened = timeout(CONNECT_TIMEOUT, opening).await;
    let opened =
        opened.unwrap_or_else(|_| Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())));
    opened.map_err(|reason| format!("{endpoint}: {reason}"))
}

/// Refuses a server whose version is less than `oldest`. `place` is appended to the advice, for example ` in a cluster`.
///
/// # Errors
/// A text that names the oldest version.
pub(crate) fn check_version(server: &str, version: &str, oldest: &[u32], place: &str) -> Result<(), String> {
    let numbers = version.split(['.', '-']).map_while(|number| number.parse().ok()).chain([0; 3]);
    if numbers.take(oldest.len()).collect::<Vec<u32>>().as_slice() >= oldest {
        return Ok(());
    }
    let oldest = oldest.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    Err(format!("{server} {version} is too old; Stentor needs {oldest} or newer{place}"))
}

/// Delays between attempts to connect. They double up to [`BACKOFF_MAX_MS`], and are random, so that nodes don't reconnect all at once.
#[derive(Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) async fn wait(&mut self) {
        let longest = 100 << self.0.min(6);
        self.0 = (self.0 + 1).min(6);
        let delay = fastrand::u64(longest / 2..=longest.min(BACKOFF_MAX_MS));
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }

    /// Waits after the loss of a connection that was open for this time. A connection that worked is replaced at once. A server that ends
    /// each connection as soon as it is used, because it is loading its data or refuses a command, is connected again with growing delays.
    pub(crate) async fn wait_after(&mut self, open: Duration) {
        if open < PROBE_INTERVAL {
            self.wait().await;
        } else {
            *self = Self::default();
        }
    }
}

/// Lost connections. An outage is logged once, however many connections it concerns.
pub(crate) struct Outages<C> {
    server: &'static str,
    lost: Mutex<HashSet<C>>,
}

impl<C: Eq + Hash + Debug> Outages<C> {
    pub(crate) fn new(server: &'static str) -> Self {
        Self { server, lost: Mutex::default() }
    }

    /// A connection is lost, or can't be opened.
    pub(crate) fn begin(&self, connection: C, reason: &str) {
        let (server, mut lost) = (self.server, self.lost.lock());
        if lost.is_empty() {
            tracing::warn!(reason, "the connection to {server} is lost");
        } else {
            tracing::debug!(reason, ?connection, "no connection to {server}");
        }
        lost.insert(connection);
    }

    /// `true` while a connection is lost.
    pub(crate) fn has_any(&self) -> bool {
        !self.lost.lock().is_empty()
    }

    /// A connection is open, or is no longer needed.
    pub(crate) fn end(&self, connection: &C) {
        let (server, mut lost) = (self.server, self.lost.lock());
        if lost.remove(connection) && lost.is_empty() {
            tracing::info!("the connection to {server} is back");
        }
    }
}

/// Messages of a node to itself, which prove that a connection delivers.
pub(crate) struct Probe {
    /// The channel of the messages.
    pub(crate) channel: Arc<str>,
    /// Time at which the first message was sent that hasn't arrived yet. `None` if all messages have arrived.
    unanswered_since: Mutex<Option<Instant>>,
}

impl Probe {
    pub(crate) fn new(channel: Arc<str>) -> Self {
        Self { channel, unanswered_since: Mutex::default() }
    }

    /// Resets the probe for a new connection.
    pub(crate) fn reset(&self) {
        *self.unanswered_since.lock() = None;
    }

    /// Handles the arrival of a message.
    pub(crate) fn handle_arrival(&self) {
        self.reset();
    }

    /// Records that a message is sent now.
    ///
    /// # Errors
    /// A text for people, if no message has arrived for [`SILENCE_MAX`].
    pub(crate) fn begin(&self) -> Result<(), String> {
        let since = *self.unanswered_since.lock().get_or_insert_with(Instant::now);
        // A message is sent every two seconds, and timers may be late.
        match since.elapsed() > SILENCE_MAX - PROBE_INTERVAL / 2 {
            true => Err(format!("nothing arrived for {} s", SILENCE_MAX.as_secs())),
            false => Ok(()),
        }
    }
}
