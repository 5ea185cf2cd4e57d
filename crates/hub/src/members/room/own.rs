//! The members of this node, as other nodes know them.
//!
//! Changes wait to be published only during a lease. Without one, each change begins a version.

use super::entries::Entries;
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
    /// `None` while no other node watches the room.
    pub(super) lease: Option<Box<Lease>>,
}

/// The time in which changes are published.
pub(super) struct Lease {
    until: Instant,
    unpublished: BTreeMap<MemberId, Unpublished>,
    publish_at: Option<Instant>,
}

impl OwnMembers {
    pub(super) fn new(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// Begins or extends the time in which changes are published.
    pub(in crate::members) fn extend_lease(&mut self, until: Instant) {
        let lease = || Box::new(Lease { until, unpublished: BTreeMap::new(), publish_at: None });
        self.lease.get_or_insert_with(lease).until = until;
    }

    pub(in crate::members) fn lease_until(&self) -> Option<Instant> {
        self.lease.as_ref().map(|lease| lease.until)
    }

    pub(in crate::members) fn publish_at(&self) -> Option<Instant> {
        self.lease.as_ref()?.publish_at
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.lease_until().into_iter().chain(self.publish_at()).min()
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
        match &mut self.lease {
            Some(lease) => {
                change(&mut lease.unpublished);
                lease.publish_at.get_or_insert(now + interval);
            }
            None => self.version += 1,
        }
    }

    /// Returns the next changes for other nodes.
    pub(super) fn delta(
        &mut self,
        now: Instant,
        interval: Duration,
        entries: &Entries,
    ) -> Option<PresenceMessage> {
        let lease = self.lease.as_mut()?;
        lease.publish_at = None;
        if lease.unpublished.is_empty() {
            return None;
        }
        let mut left = Vec::new();
        let mut joined = Vec::new();
        for _ in 0..DELTA_CHANGES_MAX {
            let Some((id, change)) = lease.unpublished.pop_first() else { break };
            match change {
                Unpublished::Left(absence) => left.push((id, absence)),
                Unpublished::Joined => joined.extend(entries.get(id).and_then(|entry| entry.member.clone())),
            }
        }
        if !lease.unpublished.is_empty() {
            lease.publish_at = Some(now + interval);
        }
        let from = self.version;
        self.version += 1;
        Some(PresenceMessage::Delta { from, to: self.version, count: self.count, joined, left })
    }

    /// Stops publishing changes.
    pub(in crate::members) fn end_lease(&mut self) {
        if self.lease.take().is_some_and(|lease| !lease.unpublished.is_empty()) {
            self.version += 1;
        }
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lease.as_deref().map_or(0, |lease| size_of_val(lease) + map_bytes(&lease.unpublished))
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        if let Some(lease) = &mut self.lease {
            trim(&mut lease.unpublished, BTreeMap::is_empty);
        }
    }
}
