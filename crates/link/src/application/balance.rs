//! Moves of sessions to a worker that has joined: workers with more than their share give sessions back, a bounded number at a time.
//!
//! The share is computed anew for each session, so workers and clients may come and go meanwhile. Sessions of draining and lost workers aren't
//! counted: other workers get them in any case.

use super::Application;
use crate::entry::ServerEntry;
use crate::session::{Owner, SessionId, State};
use std::time::Instant;

/// Maximum number of an application's sessions that move at the same time. A worker gives a session back after its `settle` (200 ms by
/// default), so at most 320 sessions move per second.
pub const MOVES_MAX: usize = 64;

/// The moves of an application.
#[derive(Default)]
pub(super) struct Balance {
    /// `true` from the start of a worker until all workers have about as many sessions.
    pub(super) is_on: bool,
    /// Number of sessions that have been released and that no worker has yet.
    pub(super) moves: usize,
}

impl Application {
    /// Number of sessions that move to another worker.
    pub fn moves(&self) -> usize {
        self.balance.moves
    }

    /// Releases sessions of workers that have more than their share, as far as others have room.
    pub(super) fn balance(&mut self, now: Instant) {
        while self.balance.is_on && self.balance.moves < MOVES_MAX {
            let Some((from, staying)) = self.overloaded() else {
                // A lost worker may return with its sessions.
                let is_complete = self.workers.values().all(|worker| !worker.link.is_lost());
                self.balance.is_on = self.balance.moves > 0 || !is_complete;
                return;
            };
            // A worker that is behind gets no further sessions. Otherwise they would return to the worker that has released them.
            let has_room = self.choose().is_some_and(|to| self.sessions_of(to) + 1 < staying);
            if !has_room || !self.movable(from).is_some_and(|id| self.release(id, now)) {
                return;
            }
        }
    }

    /// The worker that has the most sessions and more than its share, and the number of its sessions that don't move.
    fn overloaded(&self) -> Option<(u32, usize)> {
        let serving = || self.workers.iter().filter(|(_, worker)| worker.link.takes_sessions());
        let all = self.line.waiting.len() + serving().map(|(_, worker)| worker.sessions.len()).sum::<usize>();
        // `rest` workers have one session more than the others.
        let (share, rest) = (all.checked_div(serving().count())?, all % serving().count());
        let staying = serving().map(|(number, worker)| (*number, worker.sessions.len() - worker.releasing));
        let above = staying.clone().filter(|(_, count)| *count > share).count();
        let most = staying.max_by_key(|(_, count)| *count)?;
        (most.1 > share + 1 || most.1 > share && above > rest).then_some(most)
    }

    /// A session that a worker can give back. The worker may have any number of others, which wait for its answers.
    fn movable(&self, link: u32) -> Option<SessionId> {
        let worker = self.workers.get(&link)?;
        worker.open.first().and_then(|handle| worker.sessions.get(handle)).copied()
    }

    /// The worker of a session that can move: the session is open, and its worker stays. Before the worker gives the session back, it
    /// finishes the session's requests for namespaces and former sockets.
    fn movable_from(&self, id: SessionId) -> Option<Owner> {
        let State::Open(owner) = self.sessions.get(&id)?.state else { return None };
        self.link(owner.link)?.takes_sessions().then_some(owner)
    }

    /// A worker can't give a session back, so the session stays there. It isn't chosen again.
    pub(super) fn stay(&mut self, id: SessionId, owner: Owner, now: Instant) {
        self.set_state(id, State::Open(owner));
        if let Some(worker) = self.workers.get_mut(&owner.link) {
            worker.open.remove(&owner.handle);
        }
        self.drain(id);
        self.settle(now);
    }

    /// Moves a session to another worker, or to the same one if it has the fewest sessions. Returns `false` unless a worker has it
    /// and doesn't leave.
    pub fn release(&mut self, id: SessionId, now: Instant) -> bool {
        let Some(owner) = self.movable_from(id) else { return false };
        let place = self.place_after(now, self.options.link.worker_timeout);
        self.set_state(id, State::Moving(owner, place));
        if let Some(session) = self.sessions.get_mut(&id) {
            self.balance.moves += usize::from(!std::mem::replace(&mut session.is_moving, true));
        }
        self.write_to(owner.link, &ServerEntry::Release { handle: owner.handle });
        true
    }
}
