//! The open questions of a core, by number.

use std::collections::{BTreeMap, BTreeSet};
use stentor_frame::ConnId;

/// The connections that asked the open questions.
#[derive(Default)]
pub(super) struct Open {
    conns: BTreeMap<u64, ConnId>,
    /// The questions that wait for workers.
    for_workers: BTreeSet<u64>,
}

impl Open {
    pub(super) fn insert(&mut self, number: u64, conn: ConnId, is_for_worker: bool) {
        self.conns.insert(number, conn);
        if is_for_worker {
            self.for_workers.insert(number);
        }
    }

    pub(super) fn get(&self, number: &u64) -> Option<&ConnId> {
        self.conns.get(number)
    }

    pub(super) fn contains_key(&self, number: &u64) -> bool {
        self.conns.contains_key(number)
    }

    pub(super) fn remove(&mut self, number: &u64) -> Option<ConnId> {
        self.for_workers.remove(number);
        self.conns.remove(number)
    }

    /// The number of open questions, without those that wait for workers.
    pub(super) fn len(&self) -> usize {
        self.conns.len() - self.for_workers.len()
    }
}
