//! The log of an application's broadcasts, with an index by room.
//!
//! The index finds the broadcasts to a socket's rooms, and another index those that another node hasn't had. So the search for
//! missed broadcasts doesn't depend on the number of other broadcasts, and a client that returns again and again costs no more
//! than the broadcasts that it receives.
//!
//! **Invariants.** Each list of the index has the numbers of the logged broadcasts to its room, in order. Each list of
//! `sources` has the logged broadcasts of its node, in order, and both their numbers grow: a binary search finds those that
//! another node hasn't had. Empty lists are removed.

use super::origins::{Had, Origin};
use super::{ENTRY_BYTES, Source, content, names_bytes};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque, vec_deque};
use std::sync::Arc;
use std::time::Instant;
use stentor_ports::LinkBroadcast;

/// Bytes of a list, without the name of its room.
const LIST_BYTES: usize = 128;
/// Bytes of a number in a list, at the usual load between two doublings.
const NUMBER_BYTES: usize = size_of::<u64>() * 3 / 2;

/// Numbers for which each list may keep memory, however few it has.
const SPARE_NUMBERS: usize = 64;
/// Bytes of a broadcast in the list of its node.
const SOURCE_BYTES: usize = size_of::<(u64, u64)>() * 3 / 2;

/// A broadcast in the log.
pub(super) struct Logged {
    pub(super) namespace: Arc<str>,
    pub(super) offset: Arc<str>,
    pub(super) source: Source,
    pub(super) broadcast: Arc<LinkBroadcast>,
    pub(super) until: Instant,
}

impl Logged {
    /// Bytes of the broadcast, without those of the index.
    fn bytes(&self) -> usize {
        let LinkBroadcast { rooms, except, messages, .. } = &*self.broadcast;
        ENTRY_BYTES + self.offset.len() + names_bytes(rooms) + names_bytes(except) + content(messages)
    }
}

/// Numbers of broadcasts, in order.
type Numbers = VecDeque<u64>;

/// Removes the first number. A list that was long after many broadcasts keeps no memory for as many.
fn pop<T>(list: &mut VecDeque<T>) {
    list.pop_front();
    if list.capacity() > SPARE_NUMBERS && list.len() < list.capacity() / 4 {
        list.shrink_to(2 * list.len());
    }
}

/// The broadcasts of a namespace.
#[derive(Default)]
struct Index {
    /// Broadcasts to all sockets.
    all: Numbers,
    /// Broadcasts to each room.
    rooms: HashMap<Box<str>, Numbers>,
}

impl Index {
    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.rooms.is_empty()
    }

    /// Adds the newest broadcast. Returns the bytes that it takes.
    fn add(&mut self, number: u64, rooms: &[Box<str>]) -> usize {
        if rooms.is_empty() {
            self.all.push_back(number);
            return NUMBER_BYTES;
        }
        let mut bytes = 0;
        for room in rooms {
            let numbers = match self.rooms.get_mut(room) {
                Some(numbers) => numbers,
                None => {
                    bytes += LIST_BYTES + room.len();
                    self.rooms.entry(room.clone()).or_default()
                }
            };
            // A worker may repeat a room.
            if numbers.back() != Some(&number) {
                numbers.push_back(number);
                bytes += NUMBER_BYTES;
            }
        }
        bytes
    }

    /// Removes the oldest broadcast. Returns the bytes that it took.
    fn remove(&mut self, number: u64, rooms: &[Box<str>]) -> usize {
        if rooms.is_empty() {
            pop(&mut self.all);
            return NUMBER_BYTES;
        }
        let mut bytes = 0;
        for room in rooms {
            let Some(numbers) = self.rooms.get_mut(room) else { continue };
            if numbers.front() == Some(&number) {
                pop(numbers);
                bytes += NUMBER_BYTES;
            }
            if numbers.is_empty() {
                self.rooms.remove(room);
                bytes += LIST_BYTES + room.len();
            }
        }
        bytes
    }
}

/// The numbers of several lists in order, each once.
#[derive(Default)]
struct Merged<'a> {
    lists: Vec<vec_deque::Iter<'a, u64>>,
    /// The next number of each list that has one, and the list's place.
    fronts: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Merged<'a> {
    /// Adds the numbers of a list from this one on.
    fn add(&mut self, numbers: &'a Numbers, from: u64) {
        let mut list = numbers.range(numbers.partition_point(|number| *number < from)..);
        if let Some(first) = list.next() {
            self.fronts.push(Reverse((*first, self.lists.len())));
            self.lists.push(list);
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let Reverse((number, _)) = *self.fronts.peek()?;
        while let Some(mut front) = self.fronts.peek_mut()
            && front.0.0 == number
        {
            match self.lists[front.0.1].next() {
                Some(next) => front.0.0 = *next,
                None => _ = PeekMut::pop(front),
            }
        }
        Some(number)
    }
}

