//! Changes of sessions' states: workers get sessions and their messages, as far as their links have room.

use super::{Action, Application, Closing, Worker};
use crate::entry::ServerEntry;
use crate::session::{Owner, Place, SessionId, State};
use crate::value::Handle;
use std::time::{Duration, Instant};

/// Maximum number of sessions of a link that wait for their description. RESUME isn't held back by the window, and has the data of
/// a session's sockets.
const RESUMING_MAX: usize = 64;

/// The workers that take sessions, for PEERS.
#[derive(Default)]
pub(super) struct Peers {
    /// Number of workers at other nodes of a cluster.
    elsewhere: u16,
    /// The last number of all workers that was sent.
    sent: u16,
}

impl Application {
    pub(super) fn new_place(&mut self, now: Instant) -> Place {
        self.place_after(now, self.options.grace)
    }

    pub(super) fn place_after(&mut self, now: Instant, time: Duration) -> Place {
        self.line.last += 1;
        (now + time, self.line.last)
    }

    /// Changes a session's state, with the indexes that follow from it.
    pub(super) fn set_state(&mut self, id: SessionId, state: State) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let old = std::mem::replace(&mut session.state, state);
        session.is_blocked &= old.owner() == state.owner();
        if old.owner() != state.owner() {
            session.written = 0;
        }
        if matches!(state, State::Open(_)) {
            self.balance.moves -= usize::from(std::mem::take(&mut session.is_moving));
        }
        self.leave_state(old);
        if let Some(owner) = state.owner()
            && let Some(worker) = self.workers.get_mut(&owner.link)
        {
            worker.sessions.insert(owner.handle, id);
            if matches!(state, State::Open(_)) {
                worker.open.insert(owner.handle);
            }
            worker.resuming += usize::from(matches!(state, State::Resuming(_)));
            worker.releasing += usize::from(matches!(state, State::Moving(..)));
        }
        if let Some(place) = state.place() {
            self.line.waiting.insert(place, id);
        }
        if let Some(place) = state.answer_by() {
            self.line.answering.insert(place, id);
        }
        self.requests += usize::from(state.is_request());
    }

    pub(super) fn leave_state(&mut self, state: State) {
        if let Some(owner) = state.owner()
            && let Some(worker) = self.workers.get_mut(&owner.link)
        {
            worker.sessions.remove(&owner.handle);
            worker.open.remove(&owner.handle);
            worker.resuming -= usize::from(matches!(state, State::Resuming(_)));
            worker.releasing -= usize::from(matches!(state, State::Moving(..)));
        }
        if let Some(place) = state.place() {
            self.line.waiting.remove(&place);
        }
        if let Some(place) = state.answer_by() {
            self.line.answering.remove(&place);
        }
        self.requests -= usize::from(state.is_request());
    }

    /// Takes a session from its worker. It waits for another one.
    pub(super) fn wait(&mut self, id: SessionId, now: Instant) {
        let place = self.new_place(now);
        let Some(session) = self.sessions.get(&id) else { return };
        let state = match session.state {
            // The client's request waits no longer because its worker has ended.
            State::Asking(_, place) => State::Held(place),
            _ => State::Waiting(place),
        };
        self.set_state(id, state);
    }

    pub(super) fn forget(&mut self, id: SessionId) {
        if let Some(mut session) = self.sessions.remove(&id) {
            self.leave_state(session.state);
            self.held.forget(&mut session);
            self.balance.moves -= usize::from(session.is_moving);
            if session.is_confirming {
                self.actions.push_back(Action::Handled(id));
            }
        }
    }

    /// Ends a session, or refuses its request.
    pub(super) fn close(&mut self, id: SessionId, closing: Closing) {
        let Some(session) = self.sessions.get(&id) else { return };
        let is_request = session.state.is_request();
        self.stats.count(is_request, closing);
        self.forget(id);
        self.actions.push_back(if is_request {
            Action::Refuse(id, None)
        } else {
            Action::Close(id, closing)
        });
    }

    pub(super) fn serving(&self) -> impl Iterator<Item = u32> {
        let serving = self.workers.iter().filter(|(_, worker)| worker.link.takes_sessions());
        serving.map(|(number, _)| *number)
    }

    /// Number of workers that take sessions, at this node.
    pub fn servers(&self) -> u16 {
        u16::try_from(self.serving().count()).unwrap_or(u16::MAX)
    }

    /// Number of workers that take sessions, at all nodes.
    pub(super) fn all_servers(&self) -> u16 {
        self.servers().saturating_add(self.peers.elsewhere)
    }

    /// Sets the number of workers that take sessions at other nodes of a cluster.
    pub fn set_servers_elsewhere(&mut self, count: u16) {
        self.peers.elsewhere = count;
        self.report_servers();
    }

    /// Reports the number of workers to all of them, if it has changed.
    fn report_servers(&mut self) {
        let peers = self.all_servers();
        if std::mem::replace(&mut self.peers.sent, peers) != peers {
            for worker in self.workers.values_mut() {
                worker.link.write(&ServerEntry::Peers { count: peers });
            }
        }
    }

    pub(super) fn write_to(&mut self, link: u32, entry: &ServerEntry) {
        if let Some(worker) = self.workers.get_mut(&link) {
            worker.link.write(entry);
        }
    }

    /// Sends waiting messages and gives waiting sessions to workers, as far as the links have room, and moves sessions to new workers. Reports
    /// the number of workers.
    pub(super) fn progress(&mut self, now: Instant) {
        self.report_servers();
        let numbers: Vec<u32> = self.serving().collect();
        for number in numbers {
            while let Some(worker) = self.workers.get_mut(&number)
                && worker.link.has_room()
                && let Some(id) = worker.blocked.pop_front()
            {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.is_blocked = false;
                }
                self.drain(id);
            }
        }
        while let Some((_, &id)) = self.line.waiting.first_key_value()
            && let Some(link) = self.choose()
        {
            self.assign(id, link);
        }
        self.balance(now);
    }

    /// The worker with the fewest sessions, of those with room. Workers that don't respond get sessions only if no worker responds.
    pub(super) fn choose(&self) -> Option<u32> {
        let responds = |worker: &Worker| worker.link.takes_sessions() && worker.link.responds();
        let has_responsive = self.workers.values().any(responds);
        let is_free = |worker: &Worker| {
            let has_room = worker.link.has_room() && worker.resuming < RESUMING_MAX;
            has_room && worker.next_handle < u32::MAX && (worker.link.responds() || !has_responsive)
        };
        let free = self.workers.iter().filter(|(_, worker)| is_free(worker));
        free.min_by_key(|(_, worker)| worker.sessions.len()).map(|(number, _)| *number)
    }

    /// Gives a session to a worker.
    pub(super) fn assign(&mut self, id: SessionId, link: u32) {
        let Some(worker) = self.workers.get_mut(&link) else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let handle = Handle(worker.next_handle);
        worker.next_handle += 1;
        let owner = Owner { link, handle };
        let Some(handshake) = session.handshake.clone() else {
            self.set_state(id, State::Resuming(owner));
            self.actions.push_back(Action::Describe(id, handle));
            return;
        };
        let State::Held(place) = session.state else { return };
        let ask = worker.link.asks();
        worker.link.write(&ServerEntry::Open { handle, ask, handshake });
        if ask {
            return self.set_state(id, State::Asking(owner, place));
        }
        self.held.forget_handshake(session);
        self.set_state(id, State::Open(owner));
        self.actions.push_back(Action::Accept(id, None));
    }

    /// Sends the messages of a session that wait for its worker, as far as the link has room.
    pub(super) fn drain(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let State::Open(Owner { link, handle }) = session.state else { return };
        let Some(worker) = self.workers.get_mut(&link) else { return };
        while !session.queue.is_empty() && worker.link.has_room() {
            let messages = session.queue.pop_front().unwrap_or_default();
            self.held.queued_bytes -= session.discount_queued(&messages);
            worker.link.write(&ServerEntry::Message { handle, messages });
            session.written = worker.link.written();
        }
        if !session.queue.is_empty() {
            if !std::mem::replace(&mut session.is_blocked, true) {
                worker.blocked.push_back(id);
            }
            return;
        }
        if std::mem::take(&mut session.is_paused) {
            self.actions.push_back(Action::Continue(id));
        }
        if std::mem::take(&mut session.is_confirming) {
            worker.link.write(&ServerEntry::Nop {});
            worker.confirms.push_back((worker.link.written(), id));
        }
    }
}
