//! Changes of other workers' sockets (SELECT) that wait until those workers have room for MEMBERS or KICK.
//!
//! A worker that calls `socketsJoin` in a loop would otherwise fill the links of the others until they end. So each such change waits,
//! with the later entries of its link, for [`Application::proceed`]. The caller reads no frame from a link that waits
//! ([`Application::is_waiting`]), and calls `proceed` as long as few changes are being carried out.
//!
//! **Invariant.** A change waits only for workers whose links are read, because their acknowledgements make room: if the link that has no
//! room has a change that waits, too, it isn't waited for. So two workers that both call `socketsJoin` in a loop can still end each other's
//! links. A change also doesn't wait for a worker that has acknowledged nothing for `worker_timeout`, even if it answers pings.
//!
//! A worker whose change waits gets no new sessions while others respond, as its answers aren't read. If its link ends first, the rest of
//! its frame is dropped, and the messages that the frame acknowledges count as not acknowledged.

use super::{Action, Application};
use crate::entry::{Select, WorkerEntry};
use crate::link::{Event, Link};
use std::time::Instant;

/// `true` if an entry changes the sockets of other workers.
fn is_change(entry: &WorkerEntry) -> bool {
    matches!(entry, WorkerEntry::Select { select: Select { flags, .. }, .. } if !flags.is_local)
}

/// `true` if changes of other workers' sockets wait for a link that may receive `following` bytes because of unfinished changes.
fn is_full(link: &Link, following: usize, now: Instant) -> bool {
    !link.is_ended() && !link.has_room_for(following) && !link.is_stalled(now)
}

impl Application {
    /// `true` while a change of a link's worker waits, and so do the later entries of the link.
    pub fn is_waiting(&self, link: u32) -> bool {
        !self.changes.is_empty() && self.changes.iter().any(|(number, _)| *number == link)
    }

    /// Number of links with a change that waits.
    pub fn waiting_changes(&self) -> usize {
        self.changes.len()
    }

    /// Goes on with a change that waits, and with the later entries of its link. Each worker may receive `following` bytes because of
    /// unfinished changes. Returns the link's number, or `None` if no change waits or a worker has no room.
    pub fn proceed(&mut self, following: usize, now: Instant) -> Option<u32> {
        let is_full = |link: &Link| is_full(link, following, now);
        if self.changes.is_empty()
            || self.links().any(|link| is_full(link) && !self.is_waiting(link.number()))
        {
            return None;
        }
        // A link that others wait for goes first, because it must be read. All others take turns.
        let is_awaited = |number: u32| self.link(number).is_some_and(is_full);
        let place = self.changes.iter().position(|(number, _)| is_awaited(*number));
        let (number, entry) = self.changes.remove(place.unwrap_or(0))?;
        self.actions.push_back(Action::Namespace(number, entry));
        self.handle_events(number, now);
        Some(number)
    }

    /// The next event of a link. `None`: there is none, or the link waits.
    pub(super) fn next_event(&mut self, number: u32) -> Option<Event> {
        let Self { workers, changes, .. } = self;
        let link = &mut workers.get_mut(&number)?.link;
        if link.is_ended() {
            changes.retain(|(waiting, _)| *waiting != number);
        } else if !changes.is_empty() && changes.iter().any(|(waiting, _)| *waiting == number) {
            return None;
        }
        match link.poll_event()? {
            Event::Entry(entry) if is_change(&entry) => {
                changes.push_back((number, entry));
                None
            }
            event => Some(event),
        }
    }

    /// Keeps the links that wait, because their pongs aren't read.
    pub(super) fn keep_waiting(&mut self, now: Instant) {
        for (number, _) in &self.changes {
            if let Some(worker) = self.workers.get_mut(number) {
                worker.link.keep(now);
            }
        }
    }
}
