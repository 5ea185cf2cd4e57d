//! Recovery (Socket.IO, protocol 5): the sockets of clients that were lost, kept for a while.
//!
//! The hub keeps a suspended session's rooms, and its log has what is published meanwhile. **Bounds:**
//! [`Recovery`](crate::Recovery)'s `sessions_max` and `age_max`; beyond, a socket ends at once. Where sockets are is known of
//! those, and of those of clients that are there.
//!
//! Who changes networks is mostly back before anything here tells that it was away: the heartbeat would, up to 45 s later
//! as it is by default. So whoever shows the `pid` of a socket that isn't lost yet has lost it, and the connection of before
//! ends.

use super::client::{Client, ClientId, End, Sid, SidHasher, Upper};
use super::socketio::Socket;
use super::{Core, SUSPENDED_TAG};
use crate::encode::parse_offset;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Instant;
use stentor_driver::Driver;
use stentor_hub::{Disconnect, FormatId, Room, SessionId};
use stentor_json as json;

/// What a socket can be recovered by.
pub(super) struct Recovery {
    /// Its secret.
    pub(super) pid: Sid,
    /// A room of its namespace, whose name means nothing: what is sent to it alone is sent there.
    pub(super) room: Room,
}

/// A socket whose client is lost, for a while.
pub(super) struct Suspended {
    pub(super) session: SessionId,
    pub(super) recovery: Box<Recovery>,
    until: Instant,
}

/// Where a socket is that can be recovered.
#[derive(Clone, Copy)]
enum Place {
    /// With a client that isn't known to be lost.
    Client(ClientId),
    /// In this slot of the suspended.
    Slot(usize),
}

/// The sockets of a core that can be recovered, and of these the suspended. Their sessions' tags name their slots.
#[derive(Default)]
pub(super) struct Suspension {
    pub(super) slots: slab::Slab<Suspended>,
    /// Of all, by what their clients show.
    by_pid: HashMap<Sid, Place, BuildHasherDefault<SidHasher>>,
}

impl Suspension {
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Says in which slot it is.
    fn insert(&mut self, suspended: Suspended) -> usize {
        let pid = suspended.recovery.pid;
        let slot = self.slots.insert(suspended);
        self.by_pid.insert(pid, Place::Slot(slot));
        slot
    }

    /// A socket is a client's from now on.
    pub(super) fn connected(&mut self, pid: Sid, client: ClientId) {
        self.by_pid.insert(pid, Place::Client(client));
    }

    /// A socket has ended that wasn't suspended.
    pub(super) fn ended(&mut self, pid: Sid) {
        self.by_pid.remove(&pid);
    }

    fn client_of(&self, pid: Sid) -> Option<ClientId> {
        match *self.by_pid.get(&pid)? {
            Place::Client(client) => Some(client),
            Place::Slot(_) => None,
        }
    }

    /// Takes the socket out that has this `pid`, if it is one of `namespace`.
    fn take(&mut self, pid: Sid, namespace: &str) -> Option<Suspended> {
        let Place::Slot(slot) = *self.by_pid.get(&pid)? else { return None };
        self.slots.get(slot).filter(|suspended| suspended.recovery.room.namespace() == namespace)?;
        self.by_pid.remove(&pid);
        self.slots.try_remove(slot)
    }

    /// Takes out one whose time is over.
    fn take_expired(&mut self, now: Instant) -> Vec<Suspended> {
        let over = self.slots.iter().filter(|(_, suspended)| suspended.until <= now);
        let over: Vec<usize> = over.map(|(slot, _)| slot).collect();
        let mut taken = Vec::with_capacity(over.len());
        for suspended in over.into_iter().filter_map(|slot| self.slots.try_remove(slot)) {
            self.by_pid.remove(&suspended.recovery.pid);
            taken.push(suspended);
        }
        taken
    }
}

impl<D: Driver> Core<D> {
    /// A client is lost, or another `end` is made of it: those of its sockets that can be recovered are kept for a while.
    /// Returns the sessions that end now.
    pub(super) fn suspend(&mut self, upper: Upper, end: End) -> SmallVec<[SessionId; 2]> {
        // Who leaves its namespaces, or broke the protocol, doesn't come back for what it missed.
        let is_lost = end != End::Because(Disconnect::ProtocolError);
        let limits = self.shared.options.engine.recovery;
        let Upper::SocketIo(io) = upper else {
            return match upper {
                Upper::Plain { session, .. } => SmallVec::from_slice(&[session]),
                _ => SmallVec::new(),
            };
        };
        let mut ended = SmallVec::new();
        for Socket { session, recovery, .. } in io.sockets {
            let (Some(recovery), Some(limits)) = (recovery, limits) else {
                ended.push(session);
                continue;
            };
            // What is claimed doesn't wait, so the limit of those that do isn't for it.
            let has_room =
                end == End::TakenOver(recovery.pid) || self.suspended.count() < limits.sessions_max;
            if is_lost && has_room && self.hub.handle_suspend(session) {
                let until = self.facts.now + limits.age_max;
                let slot = self.suspended.insert(Suspended { session, recovery, until });
                self.hub.set_tag(session, SUSPENDED_TAG | slot as u64);
            } else {
                self.suspended.ended(recovery.pid);
                ended.push(session);
            }
        }
        ended
    }

    /// A client shows a `pid`: if that is of a client that isn't known to be lost, it is lost now.
    fn lose_who_came_back(&mut self, id: ClientId, pid: Sid, namespace: &str) {
        let Some(before) = self.suspended.client_of(pid).filter(|before| *before != id) else { return };
        let Some(Client { upper: Upper::SocketIo(io), .. }) = self.clients.get(before) else { return };
        let is_its = |socket: &Socket| socket.recovery.as_ref().is_some_and(|recovery| recovery.pid == pid);
        if io.find(namespace).is_some_and(is_its) {
            self.end_client(before, End::TakenOver(pid));
        }
    }

    /// Finds the socket that client `id` shows the `pid` of, and owes it what it missed, in `format`.
    pub(super) fn resume(
        &mut self,
        id: ClientId,
        auth: &str,
        namespace: &str,
        format: FormatId,
    ) -> Option<(SessionId, Box<Recovery>)> {
        let pid = Sid::parse(&json::string_member(auth, "pid")?)?;
        let offset = json::string_member(auth, "offset");
        self.lose_who_came_back(id, pid, namespace);
        let Suspended { session, recovery, .. } = self.suspended.take(pid, namespace)?;
        self.hub.set_format(session, format);
        let last = match offset.as_deref().map(parse_offset) {
            None => Ok(None),
            Some(Some(0)) => Ok(None),
            Some(Some(offset)) => Ok(Some(offset)),
            Some(None) => Err(()),
        };
        if let Ok(last) = last
            && self.hub.handle_resume(session, last).is_ok()
        {
            self.metrics().recovered.add(1);
            self.suspended.connected(pid, id);
            return Some((session, recovery));
        }
        self.metrics().recoveries_failed.add(1);
        self.hub.handle_close(session);
        None
    }

    /// Lets go of suspended sockets whose time is over.
    pub(super) fn expire_suspended(&mut self) {
        for suspended in self.suspended.take_expired(self.facts.now) {
            self.hub.handle_close(suspended.session);
        }
    }
}
