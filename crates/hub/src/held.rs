//! Sessions that receive no deliveries until their clients have been notified of a gap. Messages after a gap
//! in a room must not overtake the notice, whatever else is sent to the client meanwhile. Deliveries are held
//! only while messages of these rooms wait. Until then the session receives the messages of its other rooms.

use crate::session_id::SessionId;
use smallvec::SmallVec;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Held(HashMap<SessionId, Hold>);

#[derive(Default)]
struct Hold {
    /// Number of notices that are still to be sent.
    notices: u32,
    /// Indices of the rooms of these notices.
    topics: SmallVec<[u32; 2]>,
    /// `true` if a delivery has been held back.
    is_missed: bool,
}

impl Held {
    /// Adds a queued notice for a session, optionally about a room.
    pub(crate) fn add(&mut self, session: SessionId, topic: Option<u32>) {
        let hold = self.0.entry(session).or_default();
        hold.notices += 1;
        hold.topics.extend(topic);
    }

    /// Removes a notice that was sent or dropped. Returns `true` if held deliveries may leave now.
    pub(crate) fn remove(&mut self, session: SessionId) -> bool {
        let Some(hold) = self.0.get_mut(&session) else { return false };
        hold.notices -= 1;
        if hold.notices > 0 {
            return false;
        }
        let is_missed = hold.is_missed;
        self.0.remove(&session);
        if self.0.is_empty() {
            // A gap of a large room concerns many sessions at a time, so the table's memory is freed.
            self.0 = HashMap::new();
        }
        is_missed
    }

    /// Returns `true` if notices are still to be sent to a session.
    pub(crate) fn awaits_notice(&self, session: SessionId) -> bool {
        self.0.contains_key(&session)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if a session's deliveries must be held now. `waits` returns `true` if messages of one
    /// of these rooms wait.
    pub(crate) fn holds(&mut self, session: SessionId, waits: impl FnOnce(&[u32]) -> bool) -> bool {
        let Some(hold) = self.0.get_mut(&session) else { return false };
        hold.is_missed = hold.is_missed || waits(&hold.topics);
        hold.is_missed
    }
}
