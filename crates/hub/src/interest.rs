//! Interest: the cores that have members of each topic. Members join and leave, cores register interest and
//! follow the home cores of topics.
//!
//! In a *plain room*, a core notifies all others (`Interest`) when its first member joins and when its last
//! one leaves. Interest is a state, not an event: a change that is undone before it was sent isn't sent
//! ([`crate::outgoing`]). Every core therefore knows whether the process has members. The core that the room's
//! hash selects reports this to other nodes ([`Hub::poll_subscribed`]). A topic with a home core is reported by
//! its home core.
//!
//! In a topic with a *home core*, a core sends `Join` for each session that subscribes before the core
//! follows the topic, or that requests history. The answer `Joined` marks the exact position in the home
//! core's stream from which on the core receives all publications. It carries the publications that the
//! session missed up to that position. No publication is lost or duplicated between the history and the stream.
//!
//! ```text
//!                        Join ──►                       Leave ──►
//!   unknown ──────────► asking ──────────► following ──────────► unknown
//!      ▲                  │     ◄── Joined     (when the last member has left
//!      └──────────────────┘                    and no answer is outstanding)
//!               ◄── Refused
//! ```
//!
//! **Invariants.** Between any two cores messages are first in, first out, so answers come in the order of
//! the requests. A subscription knows the number of its own request, so an answer to a session that has left
//! and joined again isn't matched with the newer request. A core that waits for an answer doesn't leave. A
//! core is in `interested` of a home topic from the home core's answer to its `Join` or `Prepare` until its
//! `Leave`.

use crate::dispatch::{CoreId, Current, Dispatch};
use crate::encoder::Encoder;
use crate::history::Replay;
use crate::notice::Requester;
use crate::notice::{Notice, SubscribeError};
use crate::presence::Absence;
use crate::publication::Position;
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::subscription::{Flags, Member};
use crate::topic::Topic;
use crate::topics::{Members, Reported};
use std::time::Instant;

impl<E: Encoder> Hub<E> {
    /// Handles a message from another core's shard.
    pub fn handle_dispatch(&mut self, now: Instant, from: CoreId, dispatch: Dispatch<E::Frame>) {
        match dispatch {
            Dispatch::Interest { room, has_members } => {
                self.handle_interest(from, Topic::Room(room), has_members)
            }
            Dispatch::Join { topic, session, source, since } => {
                self.handle_join(from, topic, session, source, since);
            }
            Dispatch::Joined { topic, session, since, replay, current } => {
                self.outgoing.answered(from);
                self.handle_joined(&topic, session, since, replay, current);
            }
            Dispatch::Refused(topic, session) => {
                if session.is_some() {
                    self.outgoing.answered(from);
                }
                self.handle_refused(&topic, session);
                if let (None, Topic::Room(room)) = (session, &topic) {
                    self.outgoing.resend_interest(from, room);
                }
            }
            Dispatch::Leave(topic) => {
                let Some(index) = self.topics.find(&topic) else { return };
                if let Some(state) = self.topics.at_mut(index) {
                    state.interested.set(from, false);
                    state.forget_preparing(from);
                }
                self.release_if_unused(index);
            }
            Dispatch::Prepare(room, number) => self.handle_preparation(from, room, number),
            Dispatch::Prepared { room, number, is_followed } => {
                self.handle_prepared(&room, number, is_followed)
            }
            Dispatch::Publish(topic, publication, options) => {
                self.handle_broadcast(now, &topic, &publication, &options);
            }
            Dispatch::PublishToSeveral(rooms, publication, options) => {
                self.deliver_to_several(now, &rooms, &publication, &options);
            }
            Dispatch::Submit { room, event, data, options } => {
                self.handle_publish(now, &room, event, data, options)
            }
            Dispatch::History(room, history) => self.handle_awaited(&room, &history),
            Dispatch::Gap(room) => self.handle_gap(&room),
            Dispatch::Confirmed(key, read) => self.release_confirmed(&key, read),
            Dispatch::Presence(room, change) => self.handle_presence(now, room, change),
        }
    }

