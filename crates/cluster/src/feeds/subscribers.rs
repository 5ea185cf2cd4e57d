//! What the node's own subscribers receive.

use super::Feeds;
use super::feed::Newest;
use super::request::Output;
use bytes::Bytes;
use stentor_hub::{FeedState, Key};
use stentor_ports::{FeedSource, FeedUpdate};

impl Feeds {
    /// What this node has, unless its own subscribers have it. Returns whether they hadn't.
    pub(super) fn show_newest(&mut self, key: &Key, patches: Vec<Bytes>) -> bool {
        let Some(feed) = self.feeds.get(key).filter(|feed| feed.is_wanted) else { return false };
        let Some(Newest { position, document, .. }) =
            feed.newest.as_ref().filter(|newest| Some(newest.position) != feed.shown && !newest.needs_epoch)
        else {
            return false;
        };
        let update = FeedUpdate::At { position: *position, document: document.clone(), patches };
        let is_live = feed.state.0 == FeedState::Live;
        self.show(key, update);
        if !is_live {
            self.show_state(key);
        }
        true
    }

    /// News for the node's own subscribers.
    pub(super) fn show(&mut self, key: &Key, update: FeedUpdate) {
        let Some(feed) = self.feeds.get_mut(key).filter(|feed| feed.is_wanted) else { return };
        if let FeedUpdate::At { position, .. } = &update {
            feed.shown = Some(*position);
        }
        self.outputs.push_back(Output::Plane(key.clone(), update));
    }

    pub(super) fn show_state(&mut self, key: &Key) {
        let Some(feed) = self.feeds.get(key) else { return };
        let (state, reason) = feed.state.clone();
        let is_over = state == FeedState::NotFound && !feed.is_fetched();
        self.show(key, FeedUpdate::State { state, reason });
        if is_over {
            self.forget_shown(key);
        }
    }

    /// Nothing was pushed to a key. Its subscribers wait for the first document if the configuration says that there will be one.
    pub(super) fn show_absence(&mut self, key: &Key) {
        if self.feeds.get(key).is_some_and(|feed| feed.source == FeedSource::Unknown) {
            let (state, reason) = (FeedState::NotFound, "no document was pushed to this key".into());
            self.show(key, FeedUpdate::State { state, reason });
            self.forget_shown(key);
        }
    }

    /// The core is to ask again for whom subscribes from now on.
    fn forget_shown(&mut self, key: &Key) {
        self.show(key, FeedUpdate::Forget);
        if let Some(feed) = self.feeds.get_mut(key) {
            feed.shown = None;
        }
    }
}
