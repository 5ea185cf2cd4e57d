//! Sessions that receive no deliveries until their clients have been notified of a gap: what follows a gap in a room must not
//! overtake the notice, whatever else is sent to the client meanwhile. While nothing of these rooms waits, nothing is held: a client
//! may leave another room in between, and receives what was published there before.

use crate::session_id::SessionId;
use smallvec::SmallVec;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Held(HashMap<SessionId, Hold>);

#[derive(Default)]
struct Hold {
    /// Notices that are still to be sent.
    notices: u32,
    /// The indices of their rooms.
    topics: SmallVec<[u32; 2]>,
    /// Deliveries would have been taken otherwise.
    is_missed: bool,
}

impl Held {
    /// A notice about a room is queued for a session.
    pub(crate) fn add(&mut self, session: SessionId, topic: Option<u32>) {
        let hold = self.0.entry(session).or_default();
        hold.notices += 1;
        hold.topics.extend(topic);
    }

    /// A notice was sent, or is dropped. Returns whether deliveries were held that may leave now.
    pub(crate) fn remove(&mut self, session: SessionId) -> bool {
        let Some(hold) = self.0.get_mut(&session) else { return false };
        hold.notices -= 1;
        if hold.notices > 0 {
            return false;
        }
        let is_missed = hold.is_missed;
        self.0.remove(&session);
        if self.0.is_empty() {
            // A gap of a large room concerns many sessions at a time.
            self.0 = HashMap::new();
        }
        is_missed
    }

    /// Whether notices are still to be sent to a session.
    pub(crate) fn awaits_notice(&self, session: SessionId) -> bool {
        self.0.contains_key(&session)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether deliveries are held that would be taken now. `waits`: whether some of one of these rooms wait.
    pub(crate) fn holds(&mut self, session: SessionId, waits: impl FnOnce(&[u32]) -> bool) -> bool {
        let Some(hold) = self.0.get_mut(&session) else { return false };
        hold.is_missed = hold.is_missed || waits(&hold.topics);
        hold.is_missed
    }
}
