//! The entries of a room's members: by id, by the time at which they leave, and those that watchers don't know.
//!
//! Most rooms have few members, so a room with at most [`FEW_MAX`] members keeps them in one sorted list, and every
//! question walks the list. A larger room has a tree for each question. It returns to the list at [`FEW_AGAIN`]
//! members, so that a member who joins and leaves repeatedly doesn't rebuild the trees each time.
//!
//! **Invariant.** The answers don't depend on the form.

mod many;

use super::{Entry, Unreported};
use crate::presence::{MemberId, User};
use many::Many;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Instant;

/// Maximum number of members in a list.
const FEW_MAX: usize = 8;
/// Number of members at which the trees of a larger room become a list again.
const FEW_AGAIN: usize = 4;

/// The members in the order of their ids, without spare capacity.
type Few = Vec<Entry>;

pub(super) enum Entries {
    Few(Few),
    Many(Box<Many>),
}

impl Default for Entries {
    fn default() -> Self {
        Self::Few(Few::new())
    }
}

impl Entries {
    /// Adds a member that isn't among the entries.
    pub(super) fn insert(&mut self, entry: Entry) {
        if let Self::Few(few) = self
            && few.len() == FEW_MAX
        {
            *self = Self::Many(Box::new(std::mem::take(few).into_iter().collect()));
        }
        match self {
            Self::Few(few) => {
                let (Ok(at) | Err(at)) = position(few, entry.id);
                few.reserve_exact(1);
                few.insert(at, entry);
            }
            Self::Many(many) => many.insert(entry),
        }
    }

    pub(super) fn remove(&mut self, id: MemberId) -> Option<Entry> {
        match self {
            Self::Few(few) => {
                let entry = few.remove(position(few, id).ok()?);
                few.shrink_to_fit();
                Some(entry)
            }
            Self::Many(many) => {
                let entry = many.remove(id);
                if many.len() <= FEW_AGAIN {
                    *self = Self::Few(std::mem::take(&mut **many).into_few());
                }
                entry
            }
        }
    }

    /// Records that a member is on another node than before.
    pub(super) fn move_to(&mut self, id: MemberId, node: u64) {
        // The member's texts may have belonged to a session that has left this node, so the record owns
        // them.
        match self {
            Self::Few(few) => {
                if let Ok(at) = position(few, id) {
                    (few[at].node, few[at].owns_texts) = (node, true);
                }
            }
            Self::Many(many) => many.move_to(id, node),
        }
    }

    /// Records when a member leaves. `None`: the member stays.
    pub(super) fn set_leaves_at(&mut self, id: MemberId, leaves_at: Option<Instant>) {
        match self {
            Self::Few(few) => {
                if let Ok(at) = position(few, id) {
                    few[at].leaves_at = leaves_at;
                }
            }
            Self::Many(many) => many.set_leaves_at(id, leaves_at),
        }
    }

    /// Marks all members as known to watchers. Returns those that weren't, in the order of their ids.
    pub(super) fn report(&mut self) -> Vec<(MemberId, Unreported)> {
        match self {
            Self::Few(few) => {
                few.iter_mut().filter_map(|entry| Some((entry.id, entry.unreported.take()?))).collect()
            }
            Self::Many(many) => many.report(),
        }
    }

    pub(super) fn get(&self, id: MemberId) -> Option<&Entry> {
        match self {
            Self::Few(few) => position(few, id).ok().map(|at| &few[at]),
            Self::Many(many) => many.listed.get(&id).or_else(|| many.unlisted.get(&id)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    /// Returns the number of members with a record.
    pub(super) fn listed_len(&self) -> usize {
        match self {
            Self::Few(few) => few.iter().filter(|entry| entry.member.is_some()).count(),
            Self::Many(many) => many.listed.len(),
        }
    }

    /// Iterates over the members in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let (few, many) = self.forms();
        few.iter().chain(many.into_iter().flat_map(Many::iter))
    }

    /// Iterates over the members with a record after `after`, in the order of their ids.
    pub(super) fn listed(&self, after: Option<MemberId>) -> impl Iterator<Item = &Entry> {
        let (few, many) = self.forms();
        let from = few.partition_point(|entry| after.is_some_and(|after| entry.id <= after));
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        let trees = many.into_iter().flat_map(move |many| many.listed.range(range)).map(|(_, entry)| entry);
        few[from..].iter().filter(|entry| entry.member.is_some()).chain(trees)
    }

    fn forms(&self) -> (&[Entry], Option<&Many>) {
        match self {
            Self::Few(few) => (few, None),
            Self::Many(many) => (&[], Some(many)),
        }
    }

    /// Returns the first member of a user that is about to leave.
    pub(super) fn leaving_of(&self, user: &User) -> Option<MemberId> {
        match self {
            Self::Few(few) => few
                .iter()
                .find(|entry| entry.leaves_at.is_some() && entry.user() == Some(user))
                .map(|entry| entry.id),
            Self::Many(many) => many.leaving.first_of(user),
        }
    }

    /// Returns the member that leaves first, with the time.
    pub(super) fn first_leaving(&self) -> Option<(Instant, MemberId)> {
        match self {
            Self::Few(few) => few.iter().filter_map(|entry| Some((entry.leaves_at?, entry.id))).min(),
            Self::Many(many) => many.leaving.by_time.first().copied(),
        }
    }

    /// Returns the approximate size in bytes, without texts of this node's sessions.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Few(few) => {
                let records: usize = few.iter().map(Entry::record_bytes).sum();
                records + few.capacity() * size_of::<Entry>()
            }
            Self::Many(many) => many.bytes(),
        }
    }

    /// Frees the nodes of empty trees.
    pub(super) fn trim(&mut self) {
        if let Self::Many(many) = self {
            many.trim();
        }
    }

    /// Returns `true` if the invariants hold. Takes time linear in the members.
    pub(super) fn is_counted(&self) -> bool {
        match self {
            Self::Few(few) => few.len() <= FEW_MAX && few.is_sorted_by_key(|entry| entry.id),
            Self::Many(many) => many.len() > FEW_AGAIN && many.is_counted(),
        }
    }
}

/// Searches a member in a list.
fn position(few: &[Entry], id: MemberId) -> Result<usize, usize> {
    few.binary_search_by_key(&id, |entry| entry.id)
}

#[cfg(test)]
mod tests;
