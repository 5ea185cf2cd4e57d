//! Sessions that the caller must serve: those with new pending deliveries, and those that must end.
//!
//! **Invariants.** A session with `is_listed` is once in `ready`, or waits for an encoding. A session in
//! `terminating` stays in the state `Terminating` until it is closed.

use crate::disconnect::Disconnect;
use crate::encoding_waiters::EncodingWaiters;
use crate::session_id::SessionId;
use std::collections::VecDeque;

pub(crate) struct SessionEvents<F> {
    pub(crate) ready: VecDeque<SessionId>,
    pub(crate) encoding_waiters: EncodingWaiters<F>,
    pub(crate) terminating: VecDeque<(SessionId, Disconnect)>,
    pub(crate) dropped: Drops,
}

/// Maximum number of entries in [`Drops`].
const DROPS_MAX: usize = 1_024;

/// Sessions whose deliveries were dropped since the last call of [`Drops::take`].
#[derive(Default)]
pub(crate) struct Drops {
    /// Each session with the number of its deliveries. A session may have several entries.
    sessions: Vec<(SessionId, u32)>,
    /// Number of deliveries without an entry.
    unlisted: u64,
}

impl Drops {
    /// Records a dropped delivery of a session.
    pub(crate) fn add(&mut self, session: SessionId) {
        if let Some((last, count)) = self.sessions.last_mut()
            && *last == session
        {
            *count = count.saturating_add(1);
        } else if self.sessions.len() < DROPS_MAX {
            self.sessions.push((session, 1));
        } else {
            self.unlisted += 1;
        }
    }

    /// Takes the entries, and the number of deliveries without an entry.
    pub(crate) fn take(&mut self) -> (Vec<(SessionId, u32)>, u64) {
        (std::mem::take(&mut self.sessions), std::mem::take(&mut self.unlisted))
    }
}

impl<F> Default for SessionEvents<F> {
    fn default() -> Self {
        let encoding_waiters = EncodingWaiters::default();
        let (ready, terminating) = (VecDeque::new(), VecDeque::new());
        Self { ready, encoding_waiters, terminating, dropped: Drops::default() }
    }
}

impl<F> SessionEvents<F> {
    /// Returns `true` if no session is ready and none is terminating.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.terminating.is_empty()
    }

    /// Marks a session as ready. `is_listed` is the flag of this session.
    #[inline]
    pub(crate) fn list(&mut self, session: SessionId, is_listed: &mut bool) {
        if !std::mem::replace(is_listed, true) {
            self.ready.push_back(session);
        }
    }

    /// Makes sessions ready whose frames no other core is making any longer.
    pub(crate) fn list_encoded(&mut self) {
        if !self.encoding_waiters.is_empty() {
            self.encoding_waiters.move_encoded_to(&mut self.ready);
        }
    }
}
