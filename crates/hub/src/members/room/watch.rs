//! The state of a room while sessions of this node watch it.

use super::Entry;
use super::gone::Gone;
use crate::presence::MemberId;
use std::time::Instant;

/// Another node's members, as far as they are known.
pub(in crate::members) struct Source {
    pub(in crate::members) node: u64,
    pub(in crate::members) version: u64,
    /// Number of the node's members, as it reports.
    pub(super) count: usize,
    /// Number of the node's members that are present and known here.
    pub(super) known: usize,
    /// Time of the node's last message that agreed with this version.
    pub(in crate::members) confirmed_at: Instant,
    /// Time at which another node last listed this version as confirmed.
    pub(in crate::members) listed_at: Option<Instant>,
}

/// The other nodes that have reported members, in the order of their ids. A list, because most clusters are small.
#[derive(Default)]
pub(in crate::members) struct Sources(Vec<Source>);

impl Sources {
    fn position(&self, node: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&node, |source| source.node)
    }

    pub(in crate::members) fn find(&self, node: u64) -> Option<&Source> {
        self.position(node).ok().map(|at| &self.0[at])
    }

    pub(in crate::members) fn find_mut(&mut self, node: u64) -> Option<&mut Source> {
        self.position(node).ok().map(|at| &mut self.0[at])
    }

    pub(in crate::members) fn iter(&self) -> std::slice::Iter<'_, Source> {
        self.0.iter()
    }

    /// Records what a node has reported.
    pub(super) fn set(&mut self, node: u64, version: u64, count: usize, now: Instant) {
        match self.position(node) {
            Ok(at) => {
                let source = &mut self.0[at];
                (source.version, source.count) = (version, count);
                (source.confirmed_at, source.listed_at) = (now, None);
            }
            Err(at) => {
                self.0.reserve_exact(1);
                let source = Source { node, version, count, known: 0, confirmed_at: now, listed_at: None };
                self.0.insert(at, source);
            }
        }
    }

    pub(super) fn remove(&mut self, node: u64) {
        if let Ok(at) = self.position(node) {
            self.0.remove(at);
            self.0.shrink_to_fit();
        }
    }
}

/// Changes since the last notice.
pub(super) struct Pending {
    pub(super) notify_at: Instant,
    /// Number of changes.
    pub(super) changes: usize,
    pub(super) gone: Gone,
}

/// The state of a room that is watched.
pub(in crate::members) struct Watch {
    pub(in crate::members) sources: Sources,
    pub(super) pending: Option<Box<Pending>>,
    /// Time of this node's next `Watch` message. `None` if the cluster has no other nodes.
    pub(in crate::members) watch_at: Option<Instant>,
    /// Time of this node's last `Watch` message.
    pub(in crate::members) watched_at: Option<Instant>,
    /// Time at which this node stops watching, if its last watcher has left.
    pub(in crate::members) unwatch_at: Option<Instant>,
    /// Number of members in the last notice.
    pub(super) last_count: usize,
}

impl Watch {
    pub(super) fn new(count: usize) -> Self {
        Self {
            sources: Sources::default(),
            pending: None,
            watch_at: None,
            watched_at: None,
            unwatch_at: None,
            last_count: count,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.notify_at(), self.watch_at, self.unwatch_at].into_iter().flatten().min()
    }

    /// Returns the time of the next notice.
    pub(in crate::members) fn notify_at(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| pending.notify_at)
    }

    /// Returns the number of other nodes' members that aren't known by name.
    pub(super) fn unknown(&self) -> usize {
        self.sources.iter().map(|source| source.count.saturating_sub(source.known)).sum()
    }

    /// Counts a change, of which a notice is due at `notify_at` at the latest.
    pub(super) fn changed(&mut self, notify_at: Instant) -> &mut Pending {
        let pending = self
            .pending
            .get_or_insert_with(|| Box::new(Pending { notify_at, changes: 0, gone: Gone::default() }));
        pending.changes += 1;
        pending
    }

    /// Called when a member joins. Returns `true` if watchers still know it from before it left.
    pub(super) fn returned(&mut self, id: MemberId) -> bool {
        self.pending.as_mut().is_some_and(|pending| pending.gone.remove(id))
    }

    /// Called when a member has left, of which a notice is due at `notify_at` at the latest.
    pub(super) fn left(&mut self, notify_at: Instant, entry: &Entry) {
        let pending = self.changed(notify_at);
        if entry.unreported.is_none() {
            pending.gone.insert(entry);
        }
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let pending =
            self.pending.as_deref().map_or(0, |pending| size_of_val(pending) + pending.gone.bytes());
        size_of::<Self>() + self.sources.0.capacity() * size_of::<Source>() + pending
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.gone.trim();
        }
    }

    /// Returns `true` if the running sums are right.
    pub(super) fn is_counted(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.gone.is_counted())
    }
}
