//! The internal listener: takes connections that other nodes pass through.
//!
//! Whoever reaches it may connect, so connections that haven't proved themselves are bounded. Another one takes the place of the
//! oldest of them: a node proves itself within a round trip, while one that is silent grows old. So nobody can hold all places.

use super::handshake::HandshakeError;
use super::metrics::{Refusal, count};
use super::{HANDSHAKE_TIMEOUT, Relays};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{ClientConnection, DataPlane, Handover, Readiness};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

/// Maximum number of connections that haven't proved themselves yet.
pub(super) const STRANGERS_MAX: usize = 256;
/// A pause after an error such as too few file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Takes connections, for ever.
pub(super) async fn run(relays: &Arc<Relays>, listener: TcpListener, plane: &Arc<dyn DataPlane>) {
    let places = Arc::new(Semaphore::new(STRANGERS_MAX));
    // One per connection, the oldest first. Dropping it ends the handshake; it is closed when the handshake has ended.
    let mut strangers: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY).await;
            continue;
        };
        if strangers.len() == STRANGERS_MAX {
            strangers.retain(|stranger| !stranger.is_closed());
        }
        if strangers.len() == STRANGERS_MAX {
            strangers.pop_front();
        }
        // At once, or as soon as one that has ended is gone.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stranger, evicted) = oneshot::channel();
        strangers.push_back(stranger);
        let (relays, plane) = (relays.clone(), plane.clone());
        tokio::spawn(async move {
            let taken = tokio::select! {
                taken = timeout(HANDSHAKE_TIMEOUT, take(&relays, &*plane, socket)) => taken.unwrap_or(Err(Refusal::TimedOut)),
                _ = evicted => Err(Refusal::TooMany),
            };
            match taken {
                // A node has asked for this one's readiness.
                Ok(None) => {}
                Ok(Some(connection)) => {
                    count(&relays.counters.received);
                    plane.adopt(connection, Handover::Relayed);
                }
                Err(refusal) => relays.counters.count_refusal(refusal),
            }
            drop(place);
        });
    }
}

/// Has a connection prove itself. `None`: it was a question, and is answered.
async fn take(
    relays: &Relays,
    plane: &dyn DataPlane,
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
    Ok(Some(ClientConnection { socket, peer: client.address, input: Vec::new(), is_tls: client.is_tls }))
}
