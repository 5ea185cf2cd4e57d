//! Sockets that have moved here from other nodes, shared by all cores.

use crate::identity::Sid;
use crate::ports::{Broker, IdKey, PublicId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_hub::{CoreId, SessionId};

/// The cores of sockets that have moved here from other nodes. Their `pid`s and ids don't name the core.
#[derive(Default)]
pub struct MovedSockets {
    count: AtomicUsize,
    sockets: Mutex<Sockets>,
}

#[derive(Default)]
struct Sockets {
    by_id: BTreeMap<PublicId, (CoreId, SessionId)>,
    by_pid: BTreeMap<Sid, CoreId>,
}

impl MovedSockets {
    /// Announces a socket with this id, unless another client already waits for it.
    pub fn expect(&self, id: PublicId, core: CoreId, session: SessionId) {
        let sockets = &mut *self.sockets.lock();
        sockets.by_id.entry(id).or_insert((core, session));
        self.count.store(sockets.by_id.len(), Ordering::SeqCst);
    }

    /// Adds a socket that has arrived.
    pub fn insert(&self, pid: Sid, id: PublicId, core: CoreId, session: SessionId) {
        let sockets = &mut *self.sockets.lock();
        sockets.by_id.insert(id, (core, session));
        sockets.by_pid.insert(pid, core);
        self.count.store(sockets.by_id.len(), Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, pid: Sid, id: PublicId, core: CoreId, session: SessionId) {
        let sockets = &mut *self.sockets.lock();
        // If the socket has arrived a second time, the entry belongs to the second arrival and stays.
        if sockets.by_id.get(&id) == Some(&(core, session)) {
            sockets.by_id.remove(&id);
            sockets.by_pid.remove(&pid);
        }
        self.count.store(sockets.by_id.len(), Ordering::SeqCst);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn find(&self, id: PublicId) -> Option<(CoreId, SessionId)> {
        if self.is_empty() { None } else { self.sockets.lock().by_id.get(&id).copied() }
    }

    pub(crate) fn core_of(&self, pid: Sid) -> Option<CoreId> {
        if self.is_empty() { None } else { self.sockets.lock().by_pid.get(&pid).copied() }
    }
}

/// Finds the sessions of this node by their public ids.
pub(crate) struct SessionIds {
    /// The key of the ids of this node's sessions.
    pub(crate) key: IdKey,
    pub(crate) moved: Arc<MovedSockets>,
}

impl SessionIds {
    /// Finds sessions of this node, which has as many `cores`. Their ids are made with `seed`, unless the other nodes know another
    /// seed of this node.
    pub(crate) fn new(seed: [u64; 2], cores: usize, broker: Option<&dyn Broker>) -> Self {
        let seed = broker.and_then(Broker::id_seed).unwrap_or(seed);
        Self { key: IdKey { seed, cores }, moved: Arc::default() }
    }

    /// The session of this node that an id names, and its core. The session may have ended.
    pub(crate) fn find(&self, id: PublicId) -> Option<(CoreId, SessionId)> {
        self.moved.find(id).or_else(|| id.decode(self.key))
    }
}
