//! The memory of the machine for feeds.

use super::Feeds;
use super::feed::Feed;
use super::phase::Holding;

/// Memory of a feed without its document: its state and its places in the tables.
const FEED_BYTES: usize = size_of::<Feed>() + 256;

impl Feeds {
    /// Returns the bytes of all feeds, requests and replaced epochs.
    pub(crate) fn held_bytes(&self) -> usize {
        let leases = self.leases * size_of::<Holding>();
        self.feeds.len() * FEED_BYTES + leases + self.requests.held_bytes() + self.replaced.held_bytes()
    }
}
