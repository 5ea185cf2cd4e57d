//! The members of several topics, each session once: the recipients of messages to more than one room, or
//! with more exceptions than one session.

use crate::subscription::Member;

/// A set of recipients. Takes a bit and up to 8 bytes per session of the shard. Its memory is reused for
/// later messages.
#[derive(Default)]
pub(crate) struct Recipients {
    /// Sessions that are in the set, or excluded.
    seen: Seen,
    members: Vec<Member>,
}

impl Recipients {
    pub(crate) fn clear(&mut self) {
        self.seen.0.clear();
        self.members.clear();
    }

    /// Excludes a session from later calls of `add`.
    pub(crate) fn exclude(&mut self, session: u32) {
        self.seen.add(session);
    }

    /// Adds members of sessions that aren't in the set and aren't excluded.
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

/// A set of a shard's sessions by index: a bit for each.
#[derive(Default)]
pub(crate) struct Seen(Vec<u64>);

impl Seen {
    /// Adds a session. Returns `true` if it wasn't in the set before.
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
    fn a_session_is_added_once_with_its_first_subscription() {
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
