//! Documents that backends push into a feed, on any node.
//!
//! A node that a document is pushed to acquires the feed's lease for it, reads the log, stores the document and releases the lease. So
//! pushes to several nodes have one order, and the sequence number of each is compared with those of all before it.

use super::{Feeds, Role};
use crate::feeds::request::{Output, Push};
use std::time::{Duration, Instant};
use stentor_hub::Key;
use stentor_ports::{PushDenied, PushedFeed};

/// A push that isn't stored after this time is given up. Longer than a lease lasts whose holder has died.
pub(super) const PUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of pushes to one feed that wait.
const PUSHES_MAX: usize = 64;

impl Feeds {
    /// A document is pushed, or deleted. Answered with `id`.
    pub(crate) fn handle_push(&mut self, now: Instant, id: u64, key: &Key, push: PushedFeed) {
        let PushedFeed { document, patch, sequence } = push;
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
        feed.pushes.push_back(Push { id, document, patch, sequence, deadline, is_unknown: false });
        match feed.role {
            Role::Following { .. } => self.acquire(now, key),
            Role::Holding { .. } => self.store(now, key),
            Role::Loading | Role::Acquiring => {}
        }
        self.reschedule(key);
    }

    /// Gives up pushes whose time is over.
    pub(super) fn expire_pushes(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        while feed.pushes.front().is_some_and(|push| push.deadline <= now)
            && let Some(push) = feed.pushes.pop_front()
        {
            let is_stored = feed.storing.as_ref().is_some_and(|storing| storing.push == Some(push.id));
            let is_unknown = push.is_unknown || is_stored;
            let denied = PushDenied::Unavailable { is_unknown };
            self.outputs.push_back(Output::Pushed(push.id, Err(denied)));
        }
    }

    /// The lease isn't needed any more, and the feed isn't if it has no subscribers.
    pub(super) fn release_after_push(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| !feed.is_fetched() && feed.pushes.is_empty())
        else {
            return;
        };
        if let Some(lease) = feed.lease() {
            feed.role = Role::Following { acquire_at: now };
            self.end_lease(key);
            self.request_release(now, key, lease);
        }
        self.remove_unused(key);
    }

    /// Forgets a feed that neither subscribers nor pushes need.
    pub(super) fn remove_unused(&mut self, key: &Key) {
        let feed = self.feeds.get(key);
        if feed.is_some_and(|feed| !feed.is_wanted && feed.pushes.is_empty() && feed.lease().is_none()) {
            self.remove(key);
        }
    }
}
