//! Sessions that move to another node of a cluster, together with the messages that their clients missed.
//!
//! ```text
//!   node that has the session                   node that its client has reached
//!   subscriptions_of ─────────────────────────► handle_open, handle_suspend, handle_subscribe
//!                                               messages of its rooms are logged from here on
//!   handle_departure: missed messages, ───────► handle_arrival: the messages missed there, then those
//!   ids of known messages of its rooms          missed here that the first node didn't have
//! ```
//!
//! A message has the same id on both nodes. The log of the second node has all messages since it joined the
//! rooms, so no message is lost in between if the first node has every message published before.

use crate::dispatch::Exceptions;
use crate::encoder::Encoder;
use crate::key::Key;
use crate::publication::{Body, Data, Position, Publication};
use crate::recovery::ResumeError;
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::subscription::{Flags, Member, NO_TOPIC, SubscribeOptions};
use crate::topic::{Room, Topic};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

/// Number of log entries before the first missed message whose ids [`Departure::known`] includes too: another
/// node may receive these messages later than this node did.
const KNOWN_BEFORE: u64 = 1_024;
/// Maximum number of ids in [`Departure::known`].
pub const KNOWN_MAX: usize = 16_384;

/// The messages that a session missed before it moves to another node.
pub struct Departure<F> {
    /// The missed messages in order. `true` marks a message to this session alone.
    pub missed: Vec<(Arc<Publication<F>>, bool)>,
    /// Ids of messages of the session's rooms that this node has delivered or logged.
    pub known: Vec<u64>,
}

/// A message that a session missed on another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedMessage {
    /// The message's id.
    pub id: u64,
    /// `true` if the message was sent to this session alone.
    pub is_direct: bool,
    /// The event's name, if it has one.
    pub event: Option<Arc<str>>,
    /// The content of the message.
    pub data: Data,
}

impl<E: Encoder> Hub<E> {
    /// Returns the topics of a session with the options of its subscriptions.
    pub fn subscriptions_of(&self, session: SessionId) -> Vec<(Topic, SubscribeOptions)> {
        let members = self.sessions.members(session);
        let subscriptions = members.filter_map(|member| {
            let subscription = self.sessions.subscription(member);
            let topic = (subscription.topic != NO_TOPIC).then(|| self.topics.at(subscription.topic))??;
            let options = SubscribeOptions {
                policy: subscription.policy,
                deltas: !subscription.flags.has(Flags::NO_DELTAS),
                interval: self.sessions.rates.interval(member),
            };
            Some((topic.topic.clone(), options))
        });
        subscriptions.collect()
    }

    /// Returns the newest version of each of a session's feeds that its client may have.
    pub fn feed_positions(&self, session: SessionId) -> Vec<(Key, Position)> {
        let members = self.sessions.members(session);
        let positions = members.filter_map(|member| {
            let index = self.sessions.subscription(member).topic;
            let topic = (index != NO_TOPIC).then(|| self.topics.at(index))??;
            let Topic::Feed(key) = &topic.topic else { return None };
            // A version that another node sent and this node doesn't have yet takes precedence over this
            // node's newest.
            let position =
                self.awaiting.since(index, member).or_else(|| topic.snapshot().and_then(|p| p.position()))?;
            Some((key.clone(), position))
        });
        positions.collect()
    }

    /// Records that the client of an arriving session may have this version of a feed from another node. The
    /// client receives no older version of the same epoch, and no version of another epoch before the engine
    /// was read. Call it before [`Hub::handle_arrival`].
    pub fn handle_may_have(&mut self, session: SessionId, key: &Key, position: Position) {
        let Some(index) = self.topics.find(&Topic::Feed(key.clone())) else { return };
        let Some(member) = self.subscription_to(session, index) else { return };
        self.awaiting.set(index, member, Some(position));
        self.sessions.subscription_mut(member).flags.set(Flags::MAY_HAVE, true);
    }

