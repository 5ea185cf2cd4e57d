//! Recovery (Socket.IO, protocol 5): the sockets of clients that were lost, kept for a while.
//!
//! The hub keeps a suspended session's rooms, and its log has what is published meanwhile. **Bounds:**
//! [`Recovery`](crate::Recovery)'s `sessions_max` and `age_max`; beyond, a socket ends at once.

use super::client::{Sid, SidHasher, Upper};
use super::socketio::Socket;
use super::{Core, SUSPENDED_TAG};
use crate::format;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Instant;
use stentor_driver::Driver;
use stentor_hub::{FormatId, Room, SessionId};
use stentor_wire::json;

/// What a socket can be recovered by.
pub(super) struct Recovery {
    /// Its secret.
    pub(super) pid: Sid,
    /// The id that it is known by.
    pub(super) id: Sid,
    /// A room of its namespace, whose name means nothing: what is sent to it alone is sent there.
    pub(super) room: Room,
}

/// A socket whose client is lost, for a while.
pub(super) struct Suspended {
    pub(super) session: SessionId,
    pub(super) recovery: Box<Recovery>,
    until: Instant,
}

/// The suspended sockets of a core. Their sessions' tags name their slots.
#[derive(Default)]
pub(super) struct Suspension {
    pub(super) slots: slab::Slab<Suspended>,
    by_pid: HashMap<Sid, usize, BuildHasherDefault<SidHasher>>,
}

impl Suspension {
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Says in which slot it is.
    fn insert(&mut self, suspended: Suspended) -> usize {
        let pid = suspended.recovery.pid;
        let slot = self.slots.insert(suspended);
        self.by_pid.insert(pid, slot);
        slot
    }

    /// Takes the socket out that has this `pid`, if it is one of `namespace`.
    fn take(&mut self, pid: Sid, namespace: &str) -> Option<Suspended> {
        let slot = *self.by_pid.get(&pid)?;
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
    /// A client is lost: those of its sockets that can be recovered are kept for a while. Returns the sessions that
    /// end now.
    pub(super) fn suspend(&mut self, upper: Upper, is_lost: bool) -> SmallVec<[SessionId; 2]> {
        let limits = self.shared.options.engine.recovery;
        let Upper::SocketIo(io) = upper else {
            return match upper {
                Upper::Plain { session, .. } => SmallVec::from_slice(&[session]),
                _ => SmallVec::new(),
            };
        };
        let mut ended = SmallVec::new();
        for Socket { session, recovery, .. } in io.sockets {
            match (recovery, limits) {
                (Some(recovery), Some(limits)) if is_lost && self.suspended.count() < limits.sessions_max => {
                    let until = self.facts.now + limits.age_max;
                    if self.hub.handle_suspend(session) {
                        let slot = self.suspended.insert(Suspended { session, recovery, until });
                        self.hub.set_tag(session, SUSPENDED_TAG | slot as u64);
                    } else {
                        ended.push(session);
                    }
                }
                _ => ended.push(session),
            }
        }
        ended
    }

    /// Finds the suspended socket that a client shows the `pid` of, and owes it what it missed, in `format`.
    pub(super) fn resume(
        &mut self,
        auth: &str,
        namespace: &str,
        format: FormatId,
    ) -> Option<(SessionId, Box<Recovery>)> {
        let pid = Sid::parse(&json::string_member(auth, "pid")?)?;
        let offset = json::string_member(auth, "offset");
        let Suspended { session, recovery, .. } = self.suspended.take(pid, namespace)?;
        self.hub.set_format(session, format);
        let last = match offset.as_deref().map(format::parse_offset) {
            None => Ok(None),
            Some(Some(0)) => Ok(None),
            Some(Some(offset)) => Ok(Some(offset)),
            Some(None) => Err(()),
        };
        if let Ok(last) = last
            && self.hub.handle_resume(session, last).is_ok()
        {
            self.metrics().recovered.add(1);
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
