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
mod tests {

    use super::*;
    use fastrand::Rng;
    fn owner(source: u64, session: u64) -> Owner {
        Owner { source, session: Some((0, session)) }
    }

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    struct Bench {
        queue: FairQueue,
        waiting: BTreeMap<Key, (Owner, u64)>,
        tickets: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self { queue: FairQueue::default(), waiting: BTreeMap::new(), tickets: 0 }
        }

        fn insert(&mut self, owner: Owner, text: &str) {
            self.tickets += 1;
            self.waiting.insert(key(text), (owner, self.tickets));
            self.queue.insert(owner, self.tickets, key(text));
        }

        fn remove(&mut self, key: &Key) {
            let (owner, ticket) = self.waiting.remove(key).unwrap();
            self.queue.remove(owner, ticket);
        }

        fn next(&mut self) -> Option<Key> {
            let key = self.queue.next()?;
            self.remove(&key);
            Some(key)
        }

        fn order(&mut self, count: usize) -> String {
            (0..count).filter_map(|_| self.next()).map(|key| key.to_string()).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn addresses_take_turns_and_their_sessions() {
        let mut bench = Bench::new();
        for n in 0..4 {
            for session in 0..2 {
                bench.insert(owner(1, session), &format!("a{session}.{n}"));
            }
            bench.insert(owner(2, 0), &format!("b.{n}"));
        }
        assert_eq!(bench.order(9), "a0.0 b.0 a1.0 b.1 a0.1 b.2 a1.1 b.3 a0.2");
        assert_eq!(bench.order(9), "a1.2 a0.3 a1.3");
        assert_eq!((bench.queue.len(), bench.queue.0.children.len()), (0, 0));
    }

    #[test]
    fn a_new_session_is_served_next() {
        let mut bench = Bench::new();
        for session in 0..11 {
            for n in 0..1000 {
                bench.insert(owner(1, session), &format!("{session}.{n}"));
            }
        }
        bench.order(100);
        // One from the same address, one from another address.
        bench.insert(owner(1, 99), "same");
        assert!(bench.order(1) == "same");
        bench.insert(owner(2, 1), "other");
        assert!(bench.order(1) == "other");
        // A session that requests its next key after each document is new only once.
        bench.insert(owner(1, 50), "x");
        let mut served = 0;
        for _ in 0..110 {
            if bench.order(1) == "x" {
                served += 1;
                bench.insert(owner(1, 50), "x");
            }
        }
        assert!((8..=12).contains(&served), "{served} of 110 for one of twelve");
    }

    #[test]
    fn a_stream_of_new_sessions_starves_nobody() {
        let mut bench = Bench::new();
        bench.insert(owner(1, 0), "old.0");
        bench.insert(owner(1, 0), "old.1");
        assert_eq!(bench.order(1), "old.0");
        let mut waited = 0;
        for n in 1.. {
            bench.insert(owner(1, n), &format!("new.{n}"));
            bench.insert(owner(1, n), &format!("more.{n}"));
            if bench.order(1) == "old.1" {
                break;
            }
            waited += 1;
        }
        assert!(waited <= NEW_IN_ROW_MAX as usize, "{waited}");
    }

    #[test]
    fn the_owner_with_the_most_waiting_keys_is_found() {
        let mut bench = Bench::new();
        assert_eq!(bench.queue.last_of_longest(), None);
        for (source, session, count) in [(1, 0, 3), (1, 1, 4), (2, 0, 5)] {
            for n in 0..count {
                bench.insert(owner(source, session), &format!("{source}/{session}/{n}"));
            }
        }
        assert_eq!(bench.queue.longest(), 7);
        assert_eq!(bench.queue.last_of_longest(), Some(&key("1/1/3")));
        assert_eq!(bench.queue.waiting_of(owner(1, 1)), (7, 4));
        assert_eq!(bench.queue.waiting_of(owner(1, 7)), (7, 0));
        assert_eq!(bench.queue.waiting_of(owner(7, 7)), (0, 0));
    }

    /// Random keys arrive, leave and are served. Every waiting key is served exactly once, and no session waits for
    /// more than a few rounds of the others.
    #[test]
    fn every_key_is_served_once_and_nobody_starves() {
        for seed in 0..50 {
            let (mut bench, mut random) = (Bench::new(), Rng::with_seed(seed));
            // By address and session: keys of others served while it waited.
            let mut passed: BTreeMap<(u64, u64), usize> = BTreeMap::new();
            let owner_of = |key: &Key| {
                let mut parts = key.as_str().split('/').map(|part| part.parse::<u64>().unwrap());
                (parts.next().unwrap(), parts.next().unwrap())
            };
            for n in 0..4000 {
                let (source, session) = (random.u64(..4), random.u64(..5));
                match random.u64(..5) {
                    0..=1 => bench.insert(owner(source, session), &format!("{source}/{session}/{n}")),
                    2 if !bench.waiting.is_empty() => {
                        let nth = random.usize(..bench.waiting.len());
                        let key = bench.waiting.keys().nth(nth).unwrap().clone();
                        bench.remove(&key);
                    }
                    _ => {
                        let Some(key) = bench.next() else {
                            assert!(bench.waiting.is_empty(), "seed {seed}: it stopped");
                            continue;
                        };
                        passed.remove(&owner_of(&key));
                        let waiting: BTreeSet<_> = bench.waiting.keys().map(owner_of).collect();
                        passed.retain(|owner, _| waiting.contains(owner));
                        for owner in waiting {
                            let passed = passed.entry(owner).or_default();
                            *passed += 1;
                            // A round of 20 sessions, and the new ones served before it.
                            assert!(*passed <= 4 * 20, "seed {seed}: {owner:?} starves");
                        }
                    }
                }
                assert_eq!(bench.queue.len(), bench.waiting.len(), "seed {seed}");
                assert!(bench.queue.0.children.len() <= 4);
            }
        }
    }
}
