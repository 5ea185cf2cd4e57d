//! The slots of a lane: its fetches in flight, and the limits of their number.

use super::Entry;
use super::outcome::Limit;
use stentor_hub::FeedState;

/// Keys that don't exist may use this fraction (a tenth) of the fetches in flight and of the requests per
/// second.
pub(super) const LOST_SHARE: usize = 10;

/// The kind of a fetch, by the state of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchKind {
    /// The key has a document.
    Refresh,
    /// The key has no document yet.
    First,
    /// The upstream has reported that the key doesn't exist.
    Lost,
}

impl FetchKind {
    pub(super) fn of(entry: &Entry) -> Self {
        match (&entry.kept, entry.state) {
            (Some(_), _) => Self::Refresh,
            (None, Some(FeedState::NotFound)) => Self::Lost,
            (None, _) => Self::First,
        }
    }
}

/// Tells which fetches a lane may begin beyond its share.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// `true` if the lane may begin any fetch beyond its share.
    pub(super) any: bool,
    /// `true` if the lane may begin a first fetch beyond its share.
    pub(super) first: bool,
}

/// Returns the number of `workers` that first fetches may use if this number of keys has documents.
pub(super) fn first_fetches_max(workers: usize, documents: usize) -> usize {
    workers - documents.min(workers / 2)
}

#[derive(Default)]
pub(super) struct Slots {
    pub(super) concurrency_max: usize,
    /// Number of fetches that this lane may always use.
    share: usize,
    pub(super) in_flight: usize,
    /// Number of fetches in flight for keys without a document.
    pub(super) first_in_flight: usize,
    /// Number of fetches in flight for keys that don't exist.
    lost_in_flight: usize,
    /// Number of keys with a document.
    pub(super) documents: usize,
}

impl Slots {
    pub(super) fn new(concurrency_max: usize) -> Self {
        Self { concurrency_max, ..Self::default() }
    }

    pub(super) fn set_share(&mut self, share: usize) {
        self.share = share.min(self.concurrency_max);
    }

    /// Returns the number of fetches in flight, plus those that the lane may still begin within its share.
    pub(super) fn reserved(&self) -> usize {
        self.in_flight.max(self.share)
    }

    /// Adds or subtracts a fetch in flight.
    pub(super) fn count(&mut self, kind: FetchKind, change: impl Fn(&mut usize, usize)) {
        change(&mut self.in_flight, 1);
        change(&mut self.first_in_flight, usize::from(kind != FetchKind::Refresh));
        change(&mut self.lost_in_flight, usize::from(kind == FetchKind::Lost));
    }

    /// Returns the limit that prevents any further fetch. `None` if a fetch may begin.
    pub(super) fn limit(&self, room: Room) -> Option<Limit> {
        if self.in_flight >= self.concurrency_max {
            return Some(Limit::Concurrency);
        }
        (self.in_flight >= self.share && !room.any).then_some(Limit::Fetches)
    }

    /// Returns the limit that prevents a further first fetch. `None` if one may begin.
    pub(super) fn first_limit(&self, room: Room) -> Option<Limit> {
        let has = |workers| self.first_in_flight < first_fetches_max(workers, self.documents);
        self.limit(room).or_else(|| match (has(self.concurrency_max), has(self.share) || room.first) {
            (false, _) => Some(Limit::Concurrency),
            (true, false) => Some(Limit::Fetches),
            (true, true) => None,
        })
    }

    /// Returns `true` if a fetch of a key that doesn't exist may begin.
    pub(super) fn has_for_lost(&self, room: Room) -> bool {
        let max = (self.concurrency_max / LOST_SHARE).max(1);
        self.first_limit(room).is_none() && self.lost_in_flight < max
    }
}
