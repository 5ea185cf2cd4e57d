//! Fair queueing of first fetches and of questions to hooks. Addresses take turns, and so do the sessions of
//! an address. The items of a session are served in the order of its requests. A client with thousands of
//! items therefore delays no other client.
//!
//! Both levels use the two lists of RFC 8290 (FlowQueue-CoDel, section 4.2). A new queue is served before the
//! old ones, so that a client's first item doesn't wait for a complete round. An empty queue stays in the
//! list until its turn; otherwise it would count as new with each item. At most [`NEW_IN_ROW_MAX`] new queues
//! are served in a row, so that a constant stream of new queues can't starve the old ones.
//!
//! **Invariants.** `len` is the sum of the children's lengths. `by_len` contains exactly the children that aren't
//! empty. Every child is in one of the two lists, once. No state is kept while no item waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stentor_hub::{Key, Requester};

/// Maximum number of new queues that are served in a row while an old one waits.
const NEW_IN_ROW_MAX: u32 = 3;

/// The session for which an item waits. The owner of a key is its first requester, or a later requester that
/// waits for fewer keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    /// The address.
    source: u64,
    /// Core and session. `None` if the requester is unknown.
    session: Option<(usize, u64)>,
}

impl Owner {
    /// Makes the owner for a client of this address. `session` is any number that identifies its session.
    pub(crate) fn new(source: u64, session: u64) -> Self {
        Self { source, session: Some((0, session)) }
    }

    /// Returns `true` if the requester is unknown.
    pub(crate) fn is_unknown(self) -> bool {
        self.session.is_none()
    }

    /// Returns the smallest possible owner with this address, in the order of owners.
    pub(crate) fn first_of_address(self) -> Self {
        Self { session: None, ..self }
    }

    /// Returns `true` if both owners have the same address.
    pub(crate) fn is_of_address(self, other: Self) -> bool {
        self.source == other.source
    }
}

impl From<&Requester> for Owner {
    fn from(requester: &Requester) -> Self {
        let Requester { source, core, session } = *requester;
        Self { source, session: Some((core, session.to_bits())) }
    }
}

/// A waiting item.
pub(crate) trait Item: Clone {
    /// Returns the item's share of a queue's length, at least 1.
    fn len(&self) -> usize {
        1
    }
}

impl Item for Key {}

/// The operations of both levels.
trait Queue: Default {
    type Item: Item;
    /// The position of an item.
    type At: Copy;

    /// Returns the sum of the items' lengths.
    fn len(&self) -> usize;
    fn insert(&mut self, at: Self::At, item: Self::Item);
    fn remove(&mut self, at: Self::At);
    /// Returns the item whose turn it is, and ends its turn. The item stays until it is removed.
    fn next(&mut self) -> Option<Self::Item>;
    /// Returns the last requested item of the longest queue.
    fn last_of_longest(&self) -> Option<&Self::Item>;
}

/// The items of a session, by ticket.
struct Tickets<V> {
    items: BTreeMap<u64, V>,
    len: usize,
}

impl<V> Default for Tickets<V> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), len: 0 }
    }
}

impl<V: Item> Queue for Tickets<V> {
    type Item = V;
    type At = u64;

    fn len(&self) -> usize {
        self.len
    }

    fn insert(&mut self, at: u64, item: V) {
        self.len += item.len();
        let replaced = self.items.insert(at, item);
        self.len -= replaced.map_or(0, |item| item.len());
    }

    fn remove(&mut self, at: u64) {
        self.len -= self.items.remove(&at).map_or(0, |item| item.len());
    }

    fn next(&mut self) -> Option<V> {
        self.items.first_key_value().map(|(_, item)| item.clone())
    }

    fn last_of_longest(&self) -> Option<&V> {
        self.items.last_key_value().map(|(_, item)| item)
    }
}

/// Queues that take turns.
struct Turns<I, Q> {
    children: BTreeMap<I, Q>,
    /// The new queues, in the order of their turns. They have had no turn since their first item arrived.
    new: VecDeque<I>,
    /// The old queues, in the order of their turns.
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

    /// Updates `by_len` after the length of a child has changed from `before`.
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
    type Item = Q::Item;
    type At = (I, Q::At);

    fn len(&self) -> usize {
        self.len
    }

    fn insert(&mut self, (id, at): Self::At, item: Q::Item) {
        let new = &mut self.new;
        let child = self.children.entry(id).or_insert_with(|| {
            new.push_back(id);
            Q::default()
        });
        let before = child.len();
        child.insert(at, item);
        self.changed(id, before);
    }

    fn remove(&mut self, (id, at): Self::At) {
        let Some(child) = self.children.get_mut(&id) else { return };
        let before = child.len();
        child.remove(at);
        self.changed(id, before);
    }

    fn next(&mut self) -> Option<Q::Item> {
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
            // A new queue is empty if its items were removed before its turn.
            if self.is_empty(id) {
                continue;
            }
            self.new_in_row = if is_new { self.new_in_row + 1 } else { 0 };
            return self.children.get_mut(&id)?.next();
        }
    }

    fn last_of_longest(&self) -> Option<&Q::Item> {
        let (_, id) = self.by_len.last()?;
        self.children.get(id)?.last_of_longest()
    }
}

type Sessions<V> = Turns<Option<(usize, u64)>, Tickets<V>>;

/// The waiting items: keys that wait for their first fetch, or questions that wait for a request.
pub(crate) struct FairQueue<V>(Turns<u64, Sessions<V>>);

impl<V> Default for FairQueue<V> {
    fn default() -> Self {
        Self(Turns::default())
    }
}

impl<V: Item> FairQueue<V> {
    /// Returns the sum of the items' lengths.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an item. Its session's queue is ordered by `ticket`.
    pub(crate) fn insert(&mut self, owner: Owner, ticket: u64, item: V) {
        self.0.insert((owner.source, (owner.session, ticket)), item);
    }

    /// Removes the item with this ticket, if it exists.
    pub(crate) fn remove(&mut self, owner: Owner, ticket: u64) {
        self.0.remove((owner.source, (owner.session, ticket)));
    }

    /// Returns the item whose turn it is, and ends its turn. The item stays until it is removed.
    pub(crate) fn next(&mut self) -> Option<V> {
        self.0.next()
    }

    /// Returns the first item of a session, without using its turn.
    pub(crate) fn first_of(&self, owner: Owner) -> Option<&V> {
        let session = self.0.children.get(&owner.source)?.children.get(&owner.session)?;
        session.items.first_key_value().map(|(_, item)| item)
    }

    /// Returns the length of the longest queue of an address.
    pub(crate) fn longest(&self) -> usize {
        self.0.by_len.last().map_or(0, |(len, _)| *len)
    }

    /// Returns the newest item of the longest session queue in the longest address queue.
    pub(crate) fn last_of_longest(&self) -> Option<&V> {
        self.0.last_of_longest()
    }

    /// Returns the lengths of the queues of an owner's address and session. Of two owners, the one with the
    /// shorter queues is served sooner.
    pub(crate) fn waiting_of(&self, owner: Owner) -> (usize, usize) {
        let Some(address) = self.0.children.get(&owner.source) else { return (0, 0) };
        (address.len(), address.children.get(&owner.session).map_or(0, Queue::len))
    }
}

#[cfg(test)]
mod tests;
