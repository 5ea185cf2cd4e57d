//! The memory of topics: their table, and their lists of members, which are counted as they change.

use super::{Homed, Members, TopicState, Topics};
use crate::history::History;
use crate::shrinking::spilled;
use crate::subscription::Member;
use crate::topic::Topic;

impl<F> Topics<F> {
    /// Returns the size of the topics without members, documents and history, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.by_name.allocation_size() + self.referenced_bytes
    }

    /// Returns the size of the lists of members that have an allocation of their own, in bytes.
    pub(crate) fn members_bytes(&self) -> usize {
        self.members_spilled * size_of::<Member>()
    }

    /// Adds a member to a topic. Returns its position in the list.
    pub(crate) fn add_member(&mut self, index: u32, member: Member) -> Option<u32> {
        self.change_members(index, |state| state.add(member))
    }

    /// Removes a member from a topic. Returns the member that moved to its position.
    pub(crate) fn remove_member(&mut self, index: u32, position: u32) -> Option<Member> {
        self.change_members(index, |state| state.remove(position)).flatten()
    }

    /// Removes all members from a topic.
    pub(crate) fn take_members(&mut self, index: u32) -> Members {
        self.change_members(index, |state| std::mem::take(&mut state.members)).unwrap_or_default()
    }

    fn change_members<R>(&mut self, index: u32, change: impl FnOnce(&mut TopicState<F>) -> R) -> Option<R> {
        let state = self.slots.get_mut(index as usize)?;
        let before = spilled(&state.members);
        let result = change(state);
        self.members_spilled = self.members_spilled + spilled(&state.members) - before;
        Some(result)
    }

    /// Returns the size of the memory that a topic references, without members, documents and messages, in bytes.
    pub(super) fn referenced_by(state: &TopicState<F>) -> usize {
        let name = match &state.topic {
            Topic::Feed(key) => key.allocated_bytes(),
            Topic::Room(room) | Topic::Presence(room) => room.allocated_bytes(),
        };
        let homed = if state.homed.is_some() { size_of::<Homed<F>>() } else { 0 };
        let has_history = state.stream().is_some_and(|stream| stream.history.is_some());
        let history = if has_history { size_of::<History<F>>() } else { 0 };
        name + homed + history
    }
}
