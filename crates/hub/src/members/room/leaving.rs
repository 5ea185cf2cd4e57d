//! Members whose session has ended. They leave when the grace period is over.

use super::size::{set_bytes, trim};
use crate::presence::{MemberId, User};
use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Default)]
pub(super) struct Leaving {
    by_time: BTreeSet<(Instant, MemberId)>,
    /// Members of users who may return.
    by_user: BTreeSet<(User, MemberId)>,
}

impl Leaving {
    pub(super) fn insert(&mut self, at: Instant, id: MemberId, user: Option<User>) {
        self.by_time.insert((at, id));
        if let Some(user) = user {
            self.by_user.insert((user, id));
        }
    }

    pub(super) fn remove(&mut self, at: Instant, id: MemberId, user: Option<User>) {
        self.by_time.remove(&(at, id));
        if let Some(user) = user {
            self.by_user.remove(&(user, id));
        }
    }

    /// Returns a member of a user.
    pub(super) fn first_of(&self, user: &User) -> Option<MemberId> {
        let from = (user.clone(), MemberId([0; 15]));
        self.by_user.range(from..).next().filter(|(of, _)| of == user).map(|(_, id)| *id)
    }

    /// Returns the time at which the first member leaves.
    pub(super) fn first_at(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the next member that leaves now. The caller also calls [`Leaving::remove`] for the user.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<MemberId> {
        let (at, id) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.by_time.remove(&(at, id));
        Some(id)
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        set_bytes(&self.by_user) + set_bytes(&self.by_time)
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        trim(&mut self.by_user, BTreeSet::is_empty);
        trim(&mut self.by_time, BTreeSet::is_empty);
    }
}
