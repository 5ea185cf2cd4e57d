//! The path of a publication: the assignment of its position, and its delivery to members on all cores.
//!
//! A *feed*, and a room with configured history, has a **home core**, selected by the topic's hash. All of
//! its publications go to the home core first, get offset and epoch there, and leave in one order for all
//! cores:
//!
//! ```text
//! control ──► home core ──┬──► its own members
//!                         └──► each interested core ──► its members
//! ```
//!
//! A *plain room* has no home core. A core delivers a publication to its own members at once, then sends it
//! to each core that has registered interest, first in, first out: one order per publisher.
//!
//! A publication to *several rooms* takes the same path, once to each core that has registered interest in
//! any of the rooms. Only the home core knows which cores have members of a room with history. If such a room
//! is among them, the publication goes to all cores. Each core applies the exceptions to its own sessions,
//! because it knows all of their memberships.

use crate::dispatch::{CoreSet, Current, Dispatch, Emit};
use crate::encoder::Encoder;
use crate::history::Replay;
use crate::notice::Notice;
use crate::presence::Absence;
use crate::publication::{Body, Data, FeedState, Position, Publication};
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::subscription::{Flags, Member};
use crate::topic::{Room, Rooms, Topic};
use crate::version_lag::UNKNOWN;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

impl<E: Encoder> Hub<E> {
    /// Publishes a message to a room, from this core. In a room with history, a volatile message gets no
    /// position and isn't kept; with `external_positions`, this holds for every message. No message is kept
    /// if the room has no members and the home core has too many topics.
    pub fn handle_publish(
        &mut self,
        now: Instant,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        options: Emit,
    ) {
        let topic = Topic::Room(room.clone());
        let found = match self.topics.home_of(&topic) {
            Some(home) if home != self.core => {
                self.outgoing.push(home, Dispatch::Submit { room: room.clone(), event, data, options });
                return;
            }
            Some(_) => self.topics.find_or_insert(&topic),
            None => self.topics.find(&topic),
        };
        let Some(index) = found else { return };
        // A volatile message gets no position, so that offsets have no gaps.
        let position = if options.volatile { None } else { self.topics.next_position(index) };
        let body = Body::Message { room: room.clone(), event, data, position };
        let publication = self.make(body, options.volatile, options.id);
        if position.is_some() {
            self.topics.remember(now, index, &publication);
        }
        self.broadcast(now, index, &publication, &options);
        self.topics.remove_if_idle(index);
    }

    /// Publishes a message to the members of one room or of several, from this core. Each session receives it
    /// once. It is one publication, and reaches each core once. For one room it is the same as
    /// [`Hub::handle_publish`].
    ///
    /// Rooms with history don't keep a message to several rooms: it has no position, and no order relative to
    /// their own messages. For a member of several of the rooms, the policy of the first room counts.
    pub fn handle_emit(
        &mut self,
        now: Instant,
        rooms: &Rooms,
        event: Option<Arc<str>>,
        data: Data,
        options: Emit,
    ) {
        if let Some(room) = rooms.only() {
            return self.handle_publish(now, room, event, data, options);
        }
        let mut cores = CoreSet::default();
        let mut has_members = false;
        for room in rooms.iter() {
            let topic = Topic::Room(room.clone());
            if self.topics.home_of(&topic).is_some() {
                (0..self.topics.options.cores).for_each(|core| cores.set(core, true));
            }
            if let Some(state) = self.topics.find(&topic).and_then(|index| self.topics.at(index)) {
                cores.add(&state.interested);
                has_members |= !state.members.is_empty();
            }
        }
        cores.set(self.core, false);
        if cores.is_empty() && !has_members {
            return;
        }
        let body = Body::Message { room: rooms.first().clone(), event, data, position: None };
        let publication = self.make(body, options.volatile, options.id);
        for core in cores.iter() {
            let (rooms, publication, options) = (rooms.clone(), publication.clone(), options.clone());
            self.outgoing.push(core, Dispatch::PublishToSeveral(rooms, publication, options));
        }
        self.deliver_to_several(now, rooms, &publication, &options);
    }