    /// Starts a subscription. The session becomes a member now, or when the home core has answered.
    pub(crate) fn join_topic(&mut self, member: Member, index: u32, since: Option<Position>) {
        let Some(state) = self.topics.at_mut(index) else { return };
        // A follower knows the newest document, but no history.
        let wants_past = since.is_some() && matches!(state.topic, Topic::Room(_));
        // If a feed has no document, the home core is notified of every requester.
        let is_cold = state.is_cold();
        // The home core already sends messages to a core that has prepared a room. An answer to `Join` might
        // arrive after one of them.
        state.joined |= state.homed.as_ref().is_some_and(|homed| homed.preparation.is_followed);
        match &mut state.homed {
            Some(homed) if homed.core != self.core && (!state.joined || wants_past || is_cold) => {
                homed.joins_sent = homed.joins_sent.wrapping_add(1);
                homed.joins_unanswered += 1;
                let home = homed.core;
                let subscription = self.sessions.subscription_mut(member);
                subscription.flags.set(Flags::PENDING, true);
                subscription.member = homed.joins_sent;
                let (topic, session) = (state.topic.clone(), self.sessions.id_of(member));
                let source = self.sessions.source_of(member);
                self.outgoing.push(home, Dispatch::Join { topic, session, source, since });
            }
            _ => {
                if let (Topic::Feed(key), true) = (&state.topic, is_cold) {
                    let session = self.sessions.id_of(member);
                    let source = self.sessions.source_of(member);
                    self.requesters.push_back((key.clone(), Requester { source, core: self.core, session }));
                }
                self.add_member(member, index);
                self.replay(member, index, since);
            }
        }
    }

    fn add_member(&mut self, member: Member, index: u32) {
        let Some(position) = self.topics.add_member(index, member) else { return };
        self.sessions.subscription_mut(member).member = position;
        self.sessions.log.join(member);
        let Some(state) = self.topics.at(index) else { return };
        let has_presence = state.has_presence;
        if state.members.len() == 1 {
            if state.home().is_none() {
                self.announce(index, true);
            }
            self.subscribers_changed(index);
        }
        if self.attendance.is_some() {
            let session = self.sessions.id_of(member);
            self.attended(index, session);
        }
        if has_presence {
            self.joined_visibly(member, index);
        }
    }

    /// Removes a subscription from its topic. `absence` is the reason. The caller removes its pending
    /// deliveries.
    pub(crate) fn leave(&mut self, member: Member, absence: Absence) {
        let subscription = self.sessions.subscription(member);
        let (index, position, pending) =
            (subscription.topic, subscription.member, subscription.flags.has(Flags::PENDING));
        // The subscription is detached first, so that a second call has no effect.
        self.sessions.detach(member);
        self.awaiting.set(index, member, None);
        let Some(state) = self.topics.at(index) else { return };
        let was_visible = state.has_presence && !pending;
        if !pending && let Some(moved) = self.topics.remove_member(index, position) {
            self.sessions.subscription_mut(moved).member = position;
        }
        if !pending && self.attendance.is_some() {
            self.unattended(index);
        }
        if was_visible {
            self.left_visibly(member, index, absence);
        }
        self.release_if_unused(index);
    }

    /// Removes a topic that is no longer needed, and notifies other cores that this core has no members left.
    /// Call it after members or interest may have ended.
    pub(crate) fn release_if_unused(&mut self, index: u32) {
        let Some(state) = self.topics.at_mut(index) else { return };
        if !state.members.is_empty() || state.is_joining() || state.is_held() {
            return;
        }
        match state.home() {
            None => {
                if state.joined {
                    self.announce(index, false);
                }
                self.subscribers_changed(index);
            }
            Some(home) if home != self.core => {
                state.forget_current();
                if std::mem::take(&mut state.joined) | state.end_preparation() {
                    self.outgoing.push(home, Dispatch::Leave(state.topic.clone()));
                }
            }
            Some(_) => {
                if state.forgotten && state.interested.is_empty() {
                    state.forget_current();
                    if state.reported == Reported::With {
                        state.reported = Reported::Dropped;
                    }
                    self.topics.account(index);
                }
            }
        }
        self.subscribers_changed(index);
        self.topics.remove_if_idle(index);
    }

    /// Notifies the other cores that this core has members in a plain room, or no longer has any.
    fn announce(&mut self, index: u32, has_members: bool) {
        let cores = self.topics.options.cores;
        let Some(state) = self.topics.at_mut(index) else { return };
        let Topic::Room(room) = &state.topic else { return };
        state.joined = has_members;
        for core in (0..cores).filter(|core| *core != self.core) {
            self.outgoing.set_level(core, room, has_members);
        }
    }

