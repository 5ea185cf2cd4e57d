//! Fair queueing of first fetches. Addresses take turns, and within an address its sessions. A session's keys are
//! fetched in the order of its requests. A client that requests thousands of keys therefore delays no other client.
//!
//! Both levels use the two lists of RFC 8290 (FlowQueue-CoDel, section 4.2). A new queue is served before the old
//! ones, so that a client's first key doesn't wait for a whole round. An empty queue stays in the list until its
//! turn; otherwise it would count as new with each key. At most [`NEW_IN_ROW_MAX`] new queues are served in a row, so
//! that an endless supply of new queues can't starve the old ones.
//!
//! **Invariants.** `len` is the sum of the children's lengths. `by_len` contains exactly the children that aren't
//! empty. Every child is in one of the two lists, once. No state is kept while no key waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stentor_hub::{Key, Requester};

/// After this many new queues in a row, an old one is served if one waits.
const NEW_IN_ROW_MAX: u32 = 3;

/// The session that a key is fetched for: the first requester, or a later one that waits for fewer keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    /// The address.
    source: u64,
    /// Core and session; `None` if the requester is unknown.
    session: Option<(usize, u64)>,
}

impl Owner {
    /// Whether the requester is unknown.
    pub(super) fn is_nobody(self) -> bool {
        self.session.is_none()
    }

    /// The first owner of this address, in their order.
    pub(super) fn first_of_address(self) -> Self {
        Self { session: None, ..self }
    }

    /// Whether both have the same address.
    pub(super) fn is_of_address(self, other: Self) -> bool {
        self.source == other.source
    }
}

impl From<&Requester> for Owner {
    fn from(requester: &Requester) -> Self {
        let Requester { source, core, session } = *requester;
        Self { source, session: Some((core, session.to_bits())) }
    }
}

/// The operations of both levels.
trait Queue: Default {
    /// The position of a key.
    type At: Copy;

    fn len(&self) -> usize;
    fn insert(&mut self, at: Self::At, key: Key);
    fn remove(&mut self, at: Self::At);
    /// The key whose turn it is. It stays until it is removed, but its turn is over.
    fn next(&mut self) -> Option<Key>;
    /// The last requested key of the longest queue.
    fn last_of_longest(&self) -> Option<&Key>;
}

/// The keys of a session by their tickets.
#[derive(Default)]
struct Tickets(BTreeMap<u64, Key>);

impl Queue for Tickets {
    type At = u64;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn insert(&mut self, at: u64, key: Key) {
        self.0.insert(at, key);
    }

    fn remove(&mut self, at: u64) {
        self.0.remove(&at);
    }

    fn next(&mut self) -> Option<Key> {
        self.0.first_key_value().map(|(_, key)| key.clone())
    }

    fn last_of_longest(&self) -> Option<&Key> {
        self.0.last_key_value().map(|(_, key)| key)
    }
}

/// Queues that take turns.
struct Turns<I, Q> {
    children: BTreeMap<I, Q>,
    /// The new queues (not served since they began to wait) and the old ones, each with the next one first.
    new: VecDeque<I>,
    old: VecDeque<I>,
    new_in_row: u32,
    by_len: BTreeSet<(usize, I)>,
    len: usize,
}

impl<I, Q> Default for Turns<I, Q> {
    fn default() -> Self {
        Self {
            children: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            new_in_row: 0,
            by_len: BTreeSet::new(),
            len: 0,
        }
    }
}

impl<I: Copy + Ord, Q: Queue> Turns<I, Q> {
    fn is_empty(&self, id: I) -> bool {
        self.children.get(&id).is_none_or(|child| child.len() == 0)
    }

    /// Updates `by_len` after the length of a child has changed.
    fn changed(&mut self, id: I, before: usize) {
        let now = self.children.get(&id).map_or(0, Queue::len);
        self.by_len.remove(&(before, id));
        if now > 0 {
            self.by_len.insert((now, id));
        }
        self.len = self.len + now - before;
        if self.len == 0 {
            *self = Self::default();
        }
    }
}

impl<I: Copy + Ord, Q: Queue> Queue for Turns<I, Q> {
    type At = (I, Q::At);

    fn len(&self) -> usize {
        self.len
    }

    fn insert(&mut self, (id, at): Self::At, key: Key) {
        let new = &mut self.new;
        let child = self.children.entry(id).or_insert_with(|| {
            new.push_back(id);
            Q::default()
        });
        let before = child.len();
        child.insert(at, key);
        self.changed(id, before);
    }

    fn remove(&mut self, (id, at): Self::At) {
        let Some(child) = self.children.get_mut(&id) else { return };
        let before = child.len();
        child.remove(at);
        self.changed(id, before);
    }

    fn next(&mut self) -> Option<Key> {
        if self.len == 0 {
            return None;
        }
        loop {
            while let Some(id) = self.old.front().copied().filter(|id| self.is_empty(*id)) {
                self.old.pop_front();
                self.children.remove(&id);
            }
            let is_new = !self.new.is_empty() && (self.new_in_row < NEW_IN_ROW_MAX || self.old.is_empty());
            let id = if is_new { self.new.pop_front() } else { self.old.pop_front() }?;
            self.old.push_back(id);
            // A new queue that is empty lost its keys before its turn.
            if self.is_empty(id) {
                continue;
            }
            self.new_in_row = if is_new { self.new_in_row + 1 } else { 0 };
            return self.children.get_mut(&id)?.next();
        }
    }

    fn last_of_longest(&self) -> Option<&Key> {
        let (_, id) = self.by_len.last()?;
        self.children.get(id)?.last_of_longest()
    }
}

type Sessions = Turns<Option<(usize, u64)>, Tickets>;

/// Keys that wait for their first fetch.
#[derive(Default)]
pub(super) struct FairQueue(Turns<u64, Sessions>);

impl FairQueue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a key. A greater ticket comes later in its session's queue.
    pub(super) fn insert(&mut self, owner: Owner, ticket: u64, key: Key) {
        self.0.insert((owner.source, (owner.session, ticket)), key);
    }

    /// Takes a key out, if it is there.
    pub(super) fn remove(&mut self, owner: Owner, ticket: u64) {
        self.0.remove((owner.source, (owner.session, ticket)));
    }

    /// The key whose turn it is. It stays until it is removed, but its turn is over.
    pub(super) fn next(&mut self) -> Option<Key> {
        self.0.next()
    }

    /// The length of the longest queue of an address.
    pub(super) fn longest(&self) -> usize {
        self.0.by_len.last().map_or(0, |(len, _)| *len)
    }

    /// The last requested key of the longest session queue of the longest address queue.
    pub(super) fn last_of_longest(&self) -> Option<&Key> {
        self.0.last_of_longest()
    }

    /// The number of keys that an owner's address waits for, and its session. The owner with fewer keys is served
    /// sooner.
    pub(super) fn waiting_of(&self, owner: Owner) -> (usize, usize) {
        let Some(address) = self.0.children.get(&owner.source) else { return (0, 0) };
        (address.len(), address.children.get(&owner.session).map_or(0, Queue::len))
    }
}

#[cfg(test)]
mod tests;
