//! Leases of feeds: this node acquires, loses and releases them. The node that holds a feed's lease fetches the feed,
//! or stores pushed documents.

use super::feed::{Cold, Local, Refresh};
use super::{ACQUIRE_INTERVAL, Feeds, Output, PUSH_RETRY_DELAY, RETRY_DELAY};
use std::time::Instant;
use stentor_hub::Key;
use stentor_ports::{FeedUpdate, KeyInterest};

impl Feeds {
    /// Lets the control plane fetch a key.
    pub(super) fn fetch(&mut self, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| feed.is_fetched()) else { return };
        let requesters = feed.local.subscribers_mut().map(|wanted| std::mem::take(&mut wanted.requesters));
        let requesters = requesters.unwrap_or_default();
        self.outputs.push_back(Output::Control(KeyInterest { key: key.clone(), wanted: true, requesters }));
    }

    /// Called when this node no longer holds the lease: the node stops fetching the key.
    pub(super) fn end_lease(&mut self, key: &Key) {
        self.leases -= 1;
        if self.feeds.get(key).is_some_and(|feed| feed.is_fetched()) {
            let wanted = KeyInterest { key: key.clone(), wanted: false, requesters: Vec::new() };
            self.outputs.push_back(Output::Control(wanted));
        }
    }

    /// Handles the loss of a lease: another node fetches, or will.
    pub(super) fn lose(&mut self, now: Instant, key: &Key) {
        self.lost_leases += 1;
        self.end_lease(key);
        let Some(feed) = self.feeds.get(key) else { return };
        if let Some(lease) = feed.phase.lease().filter(|_| feed.has_no_log() && !feed.local.is_wanted()) {
            // The engine may still keep the lease.
            self.request_release(now, key, lease);
        }
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let delay = if feed.is_fetched() { RETRY_DELAY } else { PUSH_RETRY_DELAY };
        let storing = feed.phase.follow(now + delay);
        feed.give_up(storing.as_ref());
        feed.log.holder = None;
        self.load(now, key);
        self.reschedule(key);
    }

    /// Releases the lease of a feed, if this node holds it.
    pub(super) fn release(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if let Some(lease) = feed.phase.lease() {
            feed.phase.follow(now);
            self.end_lease(key);
            self.request_release(now, key, lease);
        }
    }

    /// Called when the engine is connected again: messages may have been missed. Another server may have been the
    /// primary meanwhile, under which other nodes have stored versions. Those versions are older than the holder's next
    /// one, so a holder needs a term greater than theirs.
    pub(crate) fn handle_connected(&mut self, now: Instant) {
        self.holders.handle_connected(now);
        self.requests.handle_connected();
        let keys: Vec<Key> = self.feeds.keys().cloned().collect();
        for key in keys {
            let delay = ACQUIRE_INTERVAL.mul_f64(self.random.f64());
            if let Some(feed) = self.feeds.get_mut(&key) {
                feed.log.begin_anew();
                feed.lost_until = None;
                // The holder may have released the lease in the meantime.
                feed.check_at = now + delay;
                feed.phase.acquire_at(now + delay);
                self.begin_term(now, &key);
                self.load(now, &key);
            }
            self.reschedule(&key);
        }
    }

    /// Makes the holder of a lease request a new lease, which replaces the old one and has a greater term.
    pub(super) fn begin_term(&mut self, now: Instant, key: &Key) {
        let Some(lease) = self.feeds.get(key).and_then(|feed| feed.phase.lease()) else { return };
        self.end_lease(key);
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let storing = feed.phase.follow(now);
        feed.give_up(storing.as_ref());
        feed.log.term_seen = feed.log.term_seen.max(lease.term.saturating_add(1));
        // A cold key's own place is free for its new request.
        self.count_cold(key);
        self.acquire(now, key);
    }

    /// Called when the last subscriber of a key on this node has left.
    pub(super) fn handle_unwanted(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let holds = feed.is_fetched() && feed.phase.holding().is_some();
        // The lease is kept for `idle_ttl`, so clients that subscribe and unsubscribe in a loop cause no additional
        // requests.
        feed.local = Local::Unsubscribed { until: holds.then(|| now + self.idle_ttl) };
        feed.waiting = None;
        if feed.refresh == Refresh::Due {
            feed.refresh = Refresh::Never;
        }
        self.outputs.push_back(Output::Plane(key.clone(), FeedUpdate::Forget));
        // If a pushed document is being stored, the store is completed.
        self.remove_unused(key);
        self.reschedule(key);
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(feed) = self.feeds.remove(key) else { return };
        self.change_cold(key, feed.cold, Cold::No);
        if let Some(at) = feed.due {
            self.due.remove(&(at, key.clone()));
        }
    }
}
