//! The queues of keys that wait for a fetch, and the sums over all keys.
//!
//! An entry is *detached* while it is changed, and otherwise *attached*. The queues and sums are functions of
//! the attached entries, so they need no other maintenance. All orders are by time or ticket, never by hash,
//! so that a run depends only on its inputs.
//!
//! A lane belongs to an upstream ([`Lane`]). It has a limit of fetches in flight and one of fetches per
//! second. The limit per second is enforced by the generic cell rate algorithm (ITU-T I.371): fetches start
//! at evenly spaced times, or up to a tenth of a second before them. An upstream that answers 429 is paused.
//!
//! First fetches and refreshes have separate queues. While keys wait in both, they alternate. Refreshes that
//! are late by many intervals get seven of eight turns. A fetch can't be interrupted, so first fetches leave
//! up to half of the workers free, one for each key with a document. Therefore a flood of new keys at most
//! doubles the interval of running feeds. First fetches take turns ([`crate::fair`]). Keys that don't exist
//! have a separate queue, with a tenth of a lane's capacity.
//!
//! Lanes share `fetches_max`. Each lane may always use its share, which is the same for all lanes and at
//! least one fetch. All lanes may use the rest, but only half of it for first fetches. Therefore an upstream
//! that hangs delays no other.

use super::lane::Lane;
use super::measured::AllLanes;
use super::slots::{FetchKind, Room, Slots, first_fetches_max};
use super::{Entry, LaneStats, Stats};
use crate::fair::Owner;
use crate::options::UpstreamOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use stentor_hub::{FeedState, Key};

/// The position of a key in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    /// The key waits until it is due. Without a due time, it isn't queued.
    Parked,
    /// The key is due and waits for a worker.
    Ready {
        kind: FetchKind,
        ticket: u64,
    },
    InFlight {
        started: Instant,
        kind: FetchKind,
    },
}

#[derive(Default)]
pub(super) struct Queues {
    due: BTreeSet<(Instant, Key)>,
    lingering: BTreeSet<(Instant, Key)>,
    /// Lingering keys without a document, by the end of their linger time.
    empty_lingering: BTreeSet<(Instant, Key)>,
    lanes: Vec<Lane>,
    /// The lane that is served first next time.
    lane: usize,
    tickets: u64,
    fetches_max: usize,
    /// Number of never-fetched keys for which each session waits.
    cold: BTreeMap<Owner, usize>,
    stats: Stats,
}

/// Returns the number of fetches that each of `lanes` lanes may always use.
pub fn share(fetches_max: usize, lanes: usize) -> usize {
    (fetches_max / lanes.max(1)).max(1)
}

impl Queues {
    pub(super) fn new(fetches_max: usize, upstreams: &[UpstreamOptions]) -> Self {
        let mut queues = Self { lanes: upstreams.iter().map(Lane::new).collect(), ..Self::default() };
        queues.set_fetches_max(fetches_max);
        queues
    }

    pub(super) fn set_fetches_max(&mut self, fetches_max: usize) {
        self.fetches_max = fetches_max;
        let share = share(fetches_max, self.lanes.len());
        for lane in &mut self.lanes {
            lane.slots.set_share(share);
        }
    }

    /// Takes the numbers, rates and pauses from the queues before a reload. `place` returns the previous
    /// index of an upstream's lane, or `None` for a new upstream.
    pub(super) fn take_over(&mut self, before: &mut Self, place: impl Fn(usize) -> Option<usize>) {
        self.tickets = before.tickets;
        for (upstream, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(before) = place(upstream).and_then(|place| before.lanes.get(place)) {
                lane.take_over(before);
            }
        }
    }

