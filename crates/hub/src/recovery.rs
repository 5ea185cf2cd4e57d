//! Sessions whose connection is gone for a while, and what they get when it is back.
//!
//! ```text
//!                  handle_suspend
//!        open ─────────────────────► suspended      member of its rooms, owed nothing
//!         ▲                              │
//!         └──────────────────────────────┘
//!                  handle_resume: owed what the log has after the last that its client had
//! ```
//!
//! Outboxes are first in, first out, and the log is in the order of delivery: so a client that had a
//! publication had all those before it that were its session's, and the rest is exactly what it missed.
//! Where that order doesn't hold, the session remembers from which place in the log on it holds again, and a
//! client whose last publication lies before it is refused: rather nothing than something twice. Two things
//! break it: what a room with history gives to who comes later, and the newest of a room under `Latest`,
//! which takes the place of an older one.
//!
//! Two ways lead to the place after which a client is owed: its last publication is found in the log, or it
//! is the last one that the session was owed at all. Then it missed nothing before it was suspended,
//! however long ago that publication was: sessions of quiet rooms come back on busy servers too.
//!
//! What was sent to the session alone is in the log like the rest, with its name.
//!
//! What was delivered is judged by the rooms that a session is in when it comes back, each from when it
//! joined it: nothing of a room that it left is owed, nor what was said in a room before it came. A session
//! that was left out for being in a room, and has left that one since, isn't left out any more.
//!
//! Feeds aren't in the log: who comes back is owed their newest.

use crate::encoder::Encoder;
use crate::log::LogIndex;
use crate::notice::Notice;
use crate::publication::Publication;
use crate::session::Sessions;
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::subscription::{Flags, Member, NO_TOPIC, Policy};
use crate::suspension::Suspended;
use crate::topic::Topic;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Why a session can't go on where it was. It stays suspended: the caller closes it, and the client begins
/// anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeError {
    /// There is no such session, or its connection isn't gone.
    NotSuspended,
    /// The log doesn't cover what the client missed: too much was delivered since, too long ago, or the
    /// memory was needed. Or the client names what its session never was owed, or not in that order.
    NotCovered,
    /// What it missed is more than its outbox may hold.
    TooMuch,
}

impl ResumeError {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotSuspended => "not_suspended",
            Self::NotCovered => "not_covered",
            Self::TooMuch => "too_much",
        }
    }
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSuspended => "there is no session that waits to be resumed",
            Self::NotCovered => "what was missed isn't kept any more",
            Self::TooMuch => "more was missed than the send buffer may hold",
        })
    }
}

impl std::error::Error for ResumeError {}

/// What a session missed.
type Missed<F> = Vec<(Member, Arc<Publication<F>>)>;

impl<E: Encoder> Hub<E> {
    /// A session's connection is gone, and its client may come back. What it was owed is abandoned, in flight
    /// or not. It stays a member of its rooms and subscribed to its feeds, may come and go there, and is owed
    /// nothing until [`Hub::handle_resume`]. Nor is it told anything until then.
    ///
    /// Says whether it is suspended now. A session that can't be (recovery is off, or it has to end anyway)
    /// is as it was: the caller closes it.
    pub fn handle_suspend(&mut self, session: SessionId) -> bool {
        if self.suspended.contains_key(&session) {
            return true;
        }
        if !self.sessions.log.is_on() || !self.sessions.suspend(session) {
            return false;
        }
        let at = self.sessions.log.next();
        self.suspended.insert(session, Suspended { at, notices: Vec::new() });
        true
    }

