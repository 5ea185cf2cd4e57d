//! The list of known keys for operators, those with problems first.

use super::{Entry, Scheduler};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{FeedState, Key};

/// A request for the list of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysQuery {
    /// Lists only keys that contain this text.
    pub search: String,
    /// Maximum number of listed keys.
    pub limit: usize,
}

/// The answer to a [`KeysQuery`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    /// The listed keys.
    pub keys: Vec<ListedKey>,
    /// Number of keys that match, listed or not.
    pub count: usize,
}

/// A key of a [`KeyList`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// The key.
    pub key: Key,
    /// The index of its upstream.
    pub upstream: usize,
    /// The state. `None` if the key waits for its first document.
    pub state: Option<FeedState>,
    /// The reason for the state. Empty if there is none.
    pub reason: Arc<str>,
    /// `true` if the key has subscribers.
    pub is_subscribed: bool,
    /// Number of fetches in a row that have failed.
    pub failures: u32,
    /// Duration of the last fetch. Zero before the first one.
    pub fetch_time: Duration,
    /// Size of the document, in bytes.
    pub document_bytes: usize,
    /// Time of the first fetch of those in a row that have failed. `None` if the last fetch succeeded.
    pub failing_since: Option<Instant>,
    /// Time of the last fetch that succeeded. `None` if none did.
    pub succeeded_at: Option<Instant>,
    /// Time of the next fetch. `None` during a fetch, and for a complete key.
    pub due: Option<Instant>,
}

/// The results of a key's last fetches.
#[derive(Default)]
pub(super) struct LastFetches {
    /// Number of fetches in a row that have failed.
    pub(super) failures: u32,
    /// The kind of failure of the last fetch.
    pub(super) failing: Option<super::FailureClass>,
    /// Duration of the last fetch.
    pub(super) took: Duration,
    /// Time of the first fetch of those in a row that have failed.
    failing_since: Option<Instant>,
    /// Time of the last fetch that succeeded.
    succeeded_at: Option<Instant>,
}

impl LastFetches {
    /// Records that the last fetch succeeded.
    pub(super) fn succeed(&mut self) {
        (self.failures, self.failing) = (0, None);
    }

    /// Records the times of a finished fetch. `has_document` is `true` if the upstream answered with the document.
    pub(super) fn finish(&mut self, now: Instant, has_document: bool) {
        if has_document {
            self.succeeded_at = Some(now);
        }
        self.failing_since = self.failing.map(|_| self.failing_since.unwrap_or(now));
    }
}

impl Scheduler {
    /// Lists keys: first those whose last fetch failed, then those that are stale, then those whose last fetch took the longest.
    pub fn list(&self, query: &KeysQuery) -> KeyList {
        let entries = self.entries.iter().map(|(key, entry)| (key, &**entry));
        let mut found: Vec<(&Key, &Entry)> =
            entries.filter(|(key, _)| key.as_str().contains(&*query.search)).collect();
        let count = found.len();
        let rank = |(key, entry): &(&Key, &Entry)| {
            let Entry { last, state, .. } = entry;
            let is_stale = *state == Some(FeedState::Stale);
            (Reverse((last.failing.is_some(), is_stale, last.failures, last.took)), (*key).clone())
        };
        if count > query.limit {
            found.select_nth_unstable_by_key(query.limit, rank);
            found.truncate(query.limit);
        }
        found.sort_unstable_by_key(rank);
        let listed = found.into_iter().map(|(key, entry)| ListedKey {
            key: key.clone(),
            upstream: entry.upstream,
            state: entry.state,
            reason: entry.reason.clone(),
            is_subscribed: entry.wanted,
            failures: entry.last.failures,
            fetch_time: entry.last.took,
            document_bytes: entry.document_bytes(),
            failing_since: entry.last.failing_since,
            succeeded_at: entry.last.succeeded_at,
            due: entry.due,
        });
        KeyList { keys: listed.collect(), count }
    }
}