    /// Adds an entry to the queues and sums.
    pub(super) fn attach(&mut self, key: &Key, entry: &mut Entry) {
        self.count(entry, |sum, n| *sum += n);
        let lane = &mut self.lanes[entry.upstream];
        match entry.queue_state {
            QueueState::InFlight { kind, .. } => {
                lane.slots.count(kind, |sum, n| *sum += n);
                return;
            }
            QueueState::Ready { kind, ticket } if entry.is_active() => {
                lane.insert(kind, ticket, entry, key);
            }
            // A key that shouldn't be fetched stays due. It is queued again when it has subscribers.
            QueueState::Ready { .. } => entry.queue_state = QueueState::Parked,
            QueueState::Parked => {
                if let Some(due) = entry.due.filter(|_| entry.is_active()) {
                    self.due.insert((due, key.clone()));
                }
            }
        }
        if let Some(end) = entry.linger_end {
            self.lingering.insert((end, key.clone()));
            if entry.kept.is_none() {
                self.empty_lingering.insert((end, key.clone()));
            }
        }
    }

    /// Removes an entry from the queues and sums, so that it can be changed.
    pub(super) fn detach(&mut self, key: &Key, entry: &mut Entry) {
        self.count(entry, |sum, n| *sum -= n);
        let lane = &mut self.lanes[entry.upstream];
        match entry.queue_state {
            QueueState::InFlight { kind, .. } => lane.slots.count(kind, |sum, n| *sum -= n),
            QueueState::Ready { kind, ticket } => lane.remove(kind, ticket, entry.owner),
            QueueState::Parked => {
                if let Some(due) = entry.due {
                    self.due.remove(&(due, key.clone()));
                }
            }
        }
        if let Some(end) = entry.linger_end {
            let at = (end, key.clone());
            self.lingering.remove(&at);
            if entry.kept.is_none() {
                self.empty_lingering.remove(&at);
            }
        }
    }

    fn count(&mut self, entry: &Entry, change: impl Fn(&mut usize, usize)) {
        let stats = &mut self.stats;
        change(&mut stats.keys, 1);
        change(&mut stats.wanted, usize::from(entry.wanted));
        change(&mut stats.documents_bytes, entry.document_bytes());
        change(&mut stats.in_flight, usize::from(matches!(entry.queue_state, QueueState::InFlight { .. })));
        let state = match entry.state {
            None => &mut stats.cold,
            Some(FeedState::Live) => &mut stats.live,
            Some(FeedState::Stale) => &mut stats.stale,
            Some(FeedState::Complete) => &mut stats.complete,
            Some(FeedState::NotFound) => &mut stats.not_found,
        };
        change(state, 1);
        let lane = &mut self.lanes[entry.upstream];
        change(&mut lane.slots.documents, usize::from(entry.kept.is_some()));
        change(&mut lane.polled, usize::from(entry.is_polled()));
        if entry.is_cold() {
            let cold = self.cold.entry(entry.owner).or_default();
            change(cold, 1);
            if *cold == 0 {
                self.cold.remove(&entry.owner);
            }
        }
        if let Some(class) = entry.last.failing() {
            let lane = &mut self.lanes[entry.upstream];
            change(&mut lane.failing[class as usize], 1);
            lane.has_failed[class as usize] = true;
        }
    }

    /// Moves a due key to the end of its upstream's queue.
    pub(super) fn enqueue(&mut self, key: &Key, entry: &mut Entry) {
        self.detach(key, entry);
        self.tickets += 1;
        entry.queue_state = QueueState::Ready { kind: FetchKind::of(entry), ticket: self.tickets };
        self.attach(key, entry);
    }

    /// Returns the first key that is due at `now`.
    pub(super) fn first_due(&self, now: Instant) -> Option<Key> {
        self.due.first().filter(|(due, _)| *due <= now).map(|(_, key)| key.clone())
    }

    /// Returns the key whose linger time ends first, of keys without subscribers and without a fetch in
    /// flight. With `by`, only if it ends by then.
    pub(super) fn first_lingering(&self, by: Option<Instant>) -> Option<Key> {
        let first = self.lingering.first().filter(|(end, _)| by.is_none_or(|by| *end <= by));
        first.map(|(_, key)| key.clone())
    }

