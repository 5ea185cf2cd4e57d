//! Feeds at their home core: documents and states from the control plane, and which keys have subscribers.
//!
//! **Invariants.** Whether a key has subscribers is a level: the home core reports it if it differs from the last
//! report. A feed's state is kept until the control plane has dropped the key *and* nobody is subscribed, in either
//! order.

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
    /// A feed has a new version, perhaps with a patch. Call it on the key's home core only. A document with the
    /// same bytes is no new version, but may change the feed's state. If the key has no subscribers and this core
    /// knows too many topics, nothing is kept.
    ///
    /// A patch is used if it applies to the newest version that this core knows, both are JSON, and the feed is
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

    /// The patches that lead to a version; `None` if its own patch doesn't apply to the version before.
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

    /// A feed's state changed. Call it on the key's home core only. The same state for the same reason is no
    /// change. `NotFound` notifies all subscribers and ends their subscriptions
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

    /// The control plane has dropped the feed. Call it on the key's home core only. If the feed has subscribers, or
    /// gets some before control is notified, its state is kept until they have left. It is kept for longer if
    /// control is notified that the key has subscribers, and so keeps it again.
    pub fn handle_forget(&mut self, key: &Key) {
        let Some(index) = self.topics.find(&Topic::Feed(key.clone())) else { return };
        if let Some(topic) = self.topics.at_mut(index) {
            topic.forgotten = true;
        }
        self.release_if_unused(index);
    }

    /// The next key that gained its first subscriber or lost its last one. If control has dropped the key since the
    /// last report, it is reported again: the new subscribers haven't been notified of the key's state.
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

    /// The number of subscribers may have changed to or from 0.
    pub(crate) fn subscribers_changed(&mut self, index: u32) {
        let Some(state) = self.topics.at(index).filter(|state| !state.reporting) else { return };
        match &state.topic {
            Topic::Feed(key) if state.home == Some(self.core) => self.changed_feeds.push_back(key.clone()),
            Topic::Room(room) if self.reports_rooms && self.topics.core_of(&state.topic) == self.core => {
                self.changed_rooms.push_back(room.clone());
            }
            Topic::Feed(_) | Topic::Room(_) => return,
        }
        if let Some(state) = self.topics.at_mut(index) {
            state.reporting = true;
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
