//! The recovery log: recent deliveries of one core, from which resumed sessions receive the publications that
//! they missed. [`crate::recovery`] describes how.
//!
//! There is one log per core, for all rooms: a session's events of different rooms have one order, and the id
//! of the last event that its client received is a position in it.
//!
//! **Invariants.** Entries are in the order of delivery and are removed oldest first. The index of an entry
//! never changes. An entry identifies topics by their numbers in this shard's table, which are reused. A
//! subscription therefore counts only if it is older than the entry: then its topic's number can't have been
//! reused since.

use crate::budget::{Charge, LiveBytes};
use crate::dispatch::Exceptions;
use crate::join_positions::{JoinPositions, LogIndex};
use crate::publication::Publication;
use crate::session_id::SessionId;
use crate::subscription::Member;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The limits of a core's recovery log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryLimits {
    /// Maximum size per core in bytes: of bodies, and [`RECOVERY_ENTRY_BYTES`] for each publication. Encoded
    /// frames are additional: one for each format in use.
    pub bytes_max: usize,
    /// Maximum age.
    pub age_max: Duration,
}

/// Size that a publication in the recovery log counts in addition to its body, in bytes.
pub const RECOVERY_ENTRY_BYTES: usize = 320;

/// An empty log frees its memory if it once held more publications than this.
const IDLE_MAX: usize = 1024;

/// The size of a core's recovery log, and the number of removed publications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Number of publications in the log.
    pub publications: usize,
    /// Size of these publications in bytes, counted as for [`RecoveryLimits::bytes_max`].
    pub bytes: usize,
    /// Publications removed because they were older than `age_max`.
    pub expired: u64,
    /// Publications removed before that age: above `bytes_max`, or because the process was out of memory.
    pub evicted: u64,
}

/// One delivered publication.
pub(crate) struct Entry<F> {
    pub(crate) publication: Arc<Publication<F>>,
    /// The topics whose members received it.
    pub(crate) topics: SmallVec<[u32; 2]>,
    /// The topics whose members were excepted.
    pub(crate) except_topics: Box<[u32]>,
    /// The excepted sessions.
    pub(crate) except: Exceptions,
    /// The only receiver, for a message to one session instead of members.
    pub(crate) to: Option<SessionId>,
    at: Instant,
    _charge: Charge,
}

impl<F> Entry<F> {
    fn bytes(&self) -> usize {
        self.publication.body().len() + RECOVERY_ENTRY_BYTES
    }
}

pub(crate) struct Log<F> {
    limits: Option<RecoveryLimits>,
    live: LiveBytes,
    entries: VecDeque<Entry<F>>,
    /// The index of the oldest entry.
    first: LogIndex,
    bytes: usize,
    expired: u64,
    evicted: u64,
    pub(crate) join_positions: JoinPositions,
}

impl<F> Log<F> {
    pub(crate) fn new(limits: Option<RecoveryLimits>, live: LiveBytes) -> Self {
        Self {
            limits,
            live,
            entries: VecDeque::new(),
            first: 0,
            bytes: 0,
            expired: 0,
            evicted: 0,
            join_positions: JoinPositions::default(),
        }
    }

    /// Returns `true` if the log is enabled.
    pub(crate) fn is_on(&self) -> bool {
        self.limits.is_some()
    }

    /// Returns the index of the next entry.
    pub(crate) fn next(&self) -> LogIndex {
        self.first + self.entries.len() as LogIndex
    }

    /// Records the start of the session with this index, which is either reused or the next new one.
    pub(crate) fn open(&mut self, session: u32) {
        if self.is_on() {
            self.join_positions.open(session, self.next());
        }
    }

    /// Records that the session's deliveries follow the log's order only from now on.
    pub(crate) fn reorder(&mut self, session: u32) {
        self.join_positions.reorder(session, self.next());
    }

    /// Records that a subscription becomes a member of its topic.
    pub(crate) fn join(&mut self, member: Member) {
        self.join_positions.join(member, self.next());
    }

    /// Logs a publication before its delivery to members of topics, or `to` one session.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        publication: &Arc<Publication<F>>,
        topics: &[u32],
        except_topics: Box<[u32]>,
        except: &Exceptions,
        to: Option<SessionId>,
    ) {
        let Some(limits) = self.limits else { return };
        let entry = Entry {
            publication: publication.clone(),
            topics: topics.into(),
            except_topics,
            except: except.clone(),
            to,
            at: now,
            _charge: self.live.charge(size_of::<Entry<F>>() + except.bytes()),
        };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > limits.bytes_max {
            self.evict_oldest();
        }
        self.expire(now);
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        let Some(limits) = self.limits else { return };
        while self.entries.front().is_some_and(|e| now.saturating_duration_since(e.at) > limits.age_max) {
            self.expired += 1;
            self.forget_oldest();
        }
    }

    /// Removes the oldest publication. Returns the freed bytes; 0 if the log is empty.
    pub(crate) fn evict_oldest(&mut self) -> usize {
        self.evicted += u64::from(!self.entries.is_empty());
        self.forget_oldest()
    }

    fn forget_oldest(&mut self) -> usize {
        let Some(oldest) = self.entries.pop_front() else { return 0 };
        self.first += 1;
        self.bytes -= oldest.bytes();
        if self.entries.is_empty() && self.entries.capacity() > IDLE_MAX {
            self.entries = VecDeque::new();
        }
        oldest.bytes()
    }

    /// Returns the index of the oldest entry, or of the next one if the log is empty.
    pub(crate) fn first(&self) -> LogIndex {
        self.first
    }

    /// Returns the index of the publication with this id that was sent to rooms or to this session, if it is
    /// still in the log. The search starts at the newest entry, because most clients reconnect soon.
    pub(crate) fn find(&self, id: u64, session: SessionId) -> Option<LogIndex> {
        let is_it =
            |entry: &Entry<F>| entry.publication.id() == id && entry.to.is_none_or(|to| to == session);
        let at = self.entries.iter().rposition(is_it)?;
        Some(self.first + at as LogIndex)
    }

    /// Iterates over all entries from `index` on, oldest first, with their indices; `None` if some have been
    /// removed.
    pub(crate) fn since(&self, index: LogIndex) -> Option<impl Iterator<Item = (LogIndex, &Entry<F>)>> {
        let skip = index.checked_sub(self.first)?;
        let skip = usize::try_from(skip).ok().filter(|skip| *skip <= self.entries.len())?;
        Some((index..).zip(self.entries.range(skip..)))
    }

    pub(crate) fn figures(&self) -> LogStats {
        let (publications, bytes) = (self.entries.len(), self.bytes);
        LogStats { publications, bytes, expired: self.expired, evicted: self.evicted }
    }
}

#[cfg(test)]
mod tests;
