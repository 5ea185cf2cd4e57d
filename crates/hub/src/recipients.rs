//! The members of several topics, each session once: for what is emitted to more than one room, or with
//! more exceptions than one session.

use crate::subscription::Member;

/// A recipients in the making. Takes a bit and up to 8 bytes per session of the shard, and is used over and over.
#[derive(Default)]
pub(crate) struct Recipients {
    /// Those that are in it, or that are to be left out.
    seen: Seen,
    members: Vec<Member>,
}

impl Recipients {
    pub(crate) fn clear(&mut self) {
        self.seen.0.clear();
        self.members.clear();
    }

    /// Leaves a session out of what is added from now on.
    pub(crate) fn exclude(&mut self, session: u32) {
        self.seen.add(session);
    }

    /// Adds members whose sessions weren't seen yet.
    pub(crate) fn add(&mut self, members: &[Member]) {
        for member in members {
            if self.seen.add(member.session) {
                self.members.push(*member);
            }
        }
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }
}

/// A set of sessions of a shard, by their index: a bit for each.
#[derive(Default)]
pub(crate) struct Seen(Vec<u64>);

impl Seen {
    /// Adds a session. Returns whether it wasn't in the set before.
    pub(crate) fn add(&mut self, session: u32) -> bool {
        let (word, bit) = (session as usize / 64, 1 << (session % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_once_by_the_first_topic() {
        let member = |session, subscription| Member { session, subscription };
        let mut recipients = Recipients::default();
        recipients.exclude(130);
        recipients.add(&[member(64, 0), member(130, 0), member(63, 0)]);
        recipients.add(&[member(63, 1), member(5, 1), member(64, 1)]);
        assert_eq!(recipients.members(), [member(64, 0), member(63, 0), member(5, 1)]);
        recipients.clear();
        recipients.add(&[member(130, 2)]);
        assert_eq!(recipients.members(), [member(130, 2)]);
    }
}