    /// Sends a message to sessions of this core, in order with their other deliveries, under
    /// [`Policy::Queue`](crate::Policy::Queue). Unlike with [`Hub::handle_send`], it is never kept for recovery, and it is one
    /// publication for all of the sessions. `room` needn't have members.
    pub fn handle_send_to_all(
        &mut self,
        sessions: impl IntoIterator<Item = SessionId>,
        room: &Room,
        data: Data,
        volatile: bool,
    ) {
        let body = Body::Message { room: room.clone(), event: None, data, position: None };
        // A volatile publication isn't recoverable.
        let publication = self.make(body, true, None);
        let members: Vec<Member> =
            sessions.into_iter().filter_map(|session| self.sessions.direct(session)).collect();
        self.sessions.fan_out(&members, &publication, volatile, None);
    }

    /// Sends a message to the other interested cores and delivers it to this core's members of a room.
    pub(crate) fn broadcast(
        &mut self,
        now: Instant,
        index: u32,
        publication: &Arc<Publication<E::Frame>>,
        options: &Emit,
    ) {
        self.log(now, &[index], publication, options);
        self.relay(index, publication, options);
        self.deliver(index, publication, options);
    }

    /// Sends a message to the other interested cores.
    pub(crate) fn relay(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>, options: &Emit) {
        let Some(state) = self.topics.at(index) else { return };
        for core in state.interested.iter() {
            let (topic, publication, options) = (state.topic.clone(), publication.clone(), options.clone());
            self.outgoing.push(core, Dispatch::Publish(topic, publication, options));
        }
    }

    /// Handles another core's publication.
    pub(crate) fn handle_broadcast(
        &mut self,
        now: Instant,
        topic: &Topic,
        publication: &Arc<Publication<E::Frame>>,
        options: &Emit,
    ) {
        let Some(index) = self.topics.find(topic) else { return };
        let Some(state) = self.topics.at_mut(index) else { return };
        if state.home().is_some() {
            // The publication was in transit when this core left. If the core has joined again since, the
            // answer to its `Join` includes the publication.
            if !state.joined {
                return;
            }
            if let Topic::Feed(_) = topic {
                let step = state.apply(publication);
                return self.deliver_version(index, publication, step);
            }
        }
        self.log(now, &[index], publication, options);
        self.deliver(index, publication, options);
    }

    /// Delivers a message or a state to this core's members of a topic.
    pub(crate) fn deliver(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>, options: &Emit) {
        if !options.has_no_exceptions() {
            return self.deliver_except(index, publication, options);
        }
        if self.awaited_by(index, publication) {
            return self.deliver_to_recipients(&[index], publication, options);
        }
        let Some(state) = self.topics.at(index) else { return };
        options.count(state.members.len());
        self.sessions.fan_out(&state.members, publication, options.volatile, None);
        if let Body::State { key, state: FeedState::NotFound, .. } = publication.body() {
            let had_members = !state.members.is_empty();
            for member in self.topics.take_members(index) {
                self.sessions.detach(member);
                self.awaiting.set(index, member, None);
                let session = self.sessions.id_of(member);
                self.push_notice(Notice::NotFound { session, key: key.clone() });
            }
            if had_members {
                self.unattended(index);
            }
            self.release_if_unused(index);
        }
    }

    /// Delivers a message to this core's members of a room, with exceptions.
    fn deliver_except(&mut self, index: u32, publication: &Arc<Publication<E::Frame>>, options: &Emit) {
        let mut sessions = options.excepted_sessions(self.core).filter(|s| self.sessions.alive(*s).is_some());
        match (sessions.next(), sessions.next()) {
            // The most common case: all members except the sender.
            (one, None) if options.excepted_rooms().is_empty() && !self.awaited_by(index, publication) => {
                let Some(state) = self.topics.at(index) else { return };
                let member = one.and_then(|session| self.subscription_to(session, index));
                let is_member = member.is_some_and(|member| !self.sessions.is_pending(member));
                options.count(state.members.len() - usize::from(is_member));
                let one = one.map(|session| session.index);
                self.sessions.fan_out(&state.members, publication, options.volatile, one);
            }
            _ => self.deliver_to_recipients(&[index], publication, options),
        }
    }

