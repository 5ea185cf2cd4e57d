//! A topic's bounded history, kept at its home core.

use crate::publication::{Position, Publication};
use crate::topic::Room;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The limits of a topic's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum number of publications; 0 keeps none.
    pub publications_max: usize,
    /// Maximum size of the bodies in bytes.
    pub bytes_max: usize,
    /// Maximum age.
    pub age_max: Duration,
}

/// Returns the limits of a room's history. `history` has limits by prefix of the room's name; the longest
/// matching prefix counts. `None` if the room keeps no history.
pub fn history_limits(history: &[(String, HistoryLimits)], room: &Room) -> Option<HistoryLimits> {
    if room.is_all_members() {
        return None;
    }
    let matching = history.iter().filter(|(prefix, _)| room.name().starts_with(prefix));
    let longest = matching.max_by_key(|(prefix, _)| prefix.len());
    longest.map(|(_, limits)| *limits).filter(|limits| limits.publications_max > 0)
}

/// The size of the history that a core keeps of its rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryStats {
    /// Number of publications in all rooms with this home core.
    pub publications: usize,
    /// Size of their bodies in bytes.
    pub bytes: usize,
}

/// The answer to a session that names its position in a room.
pub enum Replay<F> {
    /// The missed messages, oldest first.
    Messages(Vec<Arc<Publication<F>>>),
    /// The history doesn't reach back that far: [`Notice::Gap`](crate::Notice::Gap).
    Expired,
    /// The home core doesn't know the history yet: [`Dispatch::History`](crate::Dispatch::History) follows.
    Unknown,
    /// The position isn't one of this history: it is newer, or of another epoch.
    Unplaced,
}

/// The history of a room: all publications after an offset, oldest first. Offsets increase, but may leave out
/// numbers.
pub struct HistoryPart<F> {
    /// The offset after which the history is complete.
    pub(crate) after: u64,
    pub(crate) newest: Position,
    pub(crate) messages: Vec<Arc<Publication<F>>>,
    /// `true` if the engine has been asked since members began to wait for the history.
    pub(crate) is_confirmed: bool,
}

impl<F> HistoryPart<F> {
    pub(crate) fn since(&self, since: Position) -> Replay<F> {
        replay(since, self.after, self.newest, self.messages.iter())
    }
}

fn replay<'a, F: 'a>(
    since: Position,
    after: u64,
    newest: Position,
    messages: impl DoubleEndedIterator<Item = &'a Arc<Publication<F>>>,
) -> Replay<F> {
    if since.epoch != newest.epoch || since.offset > newest.offset {
        return Replay::Unplaced;
    }
    if since.offset < after {
        return Replay::Expired;
    }
    let is_newer =
        |message: &&Arc<Publication<F>>| message.position().is_some_and(|p| p.offset > since.offset);
    let mut missed: Vec<_> = messages.rev().take_while(is_newer).cloned().collect();
    missed.reverse();
    Replay::Messages(missed)
}

struct Entry<F> {
    at: Instant,
    publication: Arc<Publication<F>>,
}

/// The newest publications of a topic, oldest first.
pub(crate) struct History<F> {
    limits: HistoryLimits,
    entries: VecDeque<Entry<F>>,
    /// The offset of the last publication that isn't in `entries`.
    after: u64,
    bytes: usize,
}

impl<F> History<F> {
    pub(crate) fn new(limits: HistoryLimits) -> Self {
        Self { limits, entries: VecDeque::new(), after: 0, bytes: 0 }
    }

    pub(crate) fn set_limits(&mut self, limits: HistoryLimits) {
        self.limits = limits;
    }

    /// Clears the history: the next publication follows this offset.
    pub(crate) fn restart(&mut self, after: u64) {
        *self = Self { after, ..Self::new(self.limits) };
    }

    pub(crate) fn push(&mut self, now: Instant, publication: Arc<Publication<F>>) {
        self.bytes += publication.body().len();
        self.entries.push_back(Entry { at: now, publication });
        while self.entries.len() > self.limits.publications_max || self.bytes > self.limits.bytes_max {
            self.forget_oldest();
        }
        self.expire(now);
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while self.entries.front().is_some_and(|e| now.saturating_duration_since(e.at) > self.limits.age_max)
        {
            self.forget_oldest();
        }
    }

    /// Evicts the oldest publication. Returns the size of its body in bytes.
    pub(crate) fn forget_oldest(&mut self) -> usize {
        let Some(Entry { publication, .. }) = self.entries.pop_front() else { return 0 };
        self.after = publication.position().map_or(self.after, |position| position.offset);
        self.bytes -= publication.body().len();
        publication.body().len()
    }

    /// Returns the publications after `since`. `newest` is the topic's position.
    pub(crate) fn since(&self, since: Position, newest: Position) -> Replay<F> {
        replay(since, self.after, newest, self.entries.iter().map(|entry| &entry.publication))
    }

    /// Returns the complete history.
    pub(crate) fn part(&self, newest: Position) -> HistoryPart<F> {
        let messages = self.entries.iter().map(|entry| entry.publication.clone()).collect();
        HistoryPart { after: self.after, newest, messages, is_confirmed: false }
    }

    pub(crate) fn figures(&self) -> HistoryStats {
        HistoryStats { publications: self.entries.len(), bytes: self.bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn newest_at(&self) -> Option<Instant> {
        self.entries.back().map(|e| e.at)
    }
}
