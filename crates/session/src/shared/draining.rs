//! The state of a drain on all cores.

use super::command::ControlCommand;
use super::{Inbox, Shared, locked};
use crate::ports::Drain;
use crate::ports::{Done, Readiness};
use std::sync::atomic::Ordering;

impl Shared {
    /// The number of drains that have been requested. A core compares it to notice a new drain.
    #[inline]
    pub fn drains(&self) -> usize {
        self.drains.load(Ordering::Acquire)
    }

    /// The readiness of the node for new clients.
    pub(crate) fn readiness(&self) -> Readiness {
        let broker = self.initial.options.broker.as_ref();
        Readiness {
            is_draining: self.drains() > 0,
            engine_away: broker.and_then(|broker| broker.engine_away()),
        }
    }

    /// Makes all cores drain.
    pub(super) fn begin_drain(&self, drain: Drain) {
        *locked(&self.drain) = drain;
        self.drains.fetch_add(1, Ordering::Release);
        self.inboxes.iter().for_each(Inbox::wake);
    }

    /// Makes all cores stop or resume accepting connections, and answers `done` when all cores have done so.
    pub(super) fn pause_accepting(&self, is_paused: bool, done: Done<()>) {
        let barrier = self.barrier(move |_| done.answer(Ok(())));
        for inbox in &self.inboxes {
            inbox.put_always(ControlCommand::PauseAccepting(is_paused, barrier.clone()));
        }
    }

    /// The times of the newest drain.
    pub fn last_drain(&self) -> Drain {
        *locked(&self.drain)
    }

    /// Records that a draining core has no work left (`true`) or has work again.
    pub fn set_idle(&self, is_idle: bool) {
        if !is_idle {
            self.idle.fetch_sub(1, Ordering::AcqRel);
        } else if self.idle.fetch_add(1, Ordering::AcqRel) + 1 == self.cores {
            self.inboxes.iter().for_each(Inbox::wake);
        }
    }

    /// Whether all cores have drained and have no work left.
    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire) == self.cores
    }
}
