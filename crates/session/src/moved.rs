//! Sockets that have moved here from other nodes, shared by all cores.

use crate::identity::Sid;
use crate::ports::{Broker, PublicId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a socket with this id, unless another client already waits for it.
    pub fn expect(&self, id: PublicId, core: CoreId, session: SessionId) {
        let sockets = &mut *self.sockets();
        sockets.by_id.entry(id).or_insert((core, session));
        self.count.store(sockets.by_id.len(), Ordering::SeqCst);
    }

    /// Adds a socket that has arrived.
    pub fn insert(&self, pid: Sid, id: PublicId, core: CoreId, session: SessionId) {
        let sockets = &mut *self.sockets();
        sockets.by_id.insert(id, (core, session));
        sockets.by_pid.insert(pid, core);
        self.count.store(sockets.by_id.len(), Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, pid: Sid, id: PublicId, core: CoreId, session: SessionId) {
        let sockets = &mut *self.sockets();
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
        if self.is_empty() { None } else { self.sockets().by_id.get(&id).copied() }
    }

    pub(crate) fn core_of(&self, pid: Sid) -> Option<CoreId> {
        if self.is_empty() { None } else { self.sockets().by_pid.get(&pid).copied() }
    }
}

/// Recognizes the public ids of sessions.
#[derive(Clone)]
pub(crate) struct SessionIds {
    /// The seed of the ids of this node's sessions.
    pub(crate) seed: [u64; 2],
    pub(crate) moved: Arc<MovedSockets>,
    broker: Option<Arc<dyn Broker>>,
}

impl SessionIds {
    /// Makes a value that recognizes the ids of this node's sessions and of other nodes' sessions. This node's ids are made
    /// with `seed`, unless the other nodes know another seed of this node.
    pub(crate) fn new(seed: [u64; 2], broker: Option<Arc<dyn Broker>>) -> Self {
        let seed = broker.as_ref().and_then(|broker| broker.id_seed()).unwrap_or(seed);
        Self { seed, moved: Arc::default(), broker }
    }

    /// The session of this node that an id names, and its core. The session may have ended.
    pub(crate) fn find(&self, id: PublicId) -> Option<(CoreId, SessionId)> {
        self.moved.find(id).or_else(|| id.decode(self.seed))
    }

    /// Returns `true` if a session of this node or of another one has this id. The session may have ended.
    pub(crate) fn is_issued(&self, id: PublicId) -> bool {
        self.find(id).is_some() || self.broker.as_ref().is_some_and(|broker| broker.has_issued(id))
    }

    /// Returns `true` if a text is the id of a session, which backends address like a room. No client may.
    #[inline]
    pub(crate) fn names_session(&self, text: &str) -> bool {
        PublicId::parse(text).is_some_and(|id| self.is_issued(id))
    }
}
