//! Changes of workers' sockets that the cores carry out. They cause entries for other workers, so further ones of this node's workers wait
//! above a bound. Changes of workers at other nodes neither wait nor count.
//!
//! One change can exceed the bound, because each core with changed sockets of a worker causes an entry with all its rooms: 8 cores and rooms
//! of 1 MiB end the link.
//!
//! A change is finished when no core and no report has it any more. The cores then report that their inboxes have space, which wakes the
//! service.

use super::Applications;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;
use stentor_link::{Handle, Link};
use stentor_ports::LinkSelect;

/// Maximum number of cores. Each that has changed sockets of a worker causes an entry for it.
const CORES_MAX: usize = 256;
/// Bytes of such an entry, without its handles and rooms.
const ENTRY_BYTES: usize = 16;
/// Changes for which memory is kept while there are none.
const SPARE_CHANGES: usize = 64;
/// Bytes that are held for a finished change until it is forgotten.
const CHANGE_BYTES: usize = size_of::<(Weak<LinkSelect>, usize)>() + size_of::<LinkSelect>() + 16;

/// The changes of an application's sockets that aren't finished.
#[derive(Default)]
pub(super) struct Changes {
    /// The changes in order, each with the bytes that a worker may receive because of it.
    unfinished: VecDeque<(Weak<LinkSelect>, usize)>,
    bytes: usize,
}

impl Changes {
    /// Adds a change. No worker that it concerns has more sessions than `sessions`.
    fn add(&mut self, select: &Arc<LinkSelect>, sessions: usize) {
        let rooms: usize = select.targets.iter().map(|room| size_of::<u16>() + room.len()).sum();
        let (handles, entries) = (sessions.max(1), sessions.clamp(1, CORES_MAX));
        let bytes = handles * size_of::<Handle>() + entries * (ENTRY_BYTES + rooms);
        self.forget_finished();
        self.bytes += bytes;
        self.unfinished.push_back((Arc::downgrade(select), bytes));
    }

    /// Forgets finished changes. Each core carries them out in order.
    pub(super) fn forget_finished(&mut self) {
        while let Some((select, bytes)) = self.unfinished.front()
            && select.strong_count() == 0
        {
            self.bytes -= bytes;
            self.unfinished.pop_front();
            if self.unfinished.is_empty() {
                self.unfinished.shrink_to(SPARE_CHANGES);
            }
        }
    }

    /// Bytes that may follow for a worker.
    fn bytes(&mut self) -> usize {
        self.forget_finished();
        self.bytes
    }

    /// Bytes that are held for changes, also if they are finished.
    pub(super) fn held_bytes(&self) -> usize {
        self.unfinished.len() * CHANGE_BYTES
    }
}

impl Applications {
    /// Counts a change of a link's worker that the cores are to carry out.
    pub(super) fn count_change(&mut self, app: usize, link: u32, select: &Arc<LinkSelect>) {
        let application = &self.applications[app];
        let others = application.links().map(Link::number).filter(|number| *number != link);
        let sessions = others.map(|number| application.sessions_of(number)).max();
        self.changes[app].add(select, sessions.unwrap_or(0));
    }

    /// A quarter of the bytes that a worker may leave unacknowledged, for what unfinished changes cause.
    fn quarter(&self, app: usize) -> usize {
        self.options[app].application.link.unacknowledged_bytes_max / 4
    }

    /// Bytes that a worker may receive because of unfinished changes, at most a quarter: the estimate may be far too high.
    fn following(&mut self, app: usize) -> usize {
        self.changes[app].bytes().min(self.quarter(app))
    }

    /// `true` if a worker's entry with this many bytes may be written to another worker. Changes wait above the same bound, so such entries
    /// alone let none wait.
    pub(super) fn has_room_for(&mut self, app: usize, link: u32, bytes: usize) -> bool {
        let following = self.following(app);
        self.applications[app].link(link).is_some_and(|link| link.has_room_for(bytes + following))
    }

    /// Carries out the actions of an application. Then changes that wait go on, as far as the other workers have room.
    pub(super) fn carry_out_all(&mut self, app: usize, now: Instant) {
        self.carry_out_actions(app, now);
        while self.applications[app].waiting_changes() > 0 && self.changes[app].bytes() <= self.quarter(app) {
            let following = self.following(app);
            let Some(link) = self.applications[app].proceed(following, now) else { break };
            self.carry_out_actions(app, now);
            self.acknowledge(app, link);
        }
    }

    fn carry_out_actions(&mut self, app: usize, now: Instant) {
        while let Some(action) = self.applications[app].poll_action() {
            self.carry_out(app, action, now);
        }
    }
}
