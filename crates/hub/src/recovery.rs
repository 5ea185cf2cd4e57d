//! Suspended sessions: their connection is lost, and they receive the missed publications when their client
//! reconnects.
//!
//! ```text
//!                  handle_suspend
//!        open ─────────────────────► suspended      member of its rooms, receives nothing
//!         ▲                              │
//!         └──────────────────────────────┘
//!                  handle_resume: receives the publications after its last one in the log
//! ```
//!
//! Outboxes are first in, first out, and the log is in the order of delivery. A client that received a
//! publication therefore received all earlier ones of its session, and missed exactly the later ones. Two
//! cases break this order: the history of a room, sent to a new member, and the newest message of a room
//! under `Latest`, which replaces an older one. The session then remembers the log index from which on the
//! order holds again. A client whose last publication is older is refused: starting anew is better than
//! duplicates.
//!
//! There are two ways to find the log index after which a client missed publications. Its last publication is
//! in the log. Or it is the last one that the session was ever sent: then the client missed none before it
//! was suspended, however old that publication is. Sessions of quiet rooms thus resume on busy servers too.
//!
//! Messages to one session are in the log too, with the session's id.
//!
//! The session's rooms at the time of the resumption decide which publications it missed, each room from the
//! time the session joined it. It receives no publications from rooms that it has left, and none from before
//! it joined. An exception for a room no longer applies to a session that has left that room.
//!
//! Feeds aren't in the log: a resumed session receives their newest version.

use crate::encoder::Encoder;
use crate::join_positions::LogIndex;
use crate::presence::Absence;
use crate::publication::Publication;
use crate::session::Sessions;
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::subscription::{Flags, Member, NO_TOPIC, Policy};
use crate::suspension::Suspended;
use crate::topic::Topic;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Reason why a session can't be resumed. The session stays suspended: the caller closes it, and the client
/// starts a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// There is no such session, or it isn't suspended.
    #[error("the session is not suspended")]
    NotSuspended,
    /// The log doesn't cover the missed publications: there were too many, they are too old, or they were
    /// evicted. Or the client names a publication that its session was never sent, or not in this order.
    #[error("the missed publications are no longer available")]
    NotCovered,
    /// The missed publications exceed the send buffer.
    #[error("the missed publications exceed the send buffer")]
    TooMuch,
}

impl ResumeError {
    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotSuspended => "not_suspended",
            Self::NotCovered => "not_covered",
            Self::TooMuch => "too_much",
        }
    }
}

/// The publications that a session missed.
pub(crate) type Missed<F> = Vec<(Member, Arc<Publication<F>>)>;

impl<E: Encoder> Hub<E> {
    /// Suspends a session whose connection is lost. Drops its pending deliveries, in flight or not. Until
    /// [`Hub::handle_resume`] the session stays a member of its rooms and subscribed to its feeds, may join
    /// and leave, and receives neither publications nor notices.
    ///
    /// Returns `true` if it is suspended now. A session that can't be suspended (recovery is disabled, or it
    /// is terminating) is unchanged: the caller closes it.
    pub fn handle_suspend(&mut self, session: SessionId) -> bool {
        if self.suspensions.of(session).is_some() {
            return true;
        }
        if !self.sessions.log.is_on() || !self.sessions.suspend(session) {
            return false;
        }
        let at = self.sessions.log.next();
        self.suspensions.begin(session, at);
        self.suspension_changed(session, Some(Absence::Suspended));
        true
    }

    /// Resumes a suspended session that has a connection again. `last` is the [id](Publication::id) of the
    /// last publication that its client received, `None` if it received none. The session is sent the
    /// publications of its rooms since then, in order and each once, then the newest version of its feeds, in
    /// the order of their keys.
    ///
    /// If its new connection has another format, call [`Hub::set_format`] first.
    ///
    /// # Errors
    /// The session isn't suspended, or can't be resumed. The session is unchanged: the caller closes
    /// it.
    pub fn handle_resume(&mut self, session: SessionId, last: Option<u64>) -> Result<(), ResumeError> {
        let (_, _, missed) = self.find_missed(session, last)?;
        // The newest versions of feeds always fit.
        if !self.sessions.fit(session, missed.iter()) {
            return Err(ResumeError::TooMuch);
        }
        self.end_suspension(session);
        for (member, publication) in missed {
            self.sessions.replay(member, &publication);
        }
        self.replay_feeds(session);
        Ok(())
    }

    /// Returns the publications that a suspended session missed after `last`, with its slot for messages to
    /// it alone and the log index of the first missed one.
    pub(crate) fn find_missed(
        &mut self,
        session: SessionId,
        last: Option<u64>,
    ) -> Result<(Member, LogIndex, Missed<E::Frame>), ResumeError> {
        let Suspended { at: suspended_at, has_gap, .. } =
            *self.suspensions.of(session).ok_or(ResumeError::NotSuspended)?;
        if has_gap {
            return Err(ResumeError::NotCovered);
        }
        let log_index = self.sessions.log_index_after(session, last, suspended_at);
        let direct = self.sessions.direct(session).ok_or(ResumeError::NotSuspended)?;
        let log_index = log_index.ok_or(ResumeError::NotCovered)?;
        let missed = self.missed(session, direct, log_index).ok_or(ResumeError::NotCovered)?;
        Ok((direct, log_index, missed))
    }

