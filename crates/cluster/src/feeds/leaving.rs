//! A node that shuts down gives the leases of feeds to other nodes before its sessions end.
//!
//! The subscribers of the node stay until then, and no other node may have any. So the node acquires a feed's lease
//! again if no other node has done so within [`TAKE_BACK_DELAY`].

use super::requests::Ticket;
use super::{ACQUIRE_INTERVAL, Feeds, PUSH_RETRY_DELAY};
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// Time for another node to acquire a released lease: longer than the delay of followers and a round trip.
const TAKE_BACK_DELAY: Duration = Duration::from_secs(1);

/// Delay after which a follower asks for a lease that its holder has released.
pub(super) fn delay_after_release(is_fetched: bool, is_leaving: bool, random: f64) -> Duration {
    match is_fetched {
        true if is_leaving => TAKE_BACK_DELAY,
        true => (ACQUIRE_INTERVAL / 10).mul_f64(random),
        false => PUSH_RETRY_DELAY.mul_f64(random),
    }
}

impl Feeds {
    /// Called when the node shuts down, at once or when its sessions have ended.
    pub(crate) fn handle_leaving(&mut self, now: Instant) {
        self.left_at = Some(self.requests.last());
        let held = self.feeds.iter().filter(|(_, feed)| feed.is_fetched() && feed.phase.holding().is_some());
        let held: Vec<Key> = held.map(|(key, _)| key.clone()).collect();
        for key in held {
            self.give_away(now, &key);
            self.remove_unused(&key);
            self.reschedule(&key);
        }
    }

    /// Releases the lease of a fetched feed, for another node.
    pub(super) fn give_away(&mut self, now: Instant, key: &Key) {
        self.release(now, key);
        if let Some(feed) = self.feeds.get_mut(key).filter(|feed| feed.local.is_wanted()) {
            feed.log.holder = None;
            feed.phase.acquire_at(now + TAKE_BACK_DELAY);
            // The version that was being stored is in the log, or the next holder fetches it.
            self.load(now, key);
        }
    }

    /// Returns `true` if the node gives away the lease that it has acquired with this request, because it has begun to leave since.
    pub(super) fn gives_away(&self, key: &Key, ticket: Ticket) -> bool {
        let has_left = self.left_at.is_some_and(|left_at| ticket <= left_at);
        has_left && self.feeds.get(key).is_some_and(|feed| feed.is_fetched())
    }

    /// Returns `true` while other nodes don't yet know which leases this node has released.
    pub(crate) fn is_releasing(&self) -> bool {
        !self.outputs.is_empty() || self.requests.is_releasing(self.left_at)
    }
}
