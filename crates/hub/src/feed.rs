//! Feeds at their home core: news from the control plane, and who wants which key.
//!
//! **Invariants.** Whether a key is wanted is a level: it is reported when it differs from what was reported
//! last, by the home core only. What is known of a feed stays until the control plane has forgotten it *and*
//! nobody is subscribed, in whichever order that comes about.

use crate::dispatch::Emit;
use crate::publication::{Body, Document, FeedState};
use crate::session::Encoder;
use crate::shard::Hub;
use crate::topic::{Key, Topic};
use std::sync::Arc;

impl<E: Encoder> Hub<E> {
    /// A feed has a new version. To be called on the home core of the key only. A document that is the
    /// same, byte for byte, is no new version, but may change the feed's state. Where nobody is subscribed
    /// and this core knows too many topics already, nothing is kept.
    pub fn handle_document(&mut self, key: &Key, state: FeedState, document: Document) {
        let Some(index) = self.feed_at_home(key) else { return };
        let Some(topic) = self.topics.at_mut(index) else { return };
        let newest = topic.current.snapshot.as_ref().map(|p| p.body());
        if matches!(newest, Some(Body::Snapshot { document: last, .. }) if **last == document) {
            self.handle_state(key, state, Arc::from(""));
            return;
        }
        topic.forgotten = false;
        let Some(position) = self.topics.next_position(index) else { return };
        let body = Body::Snapshot { key: key.clone(), position, state, document: Arc::new(document) };
        self.news(index, body);
    }

    /// A feed's state changed. To be called on the home core of the key only. The same state for the same
    /// reason is no change. `Lost` ends all its subscriptions after they were told
    /// ([`Hub::poll_notice`](crate::Hub::poll_notice)).
    pub fn handle_state(&mut self, key: &Key, state: FeedState, reason: Arc<str>) {
        let Some(index) = self.feed_at_home(key) else { return };
        let Some(topic) = self.topics.at_mut(index) else { return };
        topic.forgotten = false;
        let known = topic.current.state.as_ref().map(|p| p.body());
        let same = topic.current.feed_state() == state
            && match known {
                Some(Body::State { reason: last, .. }) => *last == reason || reason.is_empty(),
                _ => state == FeedState::Live || reason.is_empty(),
            };
        if !same {
            self.news(index, Body::State { key: key.clone(), state, reason });
        }
        self.topics.remove_if_idle(index);
    }

    /// The control plane doesn't keep the feed any more. To be called on its home core only. If somebody is
    /// subscribed, or comes before control is told, what is known stays until they have gone: or for longer,
    /// if the control plane is told that the key is wanted, and so keeps it again.
    pub fn handle_forget(&mut self, key: &Key) {
        let Some(index) = self.topics.find(&Topic::Feed(key.clone())) else { return };
        if let Some(topic) = self.topics.at_mut(index) {
            topic.forgotten = true;
        }
        self.settle(index);
    }

    /// The next key for which it changed whether anybody wants it.
    pub fn poll_wanted(&mut self) -> Option<(Key, bool)> {
        while let Some(key) = self.wanted_dirty.pop_front() {
            let index = self.topics.find(&Topic::Feed(key.clone()));
            let mut wanted = false;
            if let Some(topic) = index.and_then(|index| self.topics.at_mut(index)) {
                wanted = !topic.members.is_empty() || !topic.interested.is_empty();
                topic.reporting = false;
                if wanted && !self.wanted_reported.contains(&key) {
                    topic.forgotten = false;
                }
            }
            let changed = if wanted {
                self.wanted_reported.insert(key.clone())
            } else {
                self.wanted_reported.remove(&key)
            };
            if changed {
                return Some((key, wanted));
            }
        }
        None
    }

    /// Whether anybody wants the feed may have changed.
    pub(crate) fn wanted_changed(&mut self, index: u32) {
        let Some(state) = self.topics.at_mut(index) else { return };
        if let Topic::Feed(key) = &state.topic
            && state.home == Some(self.core)
            && !state.reporting
        {
            state.reporting = true;
            self.wanted_dirty.push_back(key.clone());
        }
    }

    fn news(&mut self, index: u32, body: Body) {
        let publication = self.make(body, false);
        if let Some(topic) = self.topics.at_mut(index) {
            topic.current.apply(&publication);
        }
        self.spread(index, &publication, &Emit::default());
    }

    fn feed_at_home(&mut self, key: &Key) -> Option<u32> {
        let topic = Topic::Feed(key.clone());
        debug_assert_eq!(self.topics.core_of(&topic), self.core, "not the home core of {key}");
        self.topics
            .find_or_insert(&topic)
            .filter(|index| self.topics.at(*index).is_some_and(|state| state.home == Some(self.core)))
    }
}
