//! When sessions were opened and came to their topics, as places in the log: kept apart from what a fan-out
//! touches, and only where there is a log.

use crate::chunks::Chunks;
use crate::log::Place;
use crate::subscription::Member;
use smallvec::SmallVec;

struct Stamp {
    ordered_since: Place,
    /// By slot of the session.
    member_since: SmallVec<[Place; 2]>,
}

/// The stamps of all sessions, by index. Without a log there are none, and all places are 0.
#[derive(Default)]
pub(crate) struct Stamps(Chunks<Stamp>);

impl Stamps {
    /// A session begins at `index`: an old one, or the next.
    pub(crate) fn open(&mut self, index: u32, now: Place) {
        let fresh = Stamp { ordered_since: now, member_since: SmallVec::new() };
        match self.0.get_mut(index as usize) {
            Some(stamp) => *stamp = fresh,
            None => self.0.push(fresh),
        }
    }

    /// What a session is owed comes in the log's order from `now` on, not before.
    pub(crate) fn reorder(&mut self, index: u32, now: Place) {
        if let Some(stamp) = self.0.get_mut(index as usize) {
            stamp.ordered_since = now;
        }
    }

    /// From which place on what a session is owed comes in the log's order.
    pub(crate) fn ordered_since(&self, index: u32) -> Place {
        self.0.get(index as usize).map_or(0, |stamp| stamp.ordered_since)
    }

    /// A subscription becomes a member of its topic.
    pub(crate) fn join(&mut self, member: Member, now: Place) {
        let Some(stamp) = self.0.get_mut(member.session as usize) else { return };
        let slot = member.subscription as usize;
        if slot >= stamp.member_since.len() {
            stamp.member_since.resize(slot + 1, 0);
        }
        stamp.member_since[slot] = now;
    }

    /// When a member became one.
    pub(crate) fn member_since(&self, member: Member) -> Place {
        let stamp = self.0.get(member.session as usize);
        stamp.and_then(|stamp| stamp.member_since.get(member.subscription as usize)).copied().unwrap_or(0)
    }
}
