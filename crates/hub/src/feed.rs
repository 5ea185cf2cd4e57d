//! Feeds at their home core: documents and states from the control plane, and reports of keys with
//! subscribers.
//!
//! **Invariants.** The home core reports whether a key has subscribers as a state: whenever it differs from
//! the last report. A feed's state is kept until the control plane has dropped the key *and* the last
//! subscriber has left, in either order.

use crate::dispatch::Emit;
use crate::encoder::Encoder;
use crate::key::Key;
use crate::notice::{Notice, Requester, SubscribeError};
use crate::publication::{Body, Document, FeedState, Patch, Position, Publication, StoredPatch};
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::topic::Topic;
use crate::topics::{Reported, TopicState, Topics};
use bytes::Bytes;
use std::sync::Arc;

impl<F> Topics<F> {
    /// Queues a topic for [`Self::poll_subscribed`]. It must not be queued already.
    fn report_subscribers(&mut self, index: u32) {
        if let Some(state) = self.at_mut(index) {
            state.reporting = true;
            let topic = state.topic.clone();
            self.changed.push_back(topic);
        }
    }

    fn poll_subscribed(&mut self) -> Option<(Topic, bool)> {
        while let Some(changed) = self.changed.pop_front() {
            let Some(index) = self.find(&changed) else { continue };
            let Some(topic) = self.at_mut(index) else { continue };
            let has_subscribers = topic.is_in_use();
            topic.reporting = false;
            let now = if has_subscribers { Reported::With } else { Reported::Without };
            if std::mem::replace(&mut topic.reported, now) == now {
                continue;
            }
            // Reporting subscribers doesn't clear `forgotten`. If the subscribers leave before the control
            // plane reads the report, the control plane never stores the key and never drops it again.
            if !has_subscribers {
                self.forget_external(index);
                self.remove_if_idle(index);
            }
            return Some((changed, has_subscribers));
        }
        None
    }
}

impl<E: Encoder> Hub<E> {
    /// Handles a new version of a feed, optionally with a patch. Call it on the key's home core only. A
    /// document with the same bytes is no new version, but may change the feed's state. The document isn't
    /// kept if the key has no subscribers and this core has too many topics.
    ///
    /// The patch is used if it applies to the newest version that this core knows, both versions are JSON,
    /// and the feed is live.
    pub fn handle_document(
        &mut self,
        key: &Key,
        state: FeedState,
        document: impl Into<Arc<Document>>,
        patch: Option<Patch>,
    ) {
        let document = document.into();
        let Some(index) = self.home_feed(key) else { return };
        let Some(topic) = self.topics.at_mut(index) else { return };
        topic.forgotten = false;
        let newest = topic.snapshot().map(|p| p.body());
        if matches!(newest, Some(Body::Snapshot { document: last, .. }) if *last == document) {
            self.handle_state(key, state, Arc::from(""));
            return;
        }
        let operations = patch.and_then(|patch| {
            let Some(Body::Snapshot { document: base, .. }) = newest else { return None };
            // The compared bytes are usually the same memory.
            let same = patch.base.as_ptr() == base.body.as_ptr() && patch.base.len() == base.body.len();
            (base.json && (same || patch.base == base.body)).then_some(patch.operations)
        });
        let Some(position) = self.topics.next_position(index) else { return };
        self.publish_document(index, position, state, document, operations.as_slice());
    }

    /// Handles a new version of a feed whose position another node has assigned. Call it on the key's home
    /// core only. `patches` lead to this version, oldest first; the last one applies to the previous version.
    /// Clients that reconnect to this node resume from the versions that the patches cover.
    ///
    /// A version that isn't newer than the newest one of the same epoch is ignored. Returns `true` if it was
    /// newer.
    pub fn handle_document_at(
        &mut self,
        key: &Key,
        position: Position,
        state: FeedState,
        document: impl Into<Arc<Document>>,
        patches: &[Bytes],
    ) -> bool {
        let Some(index) = self.home_feed(key) else { return false };
        let Some(topic) = self.topics.at_mut(index) else { return false };
        topic.forgotten = false;
        if topic.newest().is_some_and(|newest| newest.covers(position)) {
            return false;
        }
        topic.set_newest(position);
        self.publish_document(index, position, state, document.into(), patches);
        true
    }

    /// Publishes a new version of a feed with its home here, with the patches that lead to it.
    fn publish_document(
        &mut self,
        index: u32,
        position: Position,
        state: FeedState,
        document: Arc<Document>,
        patches: &[Bytes],
    ) {
        let Some(topic) = self.topics.at(index) else { return };
        let Topic::Feed(key) = &topic.topic else { return };
        // Patches only lead to live documents.
        let has_patches = !patches.is_empty() && state == FeedState::Live && document.json;
        let past = has_patches.then(|| {
            let before = topic.snapshot().filter(|before| {
                let before = before.position().map(|before| (before.epoch, before.offset + 1));
                patches.len() == 1 && before == Some((position.epoch, position.offset))
            });
            let past = before.and_then(|before| {
                // Otherwise, sessions or other cores have the previous version as well.
                let is_unused = Arc::strong_count(before) == 1;
                Some(before.version()?.past_for_next(is_unused))
            });
            let (mut last, mut past) = (None, past.unwrap_or_default());
            for operations in patches {
                let step = StoredPatch::new(operations, &self.topics.options.live);
                past.push(step.clone(), self.topics.patches.limits.patches_max, document.body.len());
                last = Some(step);
            }
            (last, past)
        });
        let key = key.clone();
        let body = Body::Snapshot { key, position, state, snapshot_reason: None, document };
        let publication = match past {
            Some((Some(step), past)) => Publication::with_patches(
                self.sessions.rates.now(),
                self.ids.draw(),
                body,
                step,
                past,
                &self.topics.options.live,
            ),
            _ => self.make(body, false, None),
        };
        self.publish_version(index, &publication);
        self.topics.account(index);
    }

