//! The pending publications of one session in order, with holes for dropped ones.
//!
//! The first entry is stored in the outbox itself, so that a session that keeps up never allocates. An entry
//! is either a publication, or the marker of a `Latest` subscription, whose newest document is stored with
//! the subscription. Replacing the document doesn't touch the outbox, and there is at most one marker per
//! subscription, so the outbox doesn't grow while a session stalls.
//!
//! **Invariants.** `first` is empty only if the outbox is empty. At most half of the entries (or 16) are
//! holes, so the memory of a session that stalls forever is bounded under `DropOldest` too.

use crate::publication_arena::PublicationRef;
use std::collections::VecDeque;

const HOLE: u32 = u32::MAX;

/// Number of holes that are always allowed, so that short queues aren't compacted all the time.
const HOLES_MIN: usize = 16;

/// One pending publication: 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The slot of the session's subscription.
    pub(crate) subscription: u32,
    /// The publication, or [`PublicationRef::NONE`] for the marker of a `Latest` subscription.
    pub(crate) publication_ref: PublicationRef,
    /// Size of the frame in bytes; 0 for a marker.
    pub(crate) bytes: u32,
}

impl Entry {
    const HOLE: Self = Self { subscription: HOLE, publication_ref: PublicationRef::NONE, bytes: 0 };

    /// Makes the marker of a `Latest` subscription.
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
    /// Number of waiting publications: entries, and publications behind markers. The callers count them; the
    /// field is here because this struct has 4 bytes to spare.
    pub(crate) waiting: u32,
    // 8 bytes in an idle session; `None` if the outbox has at most one entry.
    rest: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    entries: VecDeque<Entry>,
    holes: usize,
    // Number of entries at the front that are known not to be droppable: each is checked once.
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

    /// Removes the first entry.
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

    /// Removes the oldest publication of a subscription that allows it.
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

    /// Resets the check for droppable entries after a subscription's policy has changed.
    pub(crate) fn policy_changed(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.kept = 0;
        }
    }

    /// Removes all entries of a subscription, oldest first, its marker included.
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

    /// Iterates over all entries, oldest first.
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
mod tests;