    /// Ends a session's suspension: it receives deliveries again.
    pub(crate) fn end_suspension(&mut self, session: SessionId) {
        self.sessions.resume(session);
        self.suspension_changed(session, None);
        self.suspensions.end(session).into_iter().for_each(|notice| self.push_notice(notice));
    }

    /// Sends a session the newest version of its feeds.
    pub(crate) fn replay_feeds(&mut self, session: SessionId) {
        for (member, index) in self.feeds_of(session) {
            self.replay(member, index, None);
        }
    }

    /// Returns the number of suspended sessions.
    pub fn suspended(&self) -> usize {
        self.suspensions.count()
    }

    /// Returns the log's publications for a session from `log_index` on; `None` if the log doesn't reach back
    /// that far. `direct` is the slot for messages to the session alone.
    pub(crate) fn missed(
        &self,
        session: SessionId,
        direct: Member,
        log_index: LogIndex,
    ) -> Option<Missed<E::Frame>> {
        let log = &self.sessions.log;
        let mut rooms: Vec<(u32, LogIndex, Member)> = self
            .memberships(session)
            .map(|member| {
                let since = log.join_positions.member_since(member);
                (self.sessions.subscription(member).topic, since, member)
            })
            .collect();
        rooms.sort_unstable_by_key(|(topic, ..)| *topic);
        let was_in = |topic: u32, at: LogIndex| {
            let found = rooms.binary_search_by_key(&topic, |(topic, ..)| *topic).ok()?;
            let (_, since, member) = rooms[found];
            (since <= at).then_some(member)
        };
        let missed = log.since(log_index)?.filter_map(|(at, entry)| {
            if let Some(to) = entry.to {
                return (to == session).then(|| (direct, entry.publication.clone()));
            }
            let member = entry.topics.iter().find_map(|topic| was_in(*topic, at))?;
            let excepted = entry.except_topics.iter().any(|topic| was_in(*topic, at).is_some())
                || entry.except.sessions(self.core).any(|excepted| excepted == session);
            (!excepted).then(|| (member, entry.publication.clone()))
        });
        Some(missed.collect())
    }

    /// Iterates over a session's subscriptions that don't wait for an answer.
    pub(crate) fn memberships(&self, session: SessionId) -> impl Iterator<Item = Member> {
        self.sessions.members(session).filter(|member| {
            let subscription = self.sessions.subscription(*member);
            subscription.topic != NO_TOPIC && !subscription.flags.has(Flags::PENDING)
        })
    }

    /// Returns a session's feeds in the order of their keys.
    fn feeds_of(&self, session: SessionId) -> Vec<(Member, u32)> {
        let topics =
            self.memberships(session).map(|member| (member, self.sessions.subscription(member).topic));
        let feeds = topics.filter_map(|(member, index)| match &self.topics.at(index)?.topic {
            Topic::Feed(key) => Some((key, member, index)),
            Topic::Room(_) | Topic::Presence(_) => None,
        });
        let mut feeds: Vec<_> = feeds.collect();
        feeds.sort_unstable_by_key(|(key, ..)| *key);
        feeds.into_iter().map(|(_, member, index)| (member, index)).collect()
    }
}

impl<E: Encoder> Sessions<E> {
    /// Returns the log index from which on a client missed publications of its session. `last` is the id of
    /// the last publication that it received.
    fn log_index_after(&self, id: SessionId, last: Option<u64>, suspended_at: LogIndex) -> Option<LogIndex> {
        let session = self.alive(id)?;
        let ordered_since = self.log.join_positions.ordered_since(id.index);
        let had_all = last == session.newest_id.map(NonZeroU64::get);
        match last {
            None if session.reordered => None,
            _ if had_all => Some(suspended_at),
            None => Some(ordered_since),
            Some(last) => {
                let log_index = self.log.find(last, id).filter(|log_index| *log_index >= ordered_since)?;
                Some(log_index + 1)
            }
        }
    }

    /// Returns `true` if a session without pending deliveries can receive all `publications` without
    /// exceeding its send buffer. Publications that its policy may drop don't count.
    pub(crate) fn fit<'a>(
        &mut self,
        id: SessionId,
        publications: impl Iterator<Item = &'a (Member, Arc<Publication<E::Frame>>)>,
    ) -> bool
    where
        E::Frame: 'a,
    {
        let Some(format) = self.alive(id).map(|session| session.format) else { return false };
        let (mut bytes, mut count) = (0, 0);
        for (member, publication) in publications {
            if self.subscription(*member).policy != Policy::Queue {
                continue;
            }
            let publication_ref = self.arena.insert(publication);
            if let Some(frame_bytes) = self.arena.bytes(publication_ref, format) {
                bytes += u64::from(frame_bytes);
                count += 1;
            }
            self.arena.release(publication_ref);
        }
        self.send_buffers.can_hold(bytes) || count <= 1
    }
}
