//! Changes of membership that haven't been reported to the home core of a room's presence yet: the current
//! state of each session, not each change.
//!
//! **Invariant.** A session waits for a room at most once, and only while its membership differs from the
//! last reported one.

use super::room::table_bytes;
use crate::dispatch::CoreId;
use crate::presence::Absence;
use crate::session_id::SessionId;
use crate::topic::Room;
use crate::topics::Seeded;
use std::collections::HashMap;

/// A session that joined or left a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipChange {
    /// The room.
    pub room: Room,
    /// The session.
    pub session: SessionId,
    /// `None` if the session joined, otherwise the reason why it left.
    pub absence: Option<Absence>,
}

/// Changes of one shard's sessions, by home core of the receiving presence.
pub(crate) struct Changes {
    waiting: Vec<HashMap<(Room, SessionId), Option<Absence>, Seeded>>,
    count: usize,
}

impl Changes {
    pub(crate) fn new(cores: usize, seed: [u64; 2]) -> Self {
        Self { waiting: (0..cores).map(|_| HashMap::with_hasher(Seeded(seed))).collect(), count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records that a session joined or left, which reverses its previous membership.
    pub(crate) fn set(&mut self, home: CoreId, room: &Room, session: SessionId, absence: Option<Absence>) {
        let waiting = &mut self.waiting[home];
        let key = (room.clone(), session);
        match waiting.remove(&key) {
            // The home core already has this membership.
            Some(before) if before.is_none() != absence.is_none() => {
                self.count -= 1;
                if waiting.is_empty() {
                    waiting.shrink_to_fit();
                }
            }
            before => {
                self.count += usize::from(before.is_none());
                waiting.insert(key, absence);
            }
        }
    }

    /// Takes the changes for a home core.
    pub(crate) fn take(&mut self, home: CoreId, changes: &mut Vec<MembershipChange>) {
        let waiting = &mut self.waiting[home];
        let hasher = *waiting.hasher();
        let taken = std::mem::replace(waiting, HashMap::with_hasher(hasher));
        self.count -= taken.len();
        changes.extend(taken.into_iter().map(|((room, session), absence)| MembershipChange {
            room,
            session,
            absence,
        }));
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting
            .iter()
            .map(|waiting| table_bytes::<((Room, SessionId), Option<Absence>)>(waiting.capacity()))
            .sum()
    }
}

#[cfg(test)]
mod tests;
