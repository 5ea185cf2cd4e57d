//! A topic's bounded history, kept at its home core.

use crate::publication::{Position, Publication};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The limits of a topic's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum number of publications; 0 keeps none.
    pub publications_max: usize,
    /// Maximum bytes of bodies.
    pub bytes_max: usize,
    /// Maximum age.
    pub age_max: Duration,
}

/// The history that a core keeps of its rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryStats {
    /// Publications of all rooms whose home core it is.
    pub publications: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
}

struct Entry<F> {
    offset: u64,
    at: Instant,
    publication: Arc<Publication<F>>,
}

/// The newest publications of a topic, consecutive offsets, oldest first.
pub(crate) struct History<F> {
    limits: HistoryLimits,
    entries: VecDeque<Entry<F>>,
    bytes: usize,
}

impl<F> History<F> {
    pub(crate) fn new(limits: HistoryLimits) -> Self {
        Self { limits, entries: VecDeque::new(), bytes: 0 }
    }

    pub(crate) fn push(&mut self, now: Instant, offset: u64, publication: Arc<Publication<F>>) {
        self.bytes += publication.body().len();
        self.entries.push_back(Entry { offset, at: now, publication });
        while self.entries.len() > self.limits.publications_max || self.bytes > self.limits.bytes_max {
            self.forget_oldest();
        }
        self.expire(now);
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while self.entries.front().is_some_and(|e| now.saturating_duration_since(e.at) > self.limits.age_max)
        {
            self.forget_oldest();
        }
    }

    /// Evicts the oldest publication. Returns the bytes of its body.
    pub(crate) fn forget_oldest(&mut self) -> usize {
        let bytes = self.entries.pop_front().map_or(0, |e| e.publication.body().len());
        self.bytes -= bytes;
        bytes
    }

    /// What followed `since`, or `None` if the history doesn't reach back that far. `newest` is the topic's
    /// position.
    pub(crate) fn after(&self, since: Position, newest: Position) -> Option<Vec<Arc<Publication<F>>>> {
        if since.epoch != newest.epoch || since.offset > newest.offset {
            return None;
        }
        let missing = newest.offset - since.offset;
        let kept = self.entries.len() as u64;
        if missing > kept {
            return None;
        }
        let start = (kept - missing) as usize;
        debug_assert!(self.entries.get(start).is_none_or(|e| e.offset == since.offset + 1));
        Some(self.entries.range(start..).map(|e| e.publication.clone()).collect())
    }

    pub(crate) fn figures(&self) -> HistoryStats {
        HistoryStats { publications: self.entries.len(), bytes: self.bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn newest_at(&self) -> Option<Instant> {
        self.entries.back().map(|e| e.at)
    }
}
