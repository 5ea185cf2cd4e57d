//! What the sessions of a core hold in the tables of the node: eight bytes beside a session, if one of its limits is on.

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

/// A user, as the table of users knows it.
pub(crate) fn key_of(user: &Principal) -> (&str, &str) {
    (&user.issuer, &user.subject)
}

impl SessionHolds {
    /// `None` if nothing is counted.
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

    /// A session of an address has opened.
    pub(crate) fn open(&mut self, shared: &SharedLimits, session: SessionId, source: u64, now: Instant) {
        if let Some(sessions) = &shared.sessions {
            self.at(session).address = sessions.hold(source, now);
        }
    }

    /// A session has got its identity, or a newer one of the same user. `user` is a number for it. Anonymous clients aren't
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

    /// A session has closed. Does nothing for one that has before.
    pub(crate) fn close(&mut self, shared: &SharedLimits, session: SessionId) {
        let held = std::mem::take(self.at(session));
        for (table, slot) in [(&shared.sessions, held.address), (&shared.users, held.user)] {
            if let Some(table) = table {
                table.release(slot);
            }
        }
    }

    /// The size, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.len() * size_of::<Held>()
    }
}
