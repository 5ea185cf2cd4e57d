//! The members of this node, as other nodes know them.
//!
//! **Invariant.** Changes wait to be published only during a lease. Without one, each change begins a version.

use super::Entry;
use super::size::{map_bytes, trim};
use crate::presence::{Absence, DELTA_CHANGES_MAX, MemberId, PresenceMessage};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A change that other nodes don't know yet.
enum Unpublished {
    Joined,
    Left(Absence),
}

#[derive(Default)]
pub(in crate::members) struct OwnMembers {
    /// Number of present members.
    pub(super) count: usize,
    /// The version that other nodes know.
    pub(in crate::members) version: u64,
    /// End of the time in which changes are published.
    pub(in crate::members) lease_until: Option<Instant>,
    unpublished: BTreeMap<MemberId, Unpublished>,
    pub(in crate::members) publish_at: Option<Instant>,
}

impl OwnMembers {
    pub(super) fn new(version: u64, lease_until: Option<Instant>) -> Self {
        Self { version, lease_until, ..Self::default() }
    }

    /// Records that a member is present.
    pub(super) fn join(&mut self, now: Instant, interval: Duration, id: MemberId) {
        self.count += 1;
        self.change(now, interval, |unpublished| match unpublished.remove(&id) {
            Some(Unpublished::Left(_)) => {}
            Some(Unpublished::Joined) | None => drop(unpublished.insert(id, Unpublished::Joined)),
        });
    }

    /// Records that other nodes no longer count a member.
    pub(super) fn leave(&mut self, now: Instant, interval: Duration, id: MemberId, absence: Absence) {
        self.change(now, interval, |unpublished| {
            if !matches!(unpublished.remove(&id), Some(Unpublished::Joined)) {
                unpublished.insert(id, Unpublished::Left(absence));
            }
        });
    }

    fn change(
        &mut self,
        now: Instant,
        interval: Duration,
        change: impl FnOnce(&mut BTreeMap<MemberId, Unpublished>),
    ) {
        if self.lease_until.is_none() {
            self.version += 1;
            return;
        }
        change(&mut self.unpublished);
        self.publish_at.get_or_insert(now + interval);
    }

    /// Returns the next changes for other nodes.
    pub(super) fn delta(
        &mut self,
        now: Instant,
        interval: Duration,
        entries: &BTreeMap<MemberId, Entry>,
    ) -> Option<PresenceMessage> {
        self.publish_at = None;
        if self.unpublished.is_empty() {
            return None;
        }
        let mut left = Vec::new();
        let mut joined = Vec::new();
        for _ in 0..DELTA_CHANGES_MAX {
            let Some((id, change)) = self.unpublished.pop_first() else { break };
            match change {
                Unpublished::Left(absence) => left.push((id, absence)),
                Unpublished::Joined => joined.extend(entries.get(&id).and_then(Entry::member)),
            }
        }
        if !self.unpublished.is_empty() {
            self.publish_at = Some(now + interval);
        }
        let from = self.version;
        self.version += 1;
        Some(PresenceMessage::Delta { from, to: self.version, count: self.count, joined, left })
    }

    /// Stops publishing changes.
    pub(in crate::members) fn end_lease(&mut self) {
        (self.lease_until, self.publish_at) = (None, None);
        if !self.unpublished.is_empty() {
            self.unpublished.clear();
            self.version += 1;
        }
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        map_bytes(&self.unpublished)
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        trim(&mut self.unpublished, BTreeMap::is_empty);
    }
}
