//! Documents that backends push into a feed, on any node.
//!
//! The node that receives a pushed document acquires the feed's lease, reads the log, stores the document and releases
//! the lease. So pushes to several nodes have one order, and each push's sequence number is compared with those of all
//! earlier pushes.

use super::feed::{Feed, Push};
use super::phase::Phase;
use super::{Feeds, Output};
use std::time::{Duration, Instant};
use stentor_hub::Key;
use stentor_ports::{PushDenied, PushedFeed};

/// Time after which an unstored push fails: longer than the lease of a holder that has died.
pub(super) const PUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of waiting pushes to one feed.
const PUSHES_MAX: usize = 64;

impl Feeds {
    /// Handles a document that is pushed, or its deletion. The answer has the number `id`.
    pub(crate) fn handle_push(&mut self, now: Instant, id: u64, key: &Key, push: PushedFeed) {
        let PushedFeed { change, sequence } = push;
        if !self.feeds.contains_key(key) {
            self.insert(now, key, false);
        }
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if feed.pushes.len() >= PUSHES_MAX || feed.is_fetched() {
            let denied = PushDenied::Unavailable { is_unknown: false };
            self.outputs.push_back(Output::Pushed(id, Err(denied)));
            return self.remove_unused(key);
        }
        let deadline = now + PUSH_TIMEOUT;
        feed.pushes.push_back(Push { id, change, sequence, deadline, is_unknown: false });
        match feed.phase {
            Phase::Following { .. } => self.acquire(now, key),
            Phase::Holding(_) => self.store(now, key),
            Phase::Loading(_) | Phase::Acquiring { .. } => {}
        }
        self.reschedule(key);
    }

    /// Fails the pushes that have timed out.
    pub(super) fn expire_pushes(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        while feed.pushes.front().is_some_and(|push| push.deadline <= now)
            && let Some(push) = feed.pushes.pop_front()
        {
            let storing = feed.phase.holding().and_then(|holding| holding.storing());
            let is_unknown = push.is_unknown || storing.is_some_and(|it| it.push == Some(push.id));
            let denied = PushDenied::Unavailable { is_unknown };
            self.outputs.push_back(Output::Pushed(push.id, Err(denied)));
        }
    }

    /// Releases a lease that no push needs, and removes the feed if it has no subscribers.
    pub(super) fn release_after_push(&mut self, now: Instant, key: &Key) {
        if self.feeds.get(key).is_some_and(|feed| !feed.is_fetched() && feed.pushes.is_empty()) {
            self.release(now, key);
            self.remove_unused(key);
        }
    }

    /// Removes a feed that neither subscribers nor pushes need.
    pub(super) fn remove_unused(&mut self, key: &Key) {
        let feed = self.feeds.get(key);
        let is_used =
            |feed: &Feed| feed.local.is_wanted() || !feed.pushes.is_empty() || feed.phase.holding().is_some();
        if feed.is_some_and(|feed| !is_used(feed)) {
            self.remove(key);
        }
    }
}
