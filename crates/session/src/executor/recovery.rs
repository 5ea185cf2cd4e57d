//! Socket.IO sockets that can be recovered: the sockets of connected clients, and for a limited time those of disconnected
//! clients (suspended sockets).
//!
//! The hub keeps the rooms of a suspended session, and its log has the messages published in the meantime. **Bounds:**
//! `sessions_max` and `age_max` of [`Recovery`](crate::options::Recovery). Above `sessions_max`, the socket of a client that
//! disconnects ends at once. While memory is short, suspended sockets end before any other holder.
//!
//! A client that changes networks usually reconnects before the heartbeat notices the loss of the previous connection. So a
//! client that presents the `pid` of a connected socket takes the socket over, and the previous connection ends.

use super::Executor;
use super::arrivals::last_of;
use crate::app::{ClientIdentity, HandlerScope};
use crate::encode::Encoding;
use crate::identity::{ClientId, End, Owner, Sid};
use crate::ports::Identity;
use std::sync::Arc;
use stentor_hub::{Room, SessionId};

impl Executor {
    /// Number of sockets whose clients are disconnected and may recover them.
    pub fn suspended(&self) -> usize {
        self.recovery.suspended()
    }

    /// `true` while clients may recover sockets that this core or the application link keeps.
    pub fn keeps_sockets(&self) -> bool {
        self.suspended() > 0 || self.link.as_ref().is_some_and(|link| link.keeps_sockets())
    }

    /// The sockets whose clients are disconnected and may recover them, with their sessions.
    pub fn suspended_sockets(&self) -> impl Iterator<Item = (usize, SessionId)> {
        self.recovery.suspended_sockets()
    }

    /// The socket of a session whose client is disconnected and may recover it.
    pub fn suspended_socket(&self, session: SessionId) -> Option<usize> {
        let Owner::Socket(slot) = self.hub.tag(session).map(Owner::of_tag)? else { return None };
        self.recovery.client_of(slot).is_none().then_some(slot)
    }

    /// Removes the identity of a client that has ended or moves.
    pub fn take_client(&mut self, id: ClientId) -> Option<ClientIdentity> {
        self.questions.identities.take_client(id)
    }

    /// Stores the identity of a client that has moved here.
    pub fn set_client(&mut self, id: ClientId, identity: Option<ClientIdentity>) {
        if let Some(identity) = identity {
            self.questions.identities.set_client(id, identity);
        }
    }

    /// Makes a new session recoverable. Returns its slot.
    pub(crate) fn make_recoverable(&mut self, session: SessionId, client: ClientId, room: Room) -> usize {
        let pid = self.draw_sid();
        let slot = self.recovery.insert(session, client, room, pid);
        self.hub.set_tag(session, Owner::Socket(slot).to_tag());
        slot
    }

    /// Ends a socket that a client has left.
    pub(crate) fn end_recoverable(&mut self, slot: usize) {
        self.recovery.remove(slot);
    }

    /// Suspends the socket of a client that is disconnected for the reason `why`, for a limited time. Returns `false` if the socket
    /// can't be kept: the caller must close its session.
    pub(crate) fn suspend(&mut self, slot: usize, session: SessionId, why: End) -> bool {
        let Some(limits) = self.options().engine.recovery else { return false };
        let has_room = self.recovery.suspended() < limits.sessions_max;
        if has_room && self.hub.handle_suspend(session) {
            self.recovery.suspend(slot, self.context.now + limits.age_max, why);
            return true;
        }
        self.recovery.remove(slot);
        false
    }

    /// Takes a socket from the client that still has it, if that isn't `client`. The application is notified that the
    /// session has closed, and the previous client ends afterwards.
    fn take_over(&mut self, slot: usize, client: ClientId) {
        let Some(before) = self.recovery.client_of(slot).filter(|before| *before != client) else { return };
        let Some(session) = self.recovery.get(slot).map(|socket| socket.session) else { return };
        if self.hub.handle_suspend(session) {
            self.recovery.suspend(slot, self.context.now, End::TakenOver);
        } else {
            self.recovery.remove(slot);
            self.close_session(session, End::TakenOver);
        }
        self.notify_app(HandlerScope::default(), |app, ctx| app.closed(ctx, session));
        self.end_client(before, End::TakenOver);
    }

    /// Finds the socket whose `pid` the client presents, and schedules the messages that the client missed after `offset`, in
    /// `encoding`. The socket must belong to the same user. Returns the socket's slot and session.
    pub(crate) fn recover(
        &mut self,
        client: ClientId,
        pid: Sid,
        offset: Option<&str>,
        namespace: &str,
        encoding: Encoding,
        identity: Option<Arc<Identity>>,
    ) -> Option<(usize, SessionId)> {
        let slot = self.recovery.slot_of(pid)?;
        let socket = self.recovery.get(slot).filter(|socket| socket.room.namespace() == namespace)?;
        // The socket of another user isn't changed.
        if !self.take_over_identity(socket.session, identity) {
            self.metrics().recoveries_failed.add(1);
            return None;
        }
        self.take_over(slot, client);
        let session = self.recovery.get(slot)?.session;
        if !self.recovery.is_suspended(slot) {
            return None;
        }
        self.set_encoding(session, encoding);
        if let Some(last) = last_of(offset)
            && self.hub.handle_resume(session, last).is_ok()
        {
            self.metrics().recovered.add(1);
            self.recovery.resume(slot, client);
            return Some((slot, session));
        }
        self.metrics().recoveries_failed.add(1);
        self.end_suspended(slot, End::TakenOver);
        None
    }

    /// Ends a suspended socket before it expires.
    pub fn end_suspended(&mut self, slot: usize, why: End) {
        let Some(session) = self.recovery.get(slot).map(|socket| socket.session) else { return };
        self.recovery.remove(slot);
        self.close_session(session, why);
    }

    /// Ends the suspended sockets that have expired, for the reasons why their clients are disconnected.
    pub fn expire_suspended(&mut self) {
        while let Some((session, why)) = self.recovery.take_expired(self.context.now) {
            self.close_session(session, why);
        }
    }
}
