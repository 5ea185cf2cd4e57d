//! Socket.IO sockets that can be recovered: those of connected clients, and those whose client is disconnected, for a
//! while.
//!
//! The hub keeps the rooms of a suspended session, and its log has what is published meanwhile. **Bounds:**
//! `sessions_max` and `age_max` of [`Recovery`](crate::options::Recovery). Above them, a socket ends at once. While memory is short, suspended
//! sockets end before any other holder.
//!
//! A client that changes networks is usually back before the heartbeat finds that it was away. So a client that shows
//! the `pid` of a socket that is still connected takes it over, and its previous connection ends.

use super::Executor;
use super::arrivals::last_of;
use crate::app::HandlerScope;
use crate::encode::Encoding;
use crate::identity::{ClientId, End, Owner, Sid};
use crate::ports::Identity;
use std::sync::Arc;
use stentor_hub::{Room, SessionId};

impl Executor {
    /// Makes a new session recoverable. Returns its slot.
    pub(crate) fn make_recoverable(&mut self, session: SessionId, client: ClientId, room: Room) -> usize {
        let pid = self.draw_sid();
        let slot = self.recovery.insert(session, client, room, pid);
        self.hub.set_tag(session, Owner::Socket(slot).to_tag());
        slot
    }

    /// Ends a socket that a client has left.
    pub fn end_recoverable(&mut self, slot: usize) {
        self.recovery.remove(slot);
    }

    /// Keeps the socket of a disconnected client for a while. Returns whether it is kept; if not, its session is to be
    /// closed.
    pub(crate) fn suspend(&mut self, slot: usize, session: SessionId) -> bool {
        let Some(limits) = self.options().engine.recovery else { return false };
        let has_room = self.recovery.suspended() < limits.sessions_max;
        if has_room && self.hub.handle_suspend(session) {
            self.recovery.suspend(slot, self.context.now + limits.age_max);
            return true;
        }
        self.recovery.remove(slot);
        false
    }

    /// Takes over a socket that is still another client's: the application sees that its session has ended, and the
    /// other client ends after this.
    fn take_over(&mut self, slot: usize, client: ClientId) {
        let Some(before) = self.recovery.client_of(slot).filter(|before| *before != client) else { return };
        let Some((session, pid)) = self.recovery.get(slot).map(|socket| (socket.session, socket.pid)) else {
            return;
        };
        if self.hub.handle_suspend(session) {
            self.recovery.suspend(slot, self.context.now);
        } else {
            self.recovery.remove(slot);
            self.close_session(session);
        }
        self.notify_app(HandlerScope::default(), |app, ctx| app.closed(ctx, session));
        self.end_client(before, End::TakenOver(pid));
    }

    /// Finds the socket of which `client` shows the `pid`, and schedules what it missed after `offset`, in `encoding`. It must be
    /// the same user's. Returns its slot and session.
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
        // Another user's socket stays as it is.
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
        self.recovery.remove(slot);
        self.close_session(session);
        None
    }

    /// Ends a suspended socket before its time is over.
    pub fn end_suspended(&mut self, slot: usize) {
        let Some(session) = self.recovery.get(slot).map(|socket| socket.session) else { return };
        self.recovery.remove(slot);
        self.close_session(session);
    }

    /// Ends suspended sockets whose time is over.
    pub fn expire_suspended(&mut self) {
        while let Some(session) = self.recovery.take_expired(self.context.now) {
            self.close_session(session);
        }
    }
}
