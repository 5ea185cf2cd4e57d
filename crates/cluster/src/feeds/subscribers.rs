//! Updates for the node's own subscribers, and the list of their pushed documents.

use super::log::Newest;
use super::{Feeds, Output};
use bytes::Bytes;
use stentor_hub::{FeedState, Key};
use stentor_ports::{FeedInfo, FeedList, FeedSource, FeedUpdate, FeedsQuery};

impl Feeds {
    /// Lists the keys with pushed documents that have subscribers here, in their order. (The engine keeps the other pushed documents.)
    pub(crate) fn list_pushed(&self, query: &FeedsQuery) -> FeedList {
        let mut found: Vec<_> = self
            .feeds
            .iter()
            .filter(|(key, feed)| {
                !feed.is_fetched() && feed.local.is_wanted() && key.as_str().contains(&query.search)
            })
            .filter_map(|(key, feed)| Some((key, feed, feed.log.newest.as_ref()?)))
            .collect();
        let count = found.len();
        if count > query.limit {
            found.select_nth_unstable_by_key(query.limit, |(key, ..)| *key);
            found.truncate(query.limit);
        }
        found.sort_unstable_by_key(|(key, ..)| *key);
        let infos = found.into_iter().map(|(key, feed, newest)| FeedInfo {
            node: None,
            key: key.as_str().into(),
            state: feed.log.state.0.as_str().into(),
            document_bytes: newest.document.body.len(),
            is_subscribed: true,
            fetches: None,
        });
        FeedList::new(infos, count)
    }

    /// Sends the subscribers this node's newest version, unless they have it. Returns `true` if it was sent.
    pub(super) fn show_newest(&mut self, key: &Key, patches: Vec<Bytes>) -> bool {
        let Some(feed) = self.feeds.get(key).filter(|feed| feed.local.is_wanted()) else { return false };
        let shown = feed.local.shown();
        let newest = feed.log.newest.as_ref();
        let Some(Newest { position, document, .. }) =
            newest.filter(|newest| Some(newest.position) != shown && !newest.needs_epoch)
        else {
            return false;
        };
        let update = FeedUpdate::At { position: *position, document: document.clone(), patches };
        let is_live = feed.log.state.0 == FeedState::Live;
        self.show(key, update);
        if !is_live {
            self.show_state(key);
        }
        true
    }

    /// Sends the subscribers an update.
    pub(super) fn show(&mut self, key: &Key, update: FeedUpdate) {
        let Some(wanted) = self.feeds.get_mut(key).and_then(|feed| feed.local.subscribers_mut()) else {
            return;
        };
        if let FeedUpdate::At { position, .. } = &update {
            wanted.shown = Some(*position);
        }
        self.outputs.push_back(Output::Plane(key.clone(), update));
    }

    /// Sends the subscribers the feed's state.
    pub(super) fn show_state(&mut self, key: &Key) {
        let Some(feed) = self.feeds.get(key) else { return };
        let (state, reason) = feed.log.state.clone();
        let is_over = state == FeedState::NotFound && !feed.is_fetched();
        self.show(key, FeedUpdate::State { state, reason });
        if is_over {
            self.forget_shown(key);
        }
    }

    /// Notifies the subscribers of a key that no document was pushed to it. If the configuration says that the key is
    /// pushed, they wait for the first document instead.
    pub(super) fn show_absence(&mut self, key: &Key) {
        if self.feeds.get(key).is_some_and(|feed| feed.source == FeedSource::Unknown) {
            let (state, reason) = (FeedState::NotFound, "no document was pushed to this key".into());
            self.show(key, FeedUpdate::State { state, reason });
            self.forget_shown(key);
        }
    }

    /// Makes the core forget the version. The core asks again when a client subscribes.
    fn forget_shown(&mut self, key: &Key) {
        self.show(key, FeedUpdate::Forget);
        if let Some(wanted) = self.feeds.get_mut(key).and_then(|feed| feed.local.subscribers_mut()) {
            wanted.shown = None;
        }
    }
}