    fn handle_interest(&mut self, from: CoreId, topic: Topic, has_members: bool) {
        let index = if has_members { self.topics.find_or_insert(&topic) } else { self.topics.find(&topic) };
        if let Some(index) = index {
            if let Some(state) = self.topics.at_mut(index) {
                state.interested.set(from, has_members);
            }
            self.release_if_unused(index);
        } else if has_members {
            self.outgoing.push(from, Dispatch::Refused(topic, None));
        }
    }

    fn handle_join(
        &mut self,
        from: CoreId,
        topic: Topic,
        session: SessionId,
        source: u64,
        since: Option<Position>,
    ) {
        let Some(index) = self.topics.find_or_insert(&topic) else {
            self.outgoing.push(from, Dispatch::Refused(topic, Some(session)));
            return;
        };
        // A core that follows a feed knows as much of it as its home core, so this core decides what to send.
        let replay = match topic {
            Topic::Feed(_) | Topic::Presence(_) => Replay::Expired,
            Topic::Room(_) => self.history_since(index, since),
        };
        let Some(state) = self.topics.at_mut(index) else { return };
        state.interested.set(from, true);
        if let (Topic::Feed(key), true) = (&state.topic, state.is_cold()) {
            self.requesters.push_back((key.clone(), Requester { source, core: from, session }));
        }
        let current = state.current().cloned().unwrap_or_default();
        self.outgoing.push(from, Dispatch::Joined { topic, session, since, replay, current });
        self.subscribers_changed(index);
    }

    fn handle_joined(
        &mut self,
        topic: &Topic,
        session: SessionId,
        since: Option<Position>,
        replay: Replay<E::Frame>,
        current: Current<E::Frame>,
    ) {
        let Some((index, member)) = self.take_answer(topic, session) else { return };
        if let Some(state) = self.topics.at_mut(index)
            && !state.joined
        {
            state.joined = true;
            if let Some(homed) = &mut state.homed {
                homed.current = current;
            }
        }
        if let Some(member) = member {
            self.sessions.subscription_mut(member).flags.set(Flags::PENDING, false);
            self.add_member(member, index);
            match topic {
                Topic::Feed(_) => self.deliver_feed(member, index, since, false),
                Topic::Room(_) => self.deliver_history(member, index, since, replay),
                Topic::Presence(_) => {}
            }
        }
        self.release_if_unused(index);
    }

    fn handle_refused(&mut self, topic: &Topic, session: Option<SessionId>) {
        let (index, refused) = match session {
            Some(session) => {
                let Some((index, member)) = self.take_answer(topic, session) else { return };
                (index, Members::from_iter(member))
            }
            None => {
                let Some(index) = self.topics.find(topic) else { return };
                (index, self.topics.take_members(index))
            }
        };
        let had_members = session.is_none() && !refused.is_empty();
        for member in refused {
            if session.is_none() {
                self.left_visibly(member, index, Absence::Unsubscribed);
            }
            self.sessions.detach(member);
            let session = self.sessions.id_of(member);
            let reason = SubscribeError::TooManyTopics;
            self.push_notice(Notice::Refused { session, topic: topic.clone(), reason });
        }
        if had_members {
            self.unattended(index);
        }
        self.release_if_unused(index);
    }

    /// Matches the home core's answer with the oldest request for a topic. Returns the subscription that sent
    /// it, if it still waits.
    fn take_answer(&mut self, topic: &Topic, session: SessionId) -> Option<(u32, Option<Member>)> {
        let index = self.topics.find(topic)?;
        let homed = self.topics.at_mut(index)?.homed.as_mut().filter(|homed| homed.joins_unanswered > 0)?;
        let question = homed.joins_sent.wrapping_sub(homed.joins_unanswered).wrapping_add(1);
        homed.joins_unanswered -= 1;
        let member = self.sessions.find(session, index, &[], true).filter(|member| {
            let subscription = self.sessions.subscription(*member);
            subscription.flags.has(Flags::PENDING) && subscription.member == question
        });
        Some((index, member))
    }
}
