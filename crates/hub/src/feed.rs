//! Feeds at their home core: news from the control plane, and who wants which key.
//!
//! **Invariants.** Whether a key is wanted is a level: it is reported when it differs from what was reported
//! last, by the home core only. What is known of a feed stays until the control plane has forgotten it *and*
//! nobody is subscribed, in whichever order that comes about.

use crate::dispatch::Emit;
use crate::encoder::Encoder;
use crate::notice::{Notice, Requester, SubscribeError};
use crate::publication::{Body, Document, FeedState, Publication};
use crate::publication::{Patch, PatchHistory, StoredPatch};
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::topic::{Key, Topic};
use crate::topics::TopicState;
use std::sync::Arc;

impl<E: Encoder> Hub<E> {
    /// A feed has a new version, to which perhaps a patch leads. To be called on the home core of the key only. A
    /// document that is the same, byte for byte, is no new version, but may change the feed's state. Where nobody
    /// is subscribed and this core knows too many topics already, nothing is kept.
    ///
    /// A patch is used if it is for what this core knows as the newest version, both are JSON, and the feed is
    /// live.
    pub fn handle_document(&mut self, key: &Key, state: FeedState, document: Document, patch: Option<Patch>) {
        let Some(index) = self.home_feed(key) else { return };
        let Some(topic) = self.topics.at_mut(index) else { return };
        let newest = topic.current.snapshot.as_ref().map(|p| p.body());
        if matches!(newest, Some(Body::Snapshot { document: last, .. }) if **last == document) {
            self.handle_state(key, state, Arc::from(""));
            return;
        }
        topic.forgotten = false;
        let Some(position) = self.topics.next_position(index) else { return };
        let body = Body::Snapshot {
            key: key.clone(),
            position,
            state,
            snapshot_reason: None,
            document: Arc::new(document),
        };
        let publication = self.make_version(index, body, patch);
        self.publish_version(index, &publication);
        self.topics.account(index);
    }

    /// A new version of a feed at home, with what leads to it from earlier ones.
    fn make_version(&mut self, index: u32, body: Body, patch: Option<Patch>) -> Arc<Publication<E::Frame>> {
        let past = self.patches_including(index, &body, patch.as_ref());
        match (patch, past) {
            (Some(patch), Some(past)) => {
                Publication::with_patches(self.ids.draw(), body, patch.operations, past, &self.live)
            }
            _ => self.make(body, false),
        }
    }

    /// The patches that lead to a version; `None` where this one isn't for the version before.
    fn patches_including(&self, index: u32, body: &Body, patch: Option<&Patch>) -> Option<PatchHistory> {
        let Body::Snapshot { state: FeedState::Live, document, .. } = body else { return None };
        let before = self.topics.at(index)?.current.snapshot.as_ref()?;
        let Body::Snapshot { document: base, .. } = before.body() else { return None };
        let patch = patch.filter(|patch| {
            // Mostly the very same memory.
            let same = patch.base.as_ptr() == base.body.as_ptr() && patch.base.len() == base.body.len();
            base.json && document.json && (same || patch.base == base.body)
        })?;
        let step = StoredPatch::new(patch.operations.clone(), &self.live);
        let past = before.version().map(|version| version.past()).unwrap_or_default();
        Some(past.and(step, self.topics.patches.limits.patches_max, document.body.len()))
    }

    /// A feed's state changed. To be called on the home core of the key only. The same state for the same
    /// reason is no change. `NotFound` ends all its subscriptions after they were told
    /// ([`Hub::poll_notice`](crate::Hub::poll_notice)).
    pub fn handle_state(&mut self, key: &Key, state: FeedState, reason: Arc<str>) {
        let Some(index) = self.home_feed(key) else { return };
        let Some(topic) = self.topics.at_mut(index) else { return };
        topic.forgotten = false;
        let known = topic.current.state.as_ref().map(|p| p.body());
        let same = topic.current.feed_state() == state
            && match known {
                Some(Body::State { reason: last, .. }) => *last == reason || reason.is_empty(),
                _ => state == FeedState::Live || reason.is_empty(),
            };
        if !same {
            let publication = self.make(Body::State { key: key.clone(), state, reason }, false);
            self.publish_version(index, &publication);
            if state == FeedState::NotFound {
                self.topics.account(index);
            }
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
        self.release_if_unused(index);
    }

    /// The next key for which it changed whether anybody wants it. A key that control has forgotten meanwhile is told
    /// again: who wants it now isn't who was told what became of it.
    pub fn poll_subscribed(&mut self) -> Option<(Key, bool)> {
        while let Some(key) = self.changed_feeds.pop_front() {
            let index = self.topics.find(&Topic::Feed(key.clone()));
            let mut has_subscribers = false;
            if let Some(topic) = index.and_then(|index| self.topics.at_mut(index)) {
                has_subscribers = !topic.members.is_empty() || !topic.interested.is_empty();
                topic.reporting = false;
                if has_subscribers && self.reported_feeds.get(&key) != Some(&false) {
                    topic.forgotten = false;
                }
            }
            let changed = if has_subscribers {
                self.reported_feeds.insert(key.clone(), false) != Some(false)
            } else {
                self.reported_feeds.remove(&key).is_some()
            };
            if changed {
                return Some((key, has_subscribers));
            }
        }
        None
    }

    /// The next session that requests a feed for which its home core has no state. Call it after
    /// [`Hub::poll_subscribed`], which reports the key.
    pub fn poll_requester(&mut self) -> Option<(Key, Requester)> {
        while let Some((key, requester)) = self.requesters.pop_front() {
            let state = self.topics.find(&Topic::Feed(key.clone())).and_then(|index| self.topics.at(index));
            let still = |state: &TopicState<_>| {
                state.is_cold() && !(state.members.is_empty() && state.interested.is_empty())
            };
            if state.is_some_and(still) {
                return Some((key, requester));
            }
        }
        None
    }

    /// The control plane doesn't fetch a feed for a session of this core. If the feed still has no state, the
    /// subscription ends with [`Notice::Refused`].
    pub fn handle_refusal(&mut self, session: SessionId, key: &Key) {
        let topic = Topic::Feed(key.clone());
        let state = self.topics.find(&topic).and_then(|index| self.topics.at(index));
        if state.is_some_and(TopicState::is_cold) && self.handle_unsubscribe(session, &topic) {
            let reason = SubscribeError::TooManyColdKeys;
            self.notices.push_back(Notice::Refused { session, topic, reason });
        }
    }

    /// Whether anybody wants the feed may have changed.
    pub(crate) fn subscribers_changed(&mut self, index: u32) {
        let Some(state) = self.topics.at_mut(index) else { return };
        if let Topic::Feed(key) = &state.topic
            && state.home == Some(self.core)
            && !state.reporting
        {
            state.reporting = true;
            self.changed_feeds.push_back(key.clone());
        }
    }

    fn publish_version(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>) {
        if let Some(topic) = self.topics.at_mut(index) {
            topic.current.apply(publication);
        }
        self.broadcast(index, publication, &Emit::default());
    }

    fn home_feed(&mut self, key: &Key) -> Option<u32> {
        let topic = Topic::Feed(key.clone());
        debug_assert_eq!(self.topics.core_of(&topic), self.core, "not the home core of {key}");
        self.topics
            .find_or_insert(&topic)
            .filter(|index| self.topics.at(*index).is_some_and(|state| state.home == Some(self.core)))
    }
}
