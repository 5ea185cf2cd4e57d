//! The ends of links and of sessions without a worker: other workers get the sessions, and the policy decides about messages that a worker
//! hasn't acknowledged.

use super::{Action, Application, Closing};
use crate::entry::ServerEntry;
use crate::link::{Aftermath, End};
use crate::session::{Owner, SessionId, State};
use crate::value::Handle;
use std::collections::BTreeMap;
use std::time::Instant;

impl Application {
    /// Ends a session that a worker disconnects, if no worker can do that now: the session waits for one, or its worker gives it back.
    /// Returns `true` if it has ended.
    pub fn disconnect_waiting(&mut self, id: SessionId, now: Instant) -> bool {
        let state = self.sessions.get(&id).map(|session| session.state);
        let Some(State::Waiting(_) | State::Resuming(_) | State::Moving(..)) = state else { return false };
        self.write(id, closed("forced close"), now);
        self.close(id, Closing::Disconnected);
        true
    }

    /// Takes a link's sessions from it, with the messages that its worker hasn't acknowledged.
    pub(super) fn handle_end(&mut self, number: u32, end: End, now: Instant) {
        let Some(worker) = self.workers.get_mut(&number) else { return };
        let aftermath = worker.link.aftermath();
        let sessions = worker.sessions.clone();
        worker.blocked.clear();
        let confirms = std::mem::take(&mut worker.confirms);
        self.actions.extend(confirms.into_iter().map(|(_, id)| Action::Handled(id)));
        if end == End::Stopped {
            self.is_stopped = self.workers.values().all(|worker| worker.link.is_ended());
            sessions.into_values().for_each(|id| self.close(id, Closing::Stopped));
            return;
        }
        self.apply(aftermath, &sessions);
        for id in sessions.into_values() {
            if self.sessions.contains_key(&id) {
                self.wait(id, now);
            }
        }
    }

    /// Ends the time in which a session's worker had to answer. A client's request is refused. A session that moves is taken from its
    /// worker, as after a crash.
    pub(super) fn take_back(&mut self, id: SessionId, now: Instant) {
        match self.sessions.get(&id).map(|session| session.state) {
            Some(state @ State::Moving(Owner { link, handle }, _)) => {
                self.write(id, closed("forced close"), now);
                // The write may have ended the link, with its sessions.
                if self.sessions.get(&id).is_none_or(|session| session.state != state) {
                    return;
                }
                let aftermath = self.workers.get_mut(&link).map(|worker| worker.link.aftermath_of(handle));
                self.apply(aftermath.unwrap_or_default(), &BTreeMap::from([(handle, id)]));
                self.wait(id, now);
                self.progress(now);
            }
            _ => {
                self.write(id, closed("transport close"), now);
                self.close(id, Closing::NoWorker);
            }
        }
    }

    /// Applies a worker's policy to the messages that it hasn't acknowledged.
    fn apply(&mut self, mut aftermath: Aftermath, sessions: &BTreeMap<Handle, SessionId>) {
        self.stats.messages_dropped += aftermath.dropped.len() as u64;
        self.stats.messages_redelivered += aftermath.redelivered.len() as u64;
        let disconnected = aftermath.disconnected.iter().map(|handle| (handle, Closing::Disconnected));
        let crashed = aftermath.closed.iter().map(|handle| (handle, Closing::Crashed));
        for (handle, closing) in disconnected.chain(crashed) {
            if let Some(id) = sessions.get(handle) {
                self.close(*id, closing);
            }
        }
        // The last message first, so that the first one becomes the first of its queue.
        while let Some((handle, messages)) = aftermath.redelivered.pop() {
            if let Some(session) = sessions.get(&handle).and_then(|id| self.sessions.get_mut(id)) {
                self.held.queued_bytes += session.count_queued(&messages);
                session.queue.push_front(messages);
            }
        }
    }
}

/// CLOSED for a session.
fn closed(reason: &str) -> impl FnOnce(Handle) -> ServerEntry {
    let reason = reason.into();
    |handle| ServerEntry::Closed { handle, reason, description: None }
}
