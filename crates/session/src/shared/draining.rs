//! The lifecycle of a node: the state of a drain on all cores.

use super::command::ControlCommand;
use super::{Inbox, Shared};
use crate::ports::{Done, Drain, Lifecycle, Readiness};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The drain of a node's cores.
#[derive(Default)]
pub(super) struct NodeDrain {
    /// The times of the newest drain.
    newest: Mutex<Drain>,
    /// Number of calls of [`Lifecycle::drain`].
    count: AtomicUsize,
    /// Number of cores that have drained and have no work left.
    idle: AtomicUsize,
}

impl NodeDrain {
    /// Records that a core has no work left (`true`) or has work again. Returns the number of cores without work.
    fn set_idle(&self, is_idle: bool) -> usize {
        if is_idle {
            self.idle.fetch_add(1, Ordering::AcqRel) + 1
        } else {
            self.idle.fetch_sub(1, Ordering::AcqRel) - 1
        }
    }
}

impl Shared {
    /// The number of drains that have been requested. A core compares it to notice a new drain.
    #[inline]
    pub fn drains(&self) -> usize {
        self.drain.count.load(Ordering::Acquire)
    }

    /// The times of the newest drain.
    pub fn last_drain(&self) -> Drain {
        *self.drain.newest.lock()
    }

    /// Records that a draining core has no work left (`true`) or has work again.
    pub fn set_idle(&self, is_idle: bool) {
        if self.drain.set_idle(is_idle) == self.cores {
            self.inboxes().for_each(Inbox::wake);
        }
    }

    /// Returns `true` if all cores have drained and have no work left.
    pub fn is_idle(&self) -> bool {
        self.drain.idle.load(Ordering::Acquire) == self.cores
    }
}

impl Lifecycle for Shared {
    fn readiness(&self) -> Readiness {
        let broker = self.initial.broker.as_ref();
        Readiness {
            is_draining: self.drains() > 0,
            engine_away: broker.and_then(|broker| broker.engine_away()),
        }
    }

    fn connections(&self) -> usize {
        self.each.iter().map(|core| core.load.load(Ordering::Relaxed)).sum()
    }

    fn pause_accepting(&self, is_paused: bool, done: Done<()>) {
        let barrier = self.barrier(move |_| done.answer(Ok(())));
        for inbox in self.inboxes() {
            inbox.put_always(ControlCommand::PauseAccepting(is_paused, barrier.clone()));
        }
    }

    fn drain(&self, drain: Drain) {
        *self.drain.newest.lock() = drain;
        self.drain.count.fetch_add(1, Ordering::Release);
        self.inboxes().for_each(Inbox::wake);
    }
}
