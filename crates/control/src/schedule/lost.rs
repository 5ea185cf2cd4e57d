//! The keys of a lane that don't exist and wait for another fetch. They get every tenth fetch while other
//! keys wait, and a tenth of the rate.

use super::slots::LOST_SHARE;
use crate::fair::{FairQueue, Owner};
use std::time::{Duration, Instant};
use stentor_hub::Key;

#[derive(Default)]
pub(super) struct Lost {
    queue: FairQueue<Key>,
    /// Time at which the next fetch may begin. `None` if it may begin at any time.
    pub(super) start: Option<Instant>,
    /// Number of fetches of other keys since the last fetch of a key that doesn't exist.
    others_in_row: usize,
}

impl Lost {
    pub(super) fn insert(&mut self, owner: Owner, ticket: u64, key: Key) {
        self.queue.insert(owner, ticket, key);
    }

    pub(super) fn remove(&mut self, owner: Owner, ticket: u64) {
        self.queue.remove(owner, ticket);
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns `true` if these keys precede other keys.
    pub(super) fn has_turn(&self) -> bool {
        self.others_in_row >= LOST_SHARE - 1
    }

    /// Records a fetch of another key.
    pub(super) fn skip(&mut self) {
        self.others_in_row = self.others_in_row.saturating_add(1);
    }

    /// Takes the next key to fetch. `spacing` is the time between two fetches of any keys.
    pub(super) fn next(&mut self, now: Instant, spacing: Duration) -> Option<Key> {
        self.others_in_row = 0;
        self.start = Some(now + spacing * LOST_SHARE as u32);
        self.queue.next()
    }
}