/// The log of an application. Its broadcasts have successive numbers.
#[derive(Default)]
pub(super) struct Log {
    broadcasts: VecDeque<Logged>,
    /// Number of the first broadcast.
    first: u64,
    /// Numbers of the broadcasts, by offset.
    offsets: HashMap<Arc<str>, u64>,
    /// Indexes of the namespaces that have broadcasts.
    indexes: HashMap<Arc<str>, Index>,
    /// Broadcasts of each node, in order: their numbers among the node's broadcasts, and in the log.
    sources: HashMap<Origin, VecDeque<(u64, u64)>>,
    bytes: usize,
}

impl Log {
    /// Number of the first broadcast.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Number of the next broadcast.
    pub(super) fn next(&self) -> u64 {
        self.first + self.broadcasts.len() as u64
    }

    /// Number of the broadcast with this offset.
    pub(super) fn number_of(&self, offset: &str) -> Option<u64> {
        self.offsets.get(offset).copied()
    }

    /// Bytes of the log.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The time at which the first broadcast is too old.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.broadcasts.front().map(|logged| logged.until)
    }

    /// Number of the first broadcast that another node hasn't had. [`Self::next`] if the other node has had all of them.
    pub(super) fn first_unknown(&self, had: &Had) -> u64 {
        let unknown = self.sources.iter().filter_map(|(node, broadcasts)| {
            let has = |(number, _): &(u64, u64)| had.has(Source { node: *node, number: *number });
            broadcasts.get(broadcasts.partition_point(has)).map(|(_, logged)| *logged)
        });
        unknown.min().unwrap_or(self.next())
    }

    /// The broadcasts and their numbers, the newest first.
    #[cfg(test)]
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (u64, &Logged)> {
        let numbered = |(place, logged)| (self.first + place as u64, logged);
        self.broadcasts.iter().enumerate().rev().map(numbered)
    }

    /// Adds a broadcast.
    pub(super) fn push(&mut self, logged: Logged) {
        let number = self.next();
        let index = self.indexes.entry(logged.namespace.clone()).or_default();
        if index.is_empty() {
            self.bytes += LIST_BYTES + logged.namespace.len();
        }
        self.bytes += index.add(number, &logged.broadcast.rooms) + logged.bytes();
        let of_source = self.sources.entry(logged.source.node).or_default();
        if of_source.is_empty() {
            self.bytes += LIST_BYTES;
        }
        of_source.push_back((logged.source.number, number));
        self.bytes += SOURCE_BYTES;
        self.offsets.insert(logged.offset.clone(), number);
        self.broadcasts.push_back(logged);
    }

    /// Drops the first broadcast.
    pub(super) fn pop(&mut self) {
        let Some(logged) = self.broadcasts.pop_front() else { return };
        if self.offsets.get(&logged.offset) == Some(&self.first) {
            self.offsets.remove(&logged.offset);
        }
        if let Some(index) = self.indexes.get_mut(&logged.namespace) {
            self.bytes -= index.remove(self.first, &logged.broadcast.rooms) + logged.bytes();
            if index.is_empty() {
                self.indexes.remove(&logged.namespace);
                self.bytes -= LIST_BYTES + logged.namespace.len();
            }
        }
        if let Some(of_source) = self.sources.get_mut(&logged.source.node) {
            pop(of_source);
            self.bytes -= SOURCE_BYTES;
            if of_source.is_empty() {
                self.sources.remove(&logged.source.node);
                self.bytes -= LIST_BYTES;
            }
        }
        self.first += 1;
    }

    /// The broadcasts of a namespace from a number on that are for all sockets or for one of these rooms, in order. `true`: a socket with
    /// these rooms is in none of the excepted ones.
    pub(super) fn addressed<'a>(
        &'a self,
        namespace: &str,
        rooms: &'a [Box<str>],
        from: u64,
    ) -> impl Iterator<Item = (&'a Logged, bool)> + use<'a> {
        let rooms: HashSet<&str> = rooms.iter().map(|room| &**room).collect();
        let mut numbers = Merged::default();
        if let Some(index) = self.indexes.get(namespace) {
            let lists = rooms.iter().filter_map(|room| index.rooms.get(*room));
            lists.chain([&index.all]).for_each(|list| numbers.add(list, from));
        }
        numbers.map(move |number| {
            let logged = &self.broadcasts[(number - self.first) as usize];
            let is_excepted = logged.broadcast.except.iter().any(|room| rooms.contains(&**room));
            (logged, !is_excepted)
        })
    }

    /// Numbers for which the longest list has memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let lists = self.indexes.values().flat_map(|index| index.rooms.values().chain([&index.all]));
        let capacities = lists.map(Numbers::capacity).chain(self.sources.values().map(VecDeque::capacity));
        capacities.max().unwrap_or(0)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.broadcasts.is_empty()
            && self.offsets.is_empty()
            && self.indexes.is_empty()
            && self.sources.is_empty()
            && self.bytes == 0
    }
}
