//! Several nodes: the port through which a node tells the others what they have to know.
//!
//! What other nodes publish enters as any other command, through the [`CommandInbox`](super::CommandInbox).

use super::Busy;
use std::sync::Arc;
use stentor_hub::{Data, Room, Rooms, Topic};

/// A message to rooms that was published on this node, by a client or by its backend.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// To the members of any of these rooms,
    pub rooms: Rooms,
    /// but not to the members of these. Sessions of this node that are left out exist on no other node.
    pub except_rooms: Arc<[Room]>,
    /// The event's name, if it has one.
    pub event: Option<Arc<str>>,
    /// The content.
    pub data: Data,
    /// Whether sessions that aren't ready to receive it are skipped.
    pub volatile: bool,
}

/// Carries to other nodes what they need of this one. It is called on the threads of the cores, so it must not block.
///
/// Members on this node receive a message whatever the broker does with it.
pub trait Broker: Send + Sync {
    /// A message leaves. Those of one core are in order. By default there are no other nodes.
    ///
    /// # Errors
    /// [`Busy`]: the broker holds as much as it may. The core stops reading from those who publish, and tries again.
    fn publish(&self, _message: &Outbound) -> Result<(), Busy> {
        Ok(())
    }

    /// Whether this node has subscribers of a topic. A level: only the last call per topic counts.
    fn set_interest(&self, _topic: &Topic, _has_subscribers: bool) {}
}
