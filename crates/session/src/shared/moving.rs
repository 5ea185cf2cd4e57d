//! Sockets that move between nodes, for all cores; and the barrier that orders these moves with messages to rooms.

use super::{ControlCommand, Shared, SharedCore, SocketCommand};
use crate::identity::Sid;
use crate::ports::{Busy, PublicId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_hub::{CoreId, SessionId};

/// Calls a function when each core has passed the barrier. A core passes the barrier after it has sent all earlier messages to the other
/// cores, or has received new options.
pub struct Barrier {
    cores: AtomicUsize,
    then: Mutex<Option<Then>>,
}

type Then = Box<dyn FnOnce(&Shared) + Send>;

impl Barrier {
    /// Records that a core has passed the barrier. Calls the function if it is the last core.
    pub fn pass(&self, shared: &Shared) {
        let is_last = self.cores.fetch_sub(1, Ordering::SeqCst) == 1;
        let then = if is_last { self.then.lock().take() } else { None };
        if let Some(then) = then {
            then(shared);
        }
    }
}

impl Shared {
    /// The session that a public id names, and its core.
    pub(crate) fn session_of(&self, id: PublicId) -> Option<(CoreId, SessionId)> {
        self.ids.find(id)
    }

    /// The core that may have the socket with this `pid`. `None` if the socket can't be on this node.
    pub(crate) fn core_of_socket(&self, pid: Sid) -> Option<CoreId> {
        let is_ours = self.initial.node_tag.is_none_or(|tag| tag == pid.node());
        self.ids.moved.core_of(pid).or_else(|| is_ours.then(|| pid.core(self.cores)))
    }

    /// Makes a barrier that calls `then` when all cores have passed.
    pub(super) fn barrier(&self, then: impl FnOnce(&Self) + Send + 'static) -> Arc<Barrier> {
        Arc::new(Barrier { cores: AtomicUsize::new(self.cores), then: Mutex::new(Some(Box::new(then))) })
    }

    /// Calls `then` when all cores have handled the current contents of their inboxes.
    ///
    /// # Errors
    /// An inbox is full. `then` is dropped.
    pub fn after_barrier(&self, then: impl FnOnce(&Self) + Send + 'static) -> Result<(), Busy> {
        let barrier = self.barrier(then);
        let command = |core| (core, ControlCommand::Barrier(barrier.clone()));
        self.put_together((0..self.cores).map(command).collect())
    }

    pub(super) fn put_socket(&self, core: CoreId, command: SocketCommand) -> Result<(), Busy> {
        let Some(SharedCore { inbox, .. }) = self.each.get(core) else { return Ok(()) };
        inbox.put(ControlCommand::Socket(Box::new(command))).map_err(|_| Busy)
    }
}
