//! The notices of a shard's sessions, oldest first.
//!
//! **Invariant.** A session's deliveries are held while a gap notice for it waits or is `last`.

use crate::held::Held;
use crate::notice::Notice;
use crate::session_id::SessionId;
use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Notices {
    pub(crate) waiting: VecDeque<Notice>,
    /// The last notice that `poll_notice` returned, until its next call.
    pub(crate) last: Option<Notice>,
    /// Sessions whose clients must be notified before further deliveries.
    pub(crate) held: Held,
}

impl Notices {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.last.is_none()
    }

    /// Queues a notice. If it is a gap, the deliveries of its session are held while publications of `room` wait.
    pub(crate) fn push(&mut self, notice: Notice, room: Option<u32>) {
        if let Notice::Gap { session, .. } = notice {
            self.held.add(session, room);
        }
        self.waiting.push_back(notice);
    }

    /// Takes the next gap notice for a session.
    pub(crate) fn take_gap(&mut self, session: SessionId) -> Option<Notice> {
        let is_gap = |notice: &Notice| matches!(notice, Notice::Gap { session: of, .. } if *of == session);
        let at = if self.held.awaits_notice(session) { self.waiting.iter().position(is_gap) } else { None };
        self.waiting.remove(at?)
    }
}
