//! The positions that clients named, of members that wait for what followed them.

use crate::publication::Position;
use crate::subscription::Member;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// By topic, then by member.
#[derive(Default)]
pub(crate) struct Awaiting(BTreeMap<(u32, Member), Position>);

impl Awaiting {
    /// A member waits from `since` on; without it, it waits no longer.
    pub(crate) fn set(&mut self, topic: u32, member: Member, since: Option<Position>) {
        match since {
            Some(since) => self.0.insert((topic, member), since),
            None => self.0.remove(&(topic, member)),
        };
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, topic: u32, member: Member) -> bool {
        self.0.contains_key(&(topic, member))
    }

    /// The members of a topic that wait, in their order.
    pub(crate) fn of(&self, topic: u32) -> impl Iterator<Item = Member> {
        self.0.range(of_topic(topic)).map(|((_, member), _)| *member)
    }

    /// Removes all members of a topic, in their order.
    pub(crate) fn take_all(&mut self, topic: u32) -> Vec<(Member, Position)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.0.extract_if(of_topic(topic), |_, _| true).map(|((_, member), since)| (member, since)).collect()
    }

    /// Their approximate size.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<((u32, Member), Position)>() * 3 / 2
    }
}

fn of_topic(topic: u32) -> RangeInclusive<(u32, Member)> {
    (topic, Member::FIRST)..=(topic, Member::LAST)
}
