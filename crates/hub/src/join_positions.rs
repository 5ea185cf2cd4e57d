//! The log index at which each session was opened and joined its topics. Stored apart from the data that a
//! fan-out touches, and only if there is a log.

use crate::chunks::Chunks;
use crate::subscription::Member;
use smallvec::SmallVec;

/// An index in the recovery log, from 0, of an entry or of the next one.
pub(crate) type LogIndex = u64;

struct SessionPositions {
    ordered_since: LogIndex,
    /// Log index of the join, by slot of the session.
    member_since: SmallVec<[LogIndex; 2]>,
}

/// The positions of all sessions, by index. Without a log the table is empty, and all log indices are 0.
#[derive(Default)]
pub(crate) struct JoinPositions(Chunks<SessionPositions>);

impl JoinPositions {
    /// Records the start of the session with this index, which is either reused or the next new one.
    pub(crate) fn open(&mut self, index: u32, now: LogIndex) {
        let fresh = SessionPositions { ordered_since: now, member_since: SmallVec::new() };
        match self.0.get_mut(index as usize) {
            Some(positions) => *positions = fresh,
            None => self.0.push(fresh),
        }
    }

    /// Records that the session's deliveries follow the log's order only from `now` on.
    pub(crate) fn reorder(&mut self, index: u32, now: LogIndex) {
        if let Some(positions) = self.0.get_mut(index as usize) {
            positions.ordered_since = now;
        }
    }

    /// Returns the log index from which on the session's deliveries follow the log's order.
    pub(crate) fn ordered_since(&self, index: u32) -> LogIndex {
        self.0.get(index as usize).map_or(0, |positions| positions.ordered_since)
    }

    /// Records the log index at which a subscription became a member of its topic.
    pub(crate) fn join(&mut self, member: Member, now: LogIndex) {
        let Some(positions) = self.0.get_mut(member.session as usize) else { return };
        let slot = member.subscription as usize;
        if slot >= positions.member_since.len() {
            positions.member_since.resize(slot + 1, 0);
        }
        positions.member_since[slot] = now;
    }

    /// Returns the log index at which a member joined.
    pub(crate) fn member_since(&self, member: Member) -> LogIndex {
        let positions = self.0.get(member.session as usize);
        positions
            .and_then(|positions| positions.member_since.get(member.subscription as usize))
            .copied()
            .unwrap_or(0)
    }
}
