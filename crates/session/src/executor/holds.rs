//! Counts a core's sessions by address and user in the node's tables. Takes eight bytes per session if such a limit is on.

use crate::limits::Slot;
use crate::model::SessionId;
use crate::ports::Principal;
use crate::shared::limits::SharedLimits;
use std::time::Instant;
use stentor_hub::Chunks;

/// The slots of a core's sessions, by their index.
#[derive(Default)]
pub(crate) struct SessionHolds(Chunks<Held>);

#[derive(Clone, Copy, Default)]
struct Held {
    address: Slot,
    user: Slot,
}

/// The key of a user in the table of users.
pub(crate) fn key_of(user: &Principal) -> (&str, &str) {
    (&user.issuer, &user.subject)
}

impl SessionHolds {
    /// Returns `None` if no limit is on.
    pub(crate) fn new(shared: &SharedLimits) -> Option<Self> {
        (shared.sessions.is_some() || shared.users.is_some()).then(Self::default)
    }

    fn at(&mut self, session: SessionId) -> &mut Held {
        let index = session.to_bits() as u32 as usize;
        while self.0.len() <= index {
            self.0.push(Held::default());
        }
        &mut self.0[index]
    }

    /// Counts a new session of an address.
    pub(crate) fn open(&mut self, shared: &SharedLimits, session: SessionId, source: u64, now: Instant) {
        if let Some(sessions) = &shared.sessions {
            self.at(session).address = sessions.hold(source, now);
        }
    }

    /// Counts a session for its user, instead of the user for which it counted before. Anonymous clients (`None`) aren't
    /// counted.
    pub(crate) fn identify(
        &mut self,
        shared: &SharedLimits,
        session: SessionId,
        user: Option<&Principal>,
        now: Instant,
    ) {
        if let Some(users) = &shared.users {
            let held = &mut self.at(session).user;
            users.release(std::mem::take(held));
            *held = user.map_or(Slot::NONE, |user| users.hold(key_of(user), now));
        }
    }

    /// Stops counting a session that has closed. A second call has no effect.
    pub(crate) fn close(&mut self, shared: &SharedLimits, session: SessionId) {
        let held = std::mem::take(self.at(session));
        for (table, slot) in [(&shared.sessions, held.address), (&shared.users, held.user)] {
            if let Some(table) = table {
                table.release(slot);
            }
        }
    }

    /// Size of the entries, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.len() * size_of::<Held>()
    }
}
