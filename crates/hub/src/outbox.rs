//! What one session is owed: names of publications in order, with holes where the oldest were dropped.
//!
//! The first entry lies in the outbox itself, so that a session that keeps up never allocates: it is owed
//! one thing at a time. An entry is either a publication, or the place of a `Latest` subscription, whose
//! newest document is kept with the subscription: replacing it doesn't touch the outbox, and there is at
//! most one place per subscription, so nothing grows while a session stalls.
//!
//! **Invariants.** `first` is empty only where everything is. There are never more holes than half of the
//! entries (and 16), so a session that stalls for ever keeps its memory bounded under `DropOldest` too.

use crate::publication_arena::PublicationRef;
use std::collections::VecDeque;

const HOLE: u32 = u32::MAX;

/// Holes that may stay whatever the length, so that short queues aren't swept all the time.
const HOLES_MIN: usize = 16;

/// One thing that waits: 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Which slot of the session it is for.
    pub(crate) subscription: u32,
    /// What, or [`PublicationRef::NONE`] for the place of a `Latest` subscription.
    pub(crate) publication_ref: PublicationRef,
    /// Bytes of the frame; 0 for a place.
    pub(crate) bytes: u32,
}

impl Entry {
    const HOLE: Self = Self { subscription: HOLE, publication_ref: PublicationRef::NONE, bytes: 0 };

    /// The place of a `Latest` subscription.
    pub(crate) fn marker(subscription: u32) -> Self {
        Self { subscription, publication_ref: PublicationRef::NONE, bytes: 0 }
    }

    pub(crate) fn is_marker(self) -> bool {
        self.publication_ref.is_none()
    }

    fn is_hole(self) -> bool {
        self.subscription == HOLE
    }
}

pub(crate) struct Outbox {
    first: Entry,
    /// Publications that wait: entries, and what is kept for places. Counted by who puts it there; here
    /// because here are 4 bytes to spare.
    pub(crate) waiting: u32,
    // 8 bytes in an idle session; `None` where there is nothing after the first.
    rest: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    entries: VecDeque<Entry>,
    holes: usize,
    // So many entries from the front are known not to be droppable: each is looked at once.
    kept: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { first: Entry::HOLE, waiting: 0, rest: None }
    }
}

impl Outbox {
    pub(crate) fn front(&self) -> Option<Entry> {
        (!self.first.is_hole()).then_some(self.first)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        if self.first.is_hole() {
            self.first = entry;
        } else {
            self.rest.get_or_insert_default().entries.push_back(entry);
        }
    }

    /// Takes the front away.
    pub(crate) fn pop(&mut self) {
        self.first = Entry::HOLE;
        let Some(rest) = &mut self.rest else { return };
        while let Some(entry) = rest.entries.pop_front() {
            rest.kept = rest.kept.saturating_sub(1);
            if !entry.is_hole() {
                self.first = entry;
                break;
            }
            rest.holes -= 1;
        }
        if rest.entries.is_empty() {
            self.rest = None;
        }
    }

    /// Takes the oldest publication out whose subscription may be dropped from.
    pub(crate) fn drop_oldest(&mut self, droppable: impl Fn(u32) -> bool) -> Option<Entry> {
        let droppable =
            |entry: Entry| !entry.is_hole() && !entry.is_marker() && droppable(entry.subscription);
        if droppable(self.first) {
            let dropped = self.first;
            self.pop();
            return Some(dropped);
        }
        let rest = self.rest.as_mut()?;
        let found = rest.entries.range(rest.kept..).position(|entry| droppable(*entry));
        let Some(found) = found else {
            rest.kept = rest.entries.len();
            return None;
        };
        rest.kept += found;
        let dropped = std::mem::replace(&mut rest.entries[rest.kept], Entry::HOLE);
        rest.kept += 1;
        rest.holes += 1;
        if rest.holes > HOLES_MIN && rest.holes * 2 > rest.entries.len() {
            rest.sweep(|entry| !entry.is_hole());
            rest.holes = 0;
            if rest.entries.is_empty() {
                self.rest = None;
            }
        }
        Some(dropped)
    }