    /// Delivers a message to this core's members of several rooms.
    pub(crate) fn deliver_to_several(
        &mut self,
        now: Instant,
        rooms: &Rooms,
        publication: &Arc<Publication<E::Frame>>,
        options: &Emit,
    ) {
        let found = rooms.iter().filter_map(|room| self.topics.find(&Topic::Room(room.clone())));
        let found: SmallVec<[u32; 4]> = found.collect();
        self.log(now, &found, publication, options);
        self.deliver_to_recipients(&found, publication, options);
    }

    /// Returns `true` if members of a room wait for its history, which includes this message.
    fn awaited_by(&self, index: u32, publication: &Publication<E::Frame>) -> bool {
        !self.awaiting.is_empty()
            && publication.position().is_some()
            && self.awaiting.of(index).next().is_some()
    }

    fn deliver_to_recipients(
        &mut self,
        topics: &[u32],
        publication: &Arc<Publication<E::Frame>>,
        options: &Emit,
    ) {
        self.recipients.clear();
        for session in options.excepted_sessions(self.core) {
            if self.sessions.alive(session).is_some() {
                self.recipients.exclude(session.index);
            }
        }
        let members = |index: u32| self.topics.at(index).map_or(&[][..], |state| &state.members);
        for index in self.excepted_topics(options) {
            members(index).iter().for_each(|member| self.recipients.exclude(member.session));
        }
        for index in topics {
            if self.awaited_by(*index, publication) {
                self.awaiting.of(*index).for_each(|(member, _)| self.recipients.exclude(member.session));
            }
            self.recipients.add(members(*index));
        }
        options.count(self.recipients.members().len());
        self.sessions.fan_out(self.recipients.members(), publication, options.volatile, None);
    }

    /// Returns the excepted rooms that have members on this core.
    fn excepted_topics(&self, options: &Emit) -> Box<[u32]> {
        let rooms = options.excepted_rooms().iter();
        rooms.filter_map(|room| self.topics.find(&Topic::Room(room.clone()))).collect()
    }

    /// Logs a message for sessions that resume, before it is delivered to members of these topics.
    fn log(
        &mut self,
        now: Instant,
        topics: &[u32],
        publication: &Arc<Publication<E::Frame>>,
        options: &Emit,
    ) {
        if !publication.is_recoverable() {
            return;
        }
        let has_members = |index: &u32| self.topics.at(*index).is_some_and(|state| !state.members.is_empty());
        let topics: SmallVec<[u32; 4]> = topics.iter().copied().filter(has_members).collect();
        if !topics.is_empty() {
            let except_topics = self.excepted_topics(options);
            self.sessions.log.push(now, publication, &topics, except_topics, &options.except, None);
        }
    }

    /// Returns the messages after `since` in a room, as far as this core knows them.
    pub(crate) fn history_since(&mut self, index: u32, since: Option<Position>) -> Replay<E::Frame> {
        let replay = match (self.topics.at(index), since) {
            // A plain room has no history, hence no positions.
            (Some(state), Some(since)) if state.home().is_some() => state.since(since),
            _ => Replay::Messages(Vec::new()),
        };
        match replay {
            // The client may have the position from a node that has received more messages.
            Replay::Unplaced if self.topics.options.external_positions => {
                self.to_confirm.insert(index);
                Replay::Unknown
            }
            replay => replay,
        }
    }

    /// Sends a new member the publications after `since`, as far as this core knows them.
    pub(crate) fn replay(&mut self, member: Member, index: u32, since: Option<Position>) {
        match self.topics.at(index).map(|state| &state.topic) {
            Some(Topic::Feed(_)) => self.deliver_feed(member, index, since, false),
            Some(Topic::Presence(_)) => {}
            Some(Topic::Room(_)) => {
                let replay = self.history_since(index, since);
                self.deliver_history(member, index, since, replay);
            }
            None => {}
        }
    }

