//! The internal listener: takes connections that other nodes pass through.

use super::handshake::HandshakeError;
use super::metrics::{Refusal, count};
use super::{HANDSHAKE_TIMEOUT, Relays};
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{ClientConnection, DataPlane, Handover};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections that haven't proved themselves yet. Further ones are closed.
pub(super) const STRANGERS_MAX: usize = 256;
/// A pause after an error such as too few file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Takes connections, for ever.
pub(super) async fn run(relays: &Arc<Relays>, listener: TcpListener, plane: &Arc<dyn DataPlane>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY).await;
            continue;
        };
        let Ok(permit) = strangers.clone().try_acquire_owned() else {
            relays.counters.count_refusal(Refusal::TooMany);
            continue;
        };
        let (relays, plane) = (relays.clone(), plane.clone());
        tokio::spawn(async move {
            match timeout(HANDSHAKE_TIMEOUT, take(&relays, socket)).await.unwrap_or(Err(Refusal::TimedOut)) {
                Ok(connection) => {
                    count(&relays.counters.received);
                    plane.adopt(connection, Handover::Relayed);
                }
                Err(refusal) => relays.counters.count_refusal(refusal),
            }
            drop(permit);
        });
    }
}

/// Has a connection prove itself.
async fn take(relays: &Relays, mut socket: TcpStream) -> Result<ClientConnection, Refusal> {
    let _ = socket.set_nodelay(true);
    let (_, client) = relays.handshake.accept(&mut socket).await.map_err(|error| match error {
        HandshakeError::NotAuthentic => Refusal::NotAuthentic,
        HandshakeError::Malformed | HandshakeError::Io(_) => Refusal::Incomplete,
    })?;
    let socket = socket.into_std().map_err(|_| Refusal::Incomplete)?;
    Ok(ClientConnection { socket, peer: client.address, input: Vec::new(), is_tls: client.is_tls })
}