    /// Handles a change of a feed's state. Call it on the key's home core only. The same state for the same
    /// reason is no change. `NotFound` notifies all subscribers and ends their subscriptions
    /// ([`Hub::poll_notice`](crate::Hub::poll_notice)).
    pub fn handle_state(&mut self, key: &Key, state: FeedState, reason: Arc<str>) {
        let Some(index) = self.home_feed(key) else { return };
        let Some(topic) = self.topics.at_mut(index) else { return };
        topic.forgotten = false;
        let Some(current) = topic.current() else { return };
        let known = current.state.as_ref().map(|p| p.body());
        let same = current.feed_state() == state
            && match known {
                Some(Body::State { reason: last, .. }) => *last == reason || reason.is_empty(),
                _ => state == FeedState::Live || reason.is_empty(),
            };
        if !same {
            let publication = self.make(Body::State { key: key.clone(), state, reason }, false, None);
            self.publish_version(index, &publication);
            if state == FeedState::NotFound {
                self.topics.account(index);
            }
        }
        self.topics.remove_if_idle(index);
    }

    /// Called when the control plane has dropped the feed. Call it on the key's home core only. If the feed
    /// has subscribers, its state is kept until they have left, or until the control plane keeps the key again
    /// and sends a document or a state.
    pub fn handle_forget(&mut self, key: &Key) {
        let Some(index) = self.topics.find(&Topic::Feed(key.clone())) else { return };
        if let Some(topic) = self.topics.at_mut(index) {
            topic.forgotten = true;
        }
        self.release_if_unused(index);
    }

    /// Returns the next topic that gained its first subscriber in this process or lost its last one: a feed,
    /// or with [`Options::reports_rooms`](crate::Options::reports_rooms) a room. The report is a state, not an
    /// event: a change that is undone before the call isn't reported. Each topic is reported by one core.
    ///
    /// If the control plane has dropped a feed since the last report, the feed is reported again, because the
    /// new subscribers don't know its state yet. With external positions, the hub forgets the history of a
    /// room when it reports that the last subscriber has left. Call [`Hub::handle_history`] after each report
    /// that a room has subscribers.
    pub fn poll_subscribed(&mut self) -> Option<(Topic, bool)> {
        self.topics.poll_subscribed()
    }

    /// Returns the next session that requests a feed for which its home core has no state. Call it after
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

    /// Called when the control plane doesn't fetch a feed for a session of this core. If the feed still has no
    /// state, the subscription ends with [`Notice::Refused`].
    pub fn handle_refusal(&mut self, session: SessionId, key: &Key) {
        let topic = Topic::Feed(key.clone());
        let state = self.topics.find(&topic).and_then(|index| self.topics.at(index));
        if state.is_some_and(TopicState::is_cold) && self.handle_unsubscribe(session, &topic) {
            let reason = SubscribeError::TooManyColdKeys;
            self.push_notice(Notice::Refused { session, topic, reason });
        }
    }

    /// Checks whether the number of subscribers has changed to or from 0.
    pub(crate) fn subscribers_changed(&mut self, index: u32) {
        let Some(state) = self.topics.at(index).filter(|state| !state.reporting) else { return };
        let is_reported = match &state.topic {
            Topic::Feed(_) => state.home() == Some(self.core),
            Topic::Room(_) => {
                self.topics.options.reports_rooms && self.topics.core_of(&state.topic) == self.core
            }
            Topic::Presence(room) => {
                if state.home() == Some(self.core) {
                    self.presence_subscribers_changed(room.clone());
                }
                return;
            }
        };
        if is_reported {
            self.topics.report_subscribers(index);
        }
    }

    fn publish_version(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>) {
        let Some(topic) = self.topics.at_mut(index) else { return };
        let step = topic.apply(publication);
        self.relay(index, publication, &Emit::default());
        self.deliver_version(index, publication, step);
    }

    /// Delivers to this core's members of a feed: a document that is `step` versions newer than the previous
    /// one, or a state.
    pub(crate) fn deliver_version(
        &mut self,
        index: u32,
        publication: &Arc<Publication<E::Frame>>,
        step: u16,
    ) {
        let Body::Snapshot { .. } = publication.body() else {
            return self.deliver(index, publication, &Emit::default());
        };
        let waits = (!self.awaiting.is_empty()).then(|| self.awaiting.of(index));
        let awaiting: Vec<_> = waits.into_iter().flatten().collect();
        let Some(state) = self.topics.at(index) else { return };
        if awaiting.is_empty() {
            return self.sessions.fan_out_document(&state.members, publication, step);
        }
        let mut others = state.members.clone();
        others.retain(|member| awaiting.binary_search_by_key(member, |(member, _)| *member).is_err());
        self.sessions.fan_out_document(&others, publication, step);
        for (member, since) in awaiting {
            self.deliver_feed(member, index, Some(since), false);
        }
    }

    fn home_feed(&mut self, key: &Key) -> Option<u32> {
        let topic = Topic::Feed(key.clone());
        debug_assert_eq!(self.topics.core_of(&topic), self.core, "not the home core of {key}");
        self.topics
            .find_or_insert(&topic)
            .filter(|index| self.topics.at(*index).is_some_and(|state| state.home() == Some(self.core)))
    }
}