    /// Returns the key without a document whose linger time ends first.
    pub(super) fn first_empty_lingering(&self) -> Option<Key> {
        self.empty_lingering.first().map(|(_, key)| key.clone())
    }

    /// Returns the number of never-fetched keys for which a session waits.
    pub(super) fn cold_keys_of(&self, owner: Owner) -> usize {
        self.cold.get(&owner).copied().unwrap_or(0)
    }

    /// Returns the number of never-fetched keys for which all sessions of an owner's address wait.
    pub(super) fn cold_keys_of_address(&self, owner: Owner) -> usize {
        let of_address = self.cold.range(owner.first_of_address()..);
        of_address.take_while(|(other, _)| other.is_of_address(owner)).map(|(_, keys)| keys).sum()
    }

    /// Returns for how many first fetches of an upstream an owner's address and session wait.
    pub(super) fn waiting_of(&self, upstream: usize, owner: Owner) -> (usize, usize) {
        self.lanes[upstream].firsts.waiting_of(owner)
    }

    /// Compares two owners. The owner with fewer waiting first fetches of the upstream is less: it is served
    /// sooner.
    pub(super) fn sooner(&self, upstream: usize, one: Owner, other: Owner) -> std::cmp::Ordering {
        self.waiting_of(upstream, one).cmp(&self.waiting_of(upstream, other))
    }

    /// Returns the newest waiting key of the session that waits for the most keys, at the address that waits
    /// for the most keys.
    pub(super) fn last_of_longest(&self) -> Option<Key> {
        let longest = self.lanes.iter().map(|lane| &lane.firsts).max_by_key(|firsts| firsts.longest())?;
        longest.last_of_longest().cloned()
    }

    /// Returns which fetches lanes may begin beyond their shares.
    fn room(&self) -> Room {
        let sum = |of: fn(&Slots) -> usize| self.lanes.iter().map(|lane| of(&lane.slots)).sum::<usize>();
        let firsts_max = first_fetches_max(self.fetches_max, sum(|slots| slots.documents));
        Room {
            any: sum(Slots::reserved) < self.fetches_max,
            first: sum(|slots| slots.first_in_flight) < firsts_max,
        }
    }

    /// Takes the next key to fetch now, if the limits of its upstream allow it. The caller must mark the key
    /// as in flight.
    pub(super) fn next_ready(&mut self, now: Instant) -> Option<Key> {
        let (room, lanes) = (self.room(), self.lanes.len());
        let mut places = (0..lanes).map(|i| (self.lane + i) % lanes);
        let (at, key) = places.find_map(|at| Some((at, self.lanes[at].next(now, room)?)))?;
        self.lane = (at + 1) % lanes;
        Some(key)
    }

    /// Returns an upstream that must be probed.
    pub(super) fn first_probe(&self, now: Instant) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.probe().is_some_and(|probe| probe <= now))
    }

    pub(super) fn lane_mut(&mut self, upstream: usize) -> &mut Lane {
        &mut self.lanes[upstream]
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, Key)>| set.first().map(|(at, _)| *at);
        let room = self.room();
        let open = self.lanes.iter().filter_map(|lane| lane.next_open(room)).min();
        let probe = self.lanes.iter().filter_map(Lane::probe).min();
        [first(&self.due), first(&self.lingering), open, probe].into_iter().flatten().min()
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneStats> {
        let bodies_bytes = self.lanes.iter().map(Lane::bodies_bytes).fold(0, usize::saturating_add);
        let all = AllLanes { lanes: self.lanes.len(), bodies_bytes };
        self.lanes.iter().map(move |lane| lane.stats(all))
    }

    pub(super) fn documents_bytes(&self) -> usize {
        self.stats.documents_bytes
    }

    pub(super) fn stats(&self) -> Stats {
        let waiting = self.lanes.iter().map(Lane::waiting).sum();
        Stats { waiting, ..self.stats }
    }
}
