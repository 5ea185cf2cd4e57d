//! The additional state of suspended sessions.

use crate::join_positions::LogIndex;
use crate::notice::Notice;
use crate::session_id::SessionId;
use crate::topics::Seeded;
use std::collections::HashMap;

/// The suspended sessions of a shard.
pub(crate) struct Suspensions {
    sessions: HashMap<SessionId, Suspended, Seeded>,
    /// Number of notices of all suspended sessions.
    notices: usize,
}

impl Suspensions {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self { sessions: HashMap::with_hasher(Seeded(seed)), notices: 0 }
    }

    /// Returns the number of suspended sessions.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the state of a suspended session.
    pub(crate) fn of(&self, session: SessionId) -> Option<&Suspended> {
        self.sessions.get(&session)
    }

    /// Adds a session that is suspended at this log index.
    pub(crate) fn begin(&mut self, session: SessionId, at: LogIndex) {
        self.sessions.insert(session, Suspended { at, has_gap: false, notices: Vec::new() });
    }

    /// Removes a session that is resumed or has ended. Returns its notices.
    pub(crate) fn end(&mut self, session: SessionId) -> Vec<Notice> {
        // Usually no session is suspended, and a lookup costs a hash.
        if self.sessions.is_empty() {
            return Vec::new();
        }
        let notices = self.sessions.remove(&session).map(|suspended| suspended.notices).unwrap_or_default();
        self.notices -= notices.len();
        notices
    }

    /// Records that a room of a session has skipped messages. No effect if the session isn't suspended.
    pub(crate) fn note_gap(&mut self, session: SessionId) {
        if !self.sessions.is_empty()
            && let Some(suspended) = self.sessions.get_mut(&session)
        {
            suspended.has_gap = true;
        }
    }

    /// Keeps a notice for a suspended session.
    pub(crate) fn defer(&mut self, notice: Notice) {
        if let Some(suspended) = self.sessions.get_mut(&notice.session())
            && !suspended.notices.contains(&notice)
        {
            suspended.notices.push(notice);
            self.notices += 1;
        }
    }

    /// Returns the approximate size of suspensions without the sessions, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // The capacity of a growing vector is up to twice its length.
        self.sessions.capacity() * size_of::<(SessionId, Suspended)>()
            + 2 * self.notices * size_of::<Notice>()
    }
}

/// A suspended session.
pub(crate) struct Suspended {
    /// Log index at which the session was suspended.
    pub(crate) at: LogIndex,
    /// `true` if one of the session's rooms has skipped messages since, which the log therefore lacks.
    pub(crate) has_gap: bool,
    /// Distinct notices for the time of its resumption.
    notices: Vec<Notice>,
}
