//! What becomes of a publication: it gets its place, and reaches members here and elsewhere.
//!
//! A *feed*, and a room with configured history, has a **home core**, found by hashing the topic. All its
//! publications go there first, get offset and epoch, and leave in one order for all:
//!
//! ```text
//! control ──► home core ──┬──► its own members
//!                         └──► each interested core ──► its members
//! ```
//!
//! A *plain room* has no home. What a core publishes goes to its own members at once and then to each core
//! that has registered interest, first in first out: one order per publisher.

use crate::dispatch::{Dispatch, Emit};
use crate::publication::{Body, Data, FeedState, Position, Publication};
use crate::session::{Encoder, Member, NO_TOPIC};
use crate::shard::{Hub, Notice};
use crate::topic::{Room, Topic};
use std::sync::Arc;
use std::time::Instant;

impl<E: Encoder> Hub<E> {
    pub(crate) fn publish(
        &mut self,
        now: Instant,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
    ) {
        let topic = Topic::Room(room.clone());
        let found = match self.topics.home_of(&topic) {
            Some(home) if home != self.core => {
                self.outgoing[home].push_back(Dispatch::Submit { room: room.clone(), event, data, how });
                return;
            }
            Some(_) => self.topics.find_or_insert(&topic),
            None => self.topics.find(&topic),
        };
        let Some(index) = found else { return };
        // What is volatile is worth nothing later: it gets no place, so that offsets stay without gaps.
        let position = if how.volatile { None } else { self.topics.next_position(index) };
        let body = Body::Message { room: room.clone(), event, data, position };
        let publication = Publication::new(body, &self.live);
        if let Some(position) = position {
            self.topics.remember(now, index, position.offset, &publication);
        }
        self.spread(index, &publication, how);
        self.topics.remove_if_idle(index);
    }

    /// To the other interested cores and to this core's members.
    pub(crate) fn spread(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>, how: Emit) {
        let Some(state) = self.topics.at(index) else { return };
        for core in state.interested.iter() {
            let (topic, publication) = (state.topic.clone(), publication.clone());
            self.outgoing[core].push_back(Dispatch::Publish { topic, publication, how });
        }
        self.deliver(index, publication, how);
    }

    /// Another core has spread a publication.
    pub(crate) fn handle_spread(
        &mut self,
        topic: &Topic,
        publication: &Arc<Publication<E::Frame>>,
        how: Emit,
    ) {
        let Some(index) = self.topics.find(topic) else { return };
        let Some(state) = self.topics.at_mut(index) else { return };
        if state.home.is_some() {
            // What was on its way when this core left. If it has come back since, the answer to its `Join`
            // carries it.
            if !state.joined {
                return;
            }
            state.current.apply(publication);
        }
        self.deliver(index, publication, how);
    }

    fn deliver(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>, how: Emit) {
        let Some(state) = self.topics.at_mut(index) else { return };
        let except = how.except.filter(|(core, _)| *core == self.core).map(|(_, session)| session);
        let except = except.filter(|session| self.sessions.alive(*session).is_some()).map(|s| s.index);
        self.sessions.fan_out(&state.members, publication, how.volatile, except);
        if let Body::State { key, state: FeedState::Lost, .. } = publication.body() {
            for member in std::mem::take(&mut state.members) {
                self.sessions.subscription_mut(member).topic = NO_TOPIC;
                let session = self.sessions.id_of(member);
                self.notices.push_back(Notice::Lost { session, key: key.clone() });
            }
            self.settle(index);
        }
    }

    /// What a session with `since` is owed of a topic now, as far as this core knows; `None` where the past
    /// doesn't reach back so far.
    pub(crate) fn owed_since(
        &self,
        index: u32,
        since: Option<Position>,
    ) -> Option<Vec<Arc<Publication<E::Frame>>>> {
        let Some(state) = self.topics.at(index) else { return Some(Vec::new()) };
        match (&state.topic, since) {
            (Topic::Feed(_), _) => {
                let has = |p: &Arc<Publication<_>>| matches!(p.body(), Body::Snapshot { position, .. } if Some(*position) == since);
                let newest = state.current.snapshot.iter().filter(|p| !has(p));
                Some(newest.chain(&state.current.state).cloned().collect())
            }
            (Topic::Room(_), Some(since)) => {
                // A plain room has no past, and no place in it that a client could know.
                if state.home.is_some() { state.after(since) } else { Some(Vec::new()) }
            }
            (Topic::Room(_), None) => Some(Vec::new()),
        }
    }

    /// Owes a new member what it is due from the past, as far as this core knows.
    pub(crate) fn replay(&mut self, member: Member, index: u32, since: Option<Position>) {
        let owed = self.owed_since(index, since);
        self.owe(member, index, owed);
    }

    /// Owes a new member what it is due from the past.
    pub(crate) fn owe(&mut self, member: Member, index: u32, owed: Option<Vec<Arc<Publication<E::Frame>>>>) {
        let Some(topic) = self.topics.at(index).map(|state| state.topic.clone()) else { return };
        let session = self.sessions.id_of(member);
        let is_room = matches!(topic, Topic::Room(_));
        // A past that doesn't fit would end the session, and again when it has come back for the same.
        let owed = owed.filter(|owed| !is_room || self.sessions.fits(member, owed));
        let Some(owed) = owed else {
            self.notices.push_back(Notice::Gap { session, topic });
            return;
        };
        for publication in &owed {
            self.sessions.fan_out(&[member], publication, false, None);
            if let Body::State { key, state: FeedState::Lost, .. } = publication.body() {
                self.leave(member);
                self.notices.push_back(Notice::Lost { session, key: key.clone() });
            }
        }
    }
}