    /// A suspended session has a connection again. `last` is the [id](Publication::id) of the last publication that
    /// its client received, `None` if it received none. The session is sent what its rooms received since, in order,
    /// each publication once, then the newest version of its feeds, in the order of their keys.
    ///
    /// If its new connection has another format, call [`Hub::set_format`] first.
    ///
    /// # Errors
    /// The session isn't suspended, or can't be resumed. It stays as it is: the caller closes it.
    pub fn handle_resume(&mut self, session: SessionId, last: Option<u64>) -> Result<(), ResumeError> {
        let suspended_at = self.suspended.get(&session).ok_or(ResumeError::NotSuspended)?.at;
        let log_index = self.sessions.log_index_after(session, last, suspended_at);
        let direct = self.sessions.direct(session).ok_or(ResumeError::NotSuspended)?;
        let missed = log_index.and_then(|log_index| self.missed(session, direct, log_index));
        let missed = missed.ok_or(ResumeError::NotCovered)?;
        let feeds = self.feeds_of(session);
        // The newest of feeds always fits.
        if !self.sessions.fit(session, missed.iter()) {
            return Err(ResumeError::TooMuch);
        }
        self.sessions.resume(session);
        if let Some(suspended) = self.suspended.remove(&session) {
            self.notices.extend(suspended.notices);
        }
        for (member, publication) in missed {
            self.sessions.fan_out(&[member], &publication, false, None);
        }
        for (member, index) in feeds {
            self.replay(member, index, None);
        }
        Ok(())
    }

    /// How many sessions wait for their clients to come back.
    pub fn suspended(&self) -> usize {
        self.suspended.len()
    }

    /// Keeps what a suspended session is to be told until it is back. Gives back what is for others.
    pub(crate) fn defer_notice(&mut self, notice: Notice) -> Option<Notice> {
        if self.suspended.is_empty() {
            return Some(notice);
        }
        match self.suspended.get_mut(&notice.session()) {
            Some(suspended) => {
                suspended.notices.push(notice);
                None
            }
            None => Some(notice),
        }
    }

    /// What the log has for a session from `place` on, `direct` being the slot of what was sent to it alone; `None`
    /// where the log doesn't reach back so far.
    fn missed(&self, session: SessionId, direct: Member, log_index: LogIndex) -> Option<Missed<E::Frame>> {
        let log = &self.sessions.log;
        let mut rooms: Vec<(u32, LogIndex, Member)> = self
            .memberships(session)
            .map(|member| {
                let since = self.sessions.join_positions.member_since(member);
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

    /// A session's subscriptions that don't wait for an answer.
    fn memberships(&self, session: SessionId) -> impl Iterator<Item = Member> {
        self.sessions.members(session).into_iter().filter(|member| {
            let subscription = self.sessions.subscription(*member);
            subscription.topic != NO_TOPIC && !subscription.flags.has(Flags::PENDING)
        })
    }

    /// A session's feeds, in the order of their keys.
    fn feeds_of(&self, session: SessionId) -> Vec<(Member, u32)> {
        let topics =
            self.memberships(session).map(|member| (member, self.sessions.subscription(member).topic));
        let feeds = topics.filter_map(|(member, index)| match &self.topics.at(index)?.topic {
            Topic::Feed(key) => Some((key, member, index)),
            Topic::Room(_) => None,
        });
        let mut feeds: Vec<_> = feeds.collect();
        feeds.sort_unstable_by_key(|(key, ..)| *key);
        feeds.into_iter().map(|(_, member, index)| (member, index)).collect()
    }
}

impl<E: Encoder> Sessions<E> {
    /// The place in the log from which on a client with this `last` missed what its session was owed.
    fn log_index_after(&self, id: SessionId, last: Option<u64>, suspended_at: LogIndex) -> Option<LogIndex> {
        let session = self.alive(id)?;
        let ordered_since = self.join_positions.ordered_since(id.index);
        let had_all = last == session.newest_id.map(NonZeroU64::get);
        match last {
            None if session.reordered => None,
            _ if had_all => Some(suspended_at),
            None => Some(ordered_since),
            Some(last) => {
                let log_index = self.log.find(last).filter(|log_index| *log_index >= ordered_since)?;
                Some(log_index + 1)
            }
        }
    }

    /// Whether a session that waits for nothing can be owed all of these without being terminating for it: what
    /// may be left out by its policy doesn't matter.
    fn fit<'a>(
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
        bytes <= self.send_buffer_bytes_max.into() || count <= 1
    }
}
