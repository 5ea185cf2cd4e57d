//! How far the cores are with a drain.

use super::{Inbox, Shared, locked};
use crate::plane::Drain;
use crate::ports::Readiness;
use std::sync::atomic::Ordering;

impl Shared {
    /// How often the node was told to drain.
    #[inline]
    pub(crate) fn drains(&self) -> usize {
        self.drains.load(Ordering::Acquire)
    }

    /// Whether load balancers should choose the node for new clients, and why not.
    pub(crate) fn readiness(&self) -> Readiness {
        let broker = self.initial.options.broker.as_ref();
        Readiness {
            is_draining: self.drains() > 0,
            engine_away: broker.and_then(|broker| broker.engine_away()),
        }
    }

    /// How it was told to drain the last time.
    pub(crate) fn drain(&self) -> Drain {
        *locked(&self.drain)
    }

    /// A core that drains has nothing left, or something again.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        if !is_idle {
            self.idle.fetch_sub(1, Ordering::AcqRel);
        } else if self.idle.fetch_add(1, Ordering::AcqRel) + 1 == self.cores {
            self.inboxes.iter().for_each(Inbox::wake);
        }
    }

    /// Whether all cores have drained and have nothing left.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire) == self.cores
    }
}