    /// Sends a member of a feed the patches or the document that lead from the client's version to the newest
    /// one, as far as this core knows them. `is_confirmed` is `true` if the engine had no newer version than
    /// this core when it was read after the client named its version.
    pub(crate) fn deliver_feed(
        &mut self,
        member: Member,
        index: u32,
        since: Option<Position>,
        is_confirmed: bool,
    ) {
        let Some(state) = self.topics.at(index) else { return };
        // With other nodes (`reports_rooms`), the client's version may be newer than this core's.
        let Some(current) = state.current() else { return };
        let may_have = self.sessions.subscription(member).flags.has(Flags::MAY_HAVE);
        let limit = self.awaiting.since(index, member).filter(|_| may_have);
        let may_have = may_have && (is_confirmed || since.is_none() || since == limit);
        let since = since.or(limit);
        let is_ahead = self.topics.options.reports_rooms && current.is_before(since);
        // Only the engine knows which of two epochs is newer.
        let is_unplaced =
            self.topics.options.external_positions && !is_confirmed && current.is_of_other_epoch(since);
        // This core knows no newer version, so the next version or the engine's answer decides.
        let behind = match is_ahead || is_unplaced {
            true => 0,
            false if may_have => UNKNOWN,
            false => current.behind(since),
        };
        // Another node may have the document, and the client's version may be one of that node's.
        let waits =
            self.topics.options.reports_rooms && (current.snapshot.is_none() || is_ahead || is_unplaced);
        self.awaiting.set(index, member, since.filter(|_| waits));
        if is_unplaced && !self.awaiting.has_asked(index, member) {
            self.to_confirm.insert(index);
        }
        let flags = &mut self.sessions.subscription_mut(member).flags;
        flags.set(Flags::RESUMES, since.is_some() && behind > 0 && !may_have);
        flags.set(Flags::MAY_HAVE, may_have && waits);
        self.deliver_current(member, index, behind);
    }

    /// Sends a member of a feed the newest document if the member is behind, and the feed's state.
    pub(crate) fn deliver_current(&mut self, member: Member, index: u32, behind: u16) {
        let Some(current) = self.topics.at(index).and_then(|state| state.current()) else { return };
        let Current { snapshot, state } = current.clone();
        self.sessions.begin(member, behind);
        match snapshot.filter(|_| behind > 0) {
            Some(snapshot) => self.sessions.enqueue_newest(member, &snapshot, behind),
            None => self.sessions.subscription_mut(member).behind = behind,
        }
        if let Some(state) = state {
            self.sessions.replay(member, &state);
            if let Body::State { key, state: FeedState::NotFound, .. } = state.body() {
                let session = self.sessions.id_of(member);
                self.leave(member, Absence::Unsubscribed);
                self.push_notice(Notice::NotFound { session, key: key.clone() });
            }
        }
    }

    /// Sends a new member of a room the missed messages.
    pub(crate) fn deliver_history(
        &mut self,
        member: Member,
        index: u32,
        since: Option<Position>,
        replay: Replay<E::Frame>,
    ) {
        let waits = matches!(replay, Replay::Unknown);
        self.awaiting.set(index, member, since.filter(|_| waits));
        let missed = match replay {
            Replay::Unknown => return,
            // A history that exceeds the send buffer would end the session, and again after each reconnect.
            Replay::Messages(missed) if self.sessions.fits(member, &missed) => missed,
            Replay::Messages(_) | Replay::Expired | Replay::Unplaced => return self.push_gap(member, index),
        };
        for publication in &missed {
            self.sessions.replay(member, publication);
        }
        // Replayed messages have no particular place in the log, or aren't in it at all.
        if !missed.is_empty() {
            self.sessions.reorder(member.session);
        }
    }

    /// Notifies a member of a room that it missed publications.
    pub(crate) fn push_gap(&mut self, member: Member, index: u32) {
        let Some(topic) = self.topics.at(index).map(|state| state.topic.clone()) else { return };
        self.push_notice(Notice::Gap { session: self.sessions.id_of(member), topic });
    }

    /// Queues a notice.
    pub(crate) fn push_notice(&mut self, notice: Notice) {
        let room = match &notice {
            Notice::Gap { topic, .. } => self.topics.find(topic),
            Notice::NotFound { .. } | Notice::Refused { .. } => None,
        };
        self.sessions.notices.push(notice, room);
    }

    /// Takes the next gap notice for a session. The caller notifies the client before it sends anything else.
    pub fn take_gap(&mut self, session: SessionId) -> Option<Notice> {
        self.sessions.take_gap(session)
    }
}
