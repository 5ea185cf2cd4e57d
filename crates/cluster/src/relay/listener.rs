//! The internal listener: accepts connections that other nodes pass through.
//!
//! Any host that reaches it may connect, so unproven connections are bounded. At the maximum, a further connection
//! evicts the oldest one. A node proves itself within a round trip, while a silent connection grows old, so an attacker
//! can't hold all places.

use super::handshake::{Client, HandshakeError};
use super::metrics::{Refusal, count};
use super::{HANDSHAKE_TIMEOUT, Relays};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{ClientConnection, Handover, LocalNode, Readiness};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

/// Maximum number of connections that haven't proved themselves yet.
pub(super) const STRANGERS_MAX: usize = 256;
/// A pause after an error such as too few file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts connections. Never returns.
pub(super) async fn run(relays: &Arc<Relays>, listener: TcpListener, plane: &Arc<dyn LocalNode>) {
    let mut strangers = Strangers::default();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY).await;
            continue;
        };
        let mut place = strangers.admit().await;
        let (relays, plane) = (relays.clone(), plane.clone());
        tokio::spawn(async move {
            match place.run(take(&relays, &*plane, socket)).await {
                // Another node has asked whether this node is ready.
                Ok(None) => {}
                Ok(Some(connection)) => {
                    count(&relays.counters.received);
                    plane.adopt(connection, Handover::Relayed);
                }
                Err(refusal) => relays.counters.count_refusal(refusal),
            }
        });
    }
}

/// Connections that haven't proved themselves yet.
pub(super) struct Strangers {
    places: Arc<Semaphore>,
    /// One sender per connection, the oldest first. Dropping it ends the handshake. It is closed when the handshake has
    /// ended.
    evictions: VecDeque<oneshot::Sender<()>>,
}

impl Default for Strangers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(STRANGERS_MAX)), evictions: VecDeque::new() }
    }
}

impl Strangers {
    /// Waits for a place for one more connection. At the maximum, the oldest connection is evicted.
    pub(super) async fn admit(&mut self) -> Place {
        if self.evictions.len() == STRANGERS_MAX {
            self.evictions.retain(|eviction| !eviction.is_closed());
        }
        if self.evictions.len() == STRANGERS_MAX {
            self.evictions.pop_front();
        }
        let permit = self.places.clone().acquire_owned().await.ok();
        let (eviction, evicted) = oneshot::channel();
        self.evictions.push_back(eviction);
        Place { evicted, _permit: permit }
    }
}

/// The place of a connection that hasn't proved itself yet.
pub(super) struct Place {
    evicted: oneshot::Receiver<()>,
    /// The permit is always `Some`, because the semaphore is never closed.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Runs the handshake of the connection until it ends, takes too long, or loses the place.
    pub(super) async fn run<T>(
        &mut self,
        handshake: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            ended = timeout(HANDSHAKE_TIMEOUT, handshake) => ended.unwrap_or(Err(Refusal::TimedOut)),
            _ = &mut self.evicted => Err(Refusal::TooMany),
        }
    }
}

/// Performs the handshake of a connection. Returns `None` for a question, which is answered.
async fn take(
    relays: &Relays,
    plane: &dyn LocalNode,
    mut socket: TcpStream,
) -> Result<Option<ClientConnection>, Refusal> {
    let _ = socket.set_nodelay(true);
    let serves = || plane.readiness() == Readiness::default();
    let (_, client) = relays.handshake.accept(&mut socket, serves).await.map_err(|error| match error {
        HandshakeError::NotAuthentic => Refusal::NotAuthentic,
        HandshakeError::Malformed | HandshakeError::Io(_) => Refusal::Incomplete,
    })?;
    let Some(client) = client else { return Ok(None) };
    let socket = socket.into_std().map_err(|_| Refusal::Incomplete)?;
    let Client { address: peer, is_tls, is_gateway } = client;
    Ok(Some(ClientConnection { socket, peer, input: Vec::new(), is_tls, is_gateway }))
}
