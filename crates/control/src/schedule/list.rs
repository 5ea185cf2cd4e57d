//! The list of known keys for operators, those with problems first.

use super::{Entry, FailureClass, Scheduler};
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
    /// Duration of the last fetch.
    pub(super) took: Duration,
    /// Time of the last fetch that succeeded.
    pub(super) succeeded_at: Option<Instant>,
    /// The last fetches, if they failed. Boxed, because those of most keys succeed.
    pub(super) failures: Option<Box<Failures>>,
}

/// Fetches of a key that have failed in a row.
pub(super) struct Failures {
    /// The number of fetches since the last 404 for a key with a document.
    pub(super) count: u32,
    /// The kind of the last failure.
    pub(super) class: FailureClass,
    /// Time of the first failure.
    since: Instant,
    /// Time since which the upstream has answered only 404 for a key with a document.
    pub(super) missing_since: Option<Instant>,
    /// The earliest time of the next fetch, if the upstream sets one.
    pub(super) not_before: Option<Instant>,
}

impl LastFetches {
    /// Records that the last fetch failed. The caller counts it.
    pub(super) fn fail(&mut self, now: Instant, class: FailureClass) -> &mut Failures {
        let first = || Failures { count: 0, class, since: now, missing_since: None, not_before: None };
        let failures = self.failures.get_or_insert_with(|| Box::new(first()));
        (failures.class, failures.not_before) = (class, None);
        failures
    }

    /// Returns the kind of failure of the last fetch.
    pub(super) fn failing(&self) -> Option<FailureClass> {
        self.failures.as_ref().map(|failures| failures.class)
    }

    /// Returns the earliest time of the next fetch, if the upstream sets one.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.failures.as_ref()?.not_before
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
            let failures = last.failures.as_ref().map(|failures| failures.count);
            (Reverse((failures.is_some(), is_stale, failures, last.took)), (*key).clone())
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
            failures: entry.last.failures.as_ref().map_or(0, |failures| failures.count),
            fetch_time: entry.last.took,
            document_bytes: entry.document_bytes(),
            failing_since: entry.last.failures.as_ref().map(|failures| failures.since),
            succeeded_at: entry.last.succeeded_at,
            due: entry.due,
        });
        KeyList { keys: listed.collect(), count }
    }
}
