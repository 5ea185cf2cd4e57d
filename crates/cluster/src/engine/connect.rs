//! From an address to a connected engine.

use super::{Address, Engine, EventReceiver, Kind, Limits};
use crate::NodeId;
use std::sync::Arc;

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// How names of channels and keys begin.
    pub prefix: String,
    /// Whether to wait until the engine can be reached, instead of failing.
    pub wait: bool,
    /// Bounds of what is held.
    pub limits: Limits,
}

/// Why an engine can't be used, for people. No secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// A node's engine, connected, and its events.
pub type Connected = (Arc<dyn Engine>, EventReceiver);

/// Connects a node to its engine. Called within a tokio runtime.
///
/// # Errors
/// The engine can't be reached, refuses the credentials, is too old, or is something else.
pub async fn connect(
    node: NodeId,
    address: &Address,
    options: ConnectOptions,
) -> Result<Connected, ConnectError> {
    let _ = (node, options);
    match address.kind() {
        Kind::Redis => Err(ConnectError("Redis isn't there yet".into())),
    }
}