    /// Some subscription may be dropped from that couldn't be before.
    pub(crate) fn policy_changed(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.kept = 0;
        }
    }

    /// Takes out all that waits for a subscription, oldest first, its place included.
    pub(crate) fn take_out(&mut self, subscription: u32, mut each: impl FnMut(Entry)) {
        if self.first.subscription == subscription {
            each(self.first);
            self.first = Entry::HOLE;
        }
        if let Some(rest) = &mut self.rest {
            rest.sweep(|entry| {
                if entry.subscription == subscription {
                    each(entry);
                }
                entry.subscription != subscription && !entry.is_hole()
            });
            rest.holes = 0;
        }
        if self.first.is_hole() {
            self.pop();
        }
        if self.rest.as_ref().is_some_and(|rest| rest.entries.is_empty()) {
            self.rest = None;
        }
    }

    /// All that waits, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        let rest = self.rest.iter().flat_map(|rest| rest.entries.iter());
        std::iter::once(&self.first).chain(rest).copied().filter(|entry| !entry.is_hole())
    }
}

impl Rest {
    fn sweep(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        let (mut at, mut kept) = (0, 0);
        self.entries.retain(|entry| {
            let keep = keep(*entry);
            kept += usize::from(keep && at < self.kept);
            at += 1;
            keep
        });
        self.kept = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(subscription: u32, bytes: u32) -> Entry {
        // What is on the arena doesn't matter here, only that it isn't a place.
        Entry { subscription, publication_ref: PublicationRef::for_test(bytes), bytes }
    }

    fn waiting(outbox: &Outbox) -> Vec<(u32, u32)> {
        outbox.iter().map(|e| (e.subscription, e.bytes)).collect()
    }

    fn slots(outbox: &Outbox) -> usize {
        outbox.rest.as_ref().map_or(0, |rest| rest.entries.len())
    }

    #[test]
    fn first_in_first_out_without_memory_when_empty() {
        let mut outbox = Outbox::default();
        for n in 1..=5 {
            outbox.push(entry(0, n));
        }
        for n in 1..=5 {
            assert_eq!(outbox.front(), Some(entry(0, n)));
            outbox.pop();
        }
        assert_eq!(outbox.front(), None);
        outbox.pop();
        assert!(outbox.rest.is_none());
    }

    #[test]
    fn the_oldest_droppable_goes_first() {
        let mut outbox = Outbox::default();
        outbox.push(Entry::marker(7));
        for n in 1..=4 {
            outbox.push(entry(n % 2, n));
        }
        assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, 2)));
        assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, 4)));
        assert_eq!(outbox.drop_oldest(|s| s == 0), None);
        assert_eq!(waiting(&outbox), [(7, 0), (1, 1), (1, 3)]);
        assert_eq!(outbox.drop_oldest(|_| true), None, "each entry is looked at once");
        outbox.policy_changed();
        assert_eq!(outbox.drop_oldest(|_| true), Some(entry(1, 1)));
        outbox.push(entry(0, 6));
        assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, 6)));
        outbox.pop();
        assert_eq!(waiting(&outbox), [(1, 3)]);
    }

    #[test]
    fn dropping_the_first_moves_the_next_up() {
        let mut outbox = Outbox::default();
        outbox.push(entry(0, 1));
        outbox.push(entry(0, 2));
        assert_eq!(outbox.drop_oldest(|_| true), Some(entry(0, 1)));
        assert_eq!(outbox.front(), Some(entry(0, 2)));
        assert_eq!(outbox.drop_oldest(|_| true), Some(entry(0, 2)));
        assert_eq!(outbox.front(), None);
    }

    #[test]
    fn a_stalled_session_that_drops_the_oldest_doesnt_grow() {
        let mut outbox = Outbox::default();
        for n in 0..3 {
            outbox.push(entry(1, n));
        }
        for n in 0..10_000 {
            outbox.push(entry(0, n));
            if n >= 50 {
                assert_eq!(outbox.drop_oldest(|s| s == 0), Some(entry(0, n - 50)));
            }
            assert!(slots(&outbox) <= 2 * 53 + HOLES_MIN, "{} after {n}", slots(&outbox));
        }
        assert_eq!(waiting(&outbox).len(), 53);
    }

    #[test]
    fn taking_a_subscription_out_leaves_the_others() {
        let mut outbox = Outbox::default();
        outbox.push(entry(0, 1));
        outbox.push(Entry::marker(1));
        for n in 2..=6 {
            outbox.push(entry(n % 2, n));
        }
        assert_eq!(outbox.drop_oldest(|s| s == 1), Some(entry(1, 3)));
        let mut out = Vec::new();
        outbox.take_out(0, |e| out.push(e.bytes));
        assert_eq!(out, [1, 2, 4, 6]);
        assert_eq!(waiting(&outbox), [(1, 0), (1, 5)]);
        outbox.take_out(1, |_| {});
        assert!(outbox.front().is_none() && outbox.rest.is_none());
        outbox.take_out(HOLE - 1, |_| unreachable!());
    }
}
