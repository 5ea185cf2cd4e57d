//! The id of a session before the session opens, so that an answer about its client can already name it.

use crate::PublicId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stentor_hub::{CoreId, SessionId};

/// Ids of a core that were reserved for sessions that didn't open.
#[derive(Debug, Default)]
pub struct UnusedSessions(Mutex<Vec<SessionId>>);

impl UnusedSessions {
    /// Takes the ids.
    pub fn take(&self) -> Vec<SessionId> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// An id that is reserved for the session of a client that asks to connect. If no session opens, the core gets the id back when
/// this value is dropped, and no other session ever has it.
#[derive(Debug)]
pub struct ReservedSession {
    /// The public id.
    pub id: PublicId,
    core: CoreId,
    session: SessionId,
    /// `true` while the id is reserved. `false` if the session has opened, or the core has the id back.
    is_reserved: AtomicBool,
    unused: Arc<UnusedSessions>,
}

impl ReservedSession {
    /// Reserves the id of `session` on `core`, whose public id is `id`. `unused` receives the id if the session doesn't open.
    pub fn new(id: PublicId, core: CoreId, session: SessionId, unused: Arc<UnusedSessions>) -> Self {
        Self { id, core, session, is_reserved: AtomicBool::new(true), unused }
    }

    /// Takes the id for a session that opens on `core`. `None` if another core reserved it, or it was taken or returned before.
    pub fn take(&self, core: CoreId) -> Option<SessionId> {
        (core == self.core && self.is_reserved.swap(false, Ordering::Relaxed)).then_some(self.session)
    }

    /// `true` if a session of `core` has this id. Another one opened because the id wasn't reserved any more.
    pub fn is_of(&self, core: CoreId, session: SessionId) -> bool {
        (core, session) == (self.core, self.session)
    }

    /// Reserves the id again, because its session has closed and opens again later.
    pub fn restore(&self) {
        self.is_reserved.store(true, Ordering::Relaxed);
    }

    /// Returns the id to its core, because another session continues instead.
    pub fn give_back(&self) {
        if self.is_reserved.swap(false, Ordering::Relaxed) {
            self.unused.0.lock().push(self.session);
        }
    }
}

impl Drop for ReservedSession {
    fn drop(&mut self) {
        self.give_back();
    }
}
