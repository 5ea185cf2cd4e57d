//! Members that named a position and wait for the publications after it.

use crate::publication::Position;
use crate::subscription::Member;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Waiting members by topic, then by member.
#[derive(Default)]
pub(crate) struct Awaiting(BTreeMap<(u32, Member), Wait>);

struct Wait {
    since: Position,
    /// Number of the engine's last read when it was asked whether the feed is up to date. `None` if the
    /// engine wasn't asked.
    asked: Option<u64>,
}

impl Awaiting {
    /// Makes a member wait from `since` on; `None` ends its wait. A member that waits already keeps waiting
    /// for the same answer.
    pub(crate) fn set(&mut self, topic: u32, member: Member, since: Option<Position>) {
        let Some(since) = since else {
            self.0.remove(&(topic, member));
            return;
        };
        let wait = self.0.entry((topic, member)).or_insert(Wait { since, asked: None });
        if wait.since != since {
            *wait = Wait { since, asked: None };
        }
    }

    /// Returns the position from which a member waits; `None` if it doesn't wait.
    pub(crate) fn since(&self, topic: u32, member: Member) -> Option<Position> {
        self.0.get(&(topic, member)).map(|wait| wait.since)
    }

    /// Returns `true` if a member waits for an answer of the engine.
    pub(crate) fn has_asked(&self, topic: u32, member: Member) -> bool {
        self.0.get(&(topic, member)).is_some_and(|wait| wait.asked.is_some())
    }

    /// Records a request to the engine for the waiting members of a topic that don't have one yet.
    pub(crate) fn ask(&mut self, topic: u32, asked: u64) {
        for (_, wait) in self.0.range_mut(of_topic(topic)) {
            wait.asked.get_or_insert(asked);
        }
    }

    /// Removes and returns the members of a topic for which the engine was asked before its `read`th read
    /// began.
    pub(crate) fn take_answered(&mut self, topic: u32, read: u64) -> Vec<(Member, Position)> {
        let is_answered = |wait: &Wait| wait.asked.is_some_and(|asked| asked < read);
        let taken = self.0.extract_if(of_topic(topic), |_, wait| is_answered(wait));
        taken.map(|((_, member), wait)| (member, wait.since)).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, topic: u32, member: Member) -> bool {
        self.0.contains_key(&(topic, member))
    }

    /// Iterates over the waiting members of a topic in order, each with the position from which it waits.
    pub(crate) fn of(&self, topic: u32) -> impl Iterator<Item = (Member, Position)> {
        self.0.range(of_topic(topic)).map(|((_, member), wait)| (*member, wait.since))
    }

    /// Removes all waiting members of a topic, in order.
    pub(crate) fn take_all(&mut self, topic: u32) -> Vec<(Member, Position)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.0
            .extract_if(of_topic(topic), |_, _| true)
            .map(|((_, member), wait)| (member, wait.since))
            .collect()
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<((u32, Member), Wait)>() * 3 / 2
    }
}

fn of_topic(topic: u32) -> RangeInclusive<(u32, Member)> {
    (topic, Member::FIRST)..=(topic, Member::LAST)
}