    /// Returns the messages that a suspended session missed after `last` (as for [`Hub::handle_resume`]), at
    /// most `bytes_max` bytes. The caller closes the session, whatever the result is.
    ///
    /// # Errors
    /// The session isn't suspended, or can't be resumed.
    pub fn handle_departure(
        &mut self,
        session: SessionId,
        last: Option<u64>,
        bytes_max: usize,
    ) -> Result<Departure<E::Frame>, ResumeError> {
        let (direct, from, missed) = self.find_missed(session, last)?;
        let mut topics: Vec<u32> =
            self.memberships(session).map(|member| self.sessions.subscription(member).topic).collect();
        topics.sort_unstable();
        let log = &self.sessions.log;
        let entries = log.since(from.saturating_sub(KNOWN_BEFORE).max(log.first())).into_iter().flatten();
        let of_session = entries.filter(|(_, entry)| {
            entry.to == Some(session) || entry.topics.iter().any(|topic| topics.binary_search(topic).is_ok())
        });
        let known: Vec<u64> =
            of_session.map(|(_, entry)| entry.publication.id()).take(KNOWN_MAX + 1).collect();
        let bytes: usize = missed.iter().map(|(_, publication)| publication.body().len()).sum();
        if known.len() > KNOWN_MAX || bytes > bytes_max {
            return Err(ResumeError::TooMuch);
        }
        let missed = missed.into_iter().map(|(member, publication)| (publication, member == direct));
        Ok(Departure { missed: missed.collect(), known })
    }

    /// Sends missed messages to a session that was opened and suspended here for a client of another node:
    /// first the messages that it missed on the other node, then the later messages of its rooms on this node
    /// that the other node didn't have (see [`Departure`]), then the newest versions of its feeds. `room`
    /// states the namespace.
    ///
    /// # Errors
    /// The session isn't suspended, or missed too much. The caller closes it.
    pub fn handle_arrival(
        &mut self,
        now: Instant,
        session: SessionId,
        room: &Room,
        last: Option<u64>,
        missed: Vec<MissedMessage>,
        known: &HashSet<u64>,
    ) -> Result<(), ResumeError> {
        let suspended = self.suspensions.of(session).ok_or(ResumeError::NotSuspended)?;
        let (since, has_gap) = (suspended.at, suspended.has_gap);
        let direct = self.sessions.direct(session).ok_or(ResumeError::NotSuspended)?;
        if has_gap {
            return Err(ResumeError::NotCovered);
        }
        let here = self.missed(session, direct, since).ok_or(ResumeError::NotCovered)?;
        let ids: HashSet<u64> = missed.iter().map(|message| message.id).collect();
        // A message to one session has a different id on each node, so such messages are matched by content.
        let mut sent_alone: HashMap<(&Option<Arc<str>>, &Data), usize> = HashMap::new();
        for MissedMessage { event, data, .. } in missed.iter().filter(|message| message.is_direct) {
            *sent_alone.entry((event, data)).or_default() += 1;
        }
        let new = here.iter().filter_map(|(member, publication)| {
            let id = publication.id();
            if ids.contains(&id) || known.contains(&id) {
                return None;
            }
            if *member == direct
                && let Body::Message { event, data, .. } = publication.body()
                && let Some(count) = sent_alone.get_mut(&(event, data)).filter(|count| **count > 0)
            {
                *count -= 1;
                return None;
            }
            Some(publication.clone())
        });
        let new: Vec<_> = new.collect();
        let mut all: Vec<(Member, Arc<Publication<E::Frame>>)> = Vec::with_capacity(missed.len() + new.len());
        for MissedMessage { id, event, data, .. } in missed {
            let body = Body::Message { room: room.clone(), event, data, position: None };
            all.push((direct, self.make(body, false, NonZeroU64::new(id))));
        }
        all.extend(new.into_iter().map(|publication| (direct, publication)));
        if !self.sessions.fit(session, all.iter()) {
            return Err(ResumeError::TooMuch);
        }
        self.begin_anew(now, session, room, last);
        for (member, publication) in all {
            let except = Exceptions::default();
            self.sessions.log.push(now, &publication, &[], Box::default(), &except, Some(session));
            self.sessions.replay(member, &publication);
        }
        for member in self.sessions.members(session) {
            self.sessions.log.join(member);
        }
        self.replay_feeds(session);
        Ok(())
    }

    /// Resumes a session as if its client had just received the publication `last`.
    fn begin_anew(&mut self, now: Instant, session: SessionId, room: &Room, last: Option<u64>) {
        let last = last.and_then(NonZeroU64::new);
        self.sessions.log.reorder(session.index);
        if last.is_some() {
            // A marker with the id `last` lets the client resume if it disconnects again before it has
            // received anything.
            let (event, data) = (None, Data::Json(Default::default()));
            let marker = Body::Message { room: room.clone(), event, data, position: None };
            let (marker, except) = (self.make(marker, false, last), Exceptions::default());
            self.sessions.log.push(now, &marker, &[], Box::default(), &except, Some(session));
        }
        if let Some(session) = self.sessions.alive_mut(session) {
            // Only a client that has received no publication is sent all of them.
            (session.newest_id, session.reordered) = (last, last.is_some());
        }
        self.end_suspension(session);
    }
}
