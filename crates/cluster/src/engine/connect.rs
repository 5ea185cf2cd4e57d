//! Connects to the engine at an address.

use super::nats::Nats;
use super::redis::Redis;
use super::{Address, Engine, EventReceiver, Identity, Kind, Limits};
use crate::NodeId;
use std::path::PathBuf;
use std::sync::Arc;
use stentor_ports::Ledger;

/// Options of a connection to an engine.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Prefix of the names of channels and keys. Without braces.
    pub prefix: String,
    /// `true` to wait until the engine can be reached, instead of failing.
    pub wait: bool,
    /// Certificates to trust, in PEM, if the engine speaks TLS. `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The node's certificate for TLS, if the engine asks for one.
    pub identity: Option<Identity>,
    /// A file with a user's credentials, for NATS.
    pub credentials_file: Option<PathBuf>,
    /// Bounds of the queues.
    pub limits: Limits,
    /// The ledger that accounts for the memory of the queues.
    pub ledger: Arc<Ledger>,
}

/// The reason why an engine can't be used, as a text for people. It has no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// A node's engine, connected, and its events.
pub type Connected = (Arc<dyn Engine>, EventReceiver);

/// Connects a node to its engine. Called within a tokio runtime.
///
/// # Errors
/// The engine can't be reached, refuses the credentials, is too old, or is another program.
pub async fn connect(
    node: NodeId,
    address: &Address,
    options: ConnectOptions,
) -> Result<Connected, ConnectError> {
    match address.kind() {
        Kind::Redis => {
            let (engine, events) = Redis::connect(node, address.reveal(), &options).await?;
            Ok((Arc::new(engine), events))
        }
        Kind::Nats => {
            let (engine, events) = Nats::connect(node, address.reveal(), &options).await?;
            Ok((Arc::new(engine), events))
        }
    }
}
