//! The queues of keys that wait for a fetch, and the sums over all keys.
//!
//! An entry is *attached* while it rests and *detached* while it is changed; the queues and sums are
//! functions of the attached entries, so nothing else has to keep them true. Everything is ordered (by time, or
//! by ticket), never by hash, so that a run depends on nothing but its inputs.
//!
//! A lane is an upstream's ([`Lane`]): it has a bound of fetches in flight and one of fetches a second. The second is kept by
//! the generic cell rate algorithm (ITU-T I.371): fetches start at evenly spaced times, and may
//! be ahead of them by a tenth of a second. An upstream that answers 429 is paused.
//!
//! First fetches and refreshes have separate queues. While both wait, they alternate; refreshes that are late by many
//! intervals get seven of eight turns. A fetch can't be interrupted, so first fetches leave up to half of the workers free,
//! one for each key with a document. A flood of new keys therefore at most doubles the interval of running feeds. First
//! fetches take turns ([`crate::fair`]). Keys that don't exist have a queue of their own, with a tenth of a lane's capacity.
//!
//! Lanes share `fetches_max`. Each may always use its share, the same for all and at least one. All lanes may use the
//! rest, but only half of it for first fetches. So an upstream that hangs delays no other.

use super::lane::{AllLanes, FetchKind, Lane, Room, first_fetches_max};
use super::{Entry, LaneStats, Stats};
use crate::fair::Owner;
use crate::options::UpstreamOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use stentor_hub::{FeedState, Key};

/// The position of a key in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    /// Until it is due, or for ever.
    Parked,
    /// For a worker; `due` has passed.
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
    /// Those of them that have no document.
    empty_lingering: BTreeSet<(Instant, Key)>,
    lanes: Vec<Lane>,
    /// The lane that is asked first next time.
    lane: usize,
    tickets: u64,
    fetches_max: usize,
    /// Fetches in flight, and those that lanes may still begin in their shares.
    reserved: usize,
    first_in_flight: usize,
    documents: usize,
    /// The number of never-fetched keys that each session waits for.
    cold: BTreeMap<Owner, usize>,
    stats: Stats,
}

/// The fetches that each of these lanes may always use.
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
            lane.share = share.min(lane.concurrency_max);
        }
        self.reserved = self.lanes.iter().map(|lane| lane.in_flight.max(lane.share)).sum();
    }

    /// Continues the figures of other queues, which have the lane of an upstream at another place or not at all. Rates
    /// and pauses continue as well.
    pub(super) fn take_over(&mut self, before: &mut Self, place: impl Fn(usize) -> Option<usize>) {
        self.tickets = before.tickets;
        for (upstream, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(before) = place(upstream).and_then(|place| before.lanes.get(place)) {
                lane.take_over(before);
            }
        }
    }

    /// Puts an entry where it belongs.
    pub(super) fn attach(&mut self, key: &Key, entry: &mut Entry) {
        self.count(entry, |sum, n| *sum += n);
        let lane = &mut self.lanes[entry.upstream];
        match entry.queue_state {
            QueueState::InFlight { kind, .. } => {
                self.reserved += usize::from(lane.in_flight >= lane.share);
                lane.in_flight += 1;
                let first = usize::from(kind != FetchKind::Refresh);
                lane.first_in_flight += first;
                self.first_in_flight += first;
                lane.lost_in_flight += usize::from(kind == FetchKind::Lost);
                return;
            }
            QueueState::Ready { kind, ticket } if entry.is_active() => {
                lane.insert(kind, ticket, entry, key);
            }
            // Without subscribers it stays due, and queues again when it has some.
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

    /// Takes an entry out, to be changed.
    pub(super) fn detach(&mut self, key: &Key, entry: &mut Entry) {
        self.count(entry, |sum, n| *sum -= n);
        let lane = &mut self.lanes[entry.upstream];
        match entry.queue_state {
            QueueState::InFlight { kind, .. } => {
                lane.in_flight -= 1;
                self.reserved -= usize::from(lane.in_flight >= lane.share);
                let first = usize::from(kind != FetchKind::Refresh);
                lane.first_in_flight -= first;
                self.first_in_flight -= first;
                lane.lost_in_flight -= usize::from(kind == FetchKind::Lost);
            }
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
        let documents = usize::from(entry.kept.is_some());
        change(&mut self.documents, documents);
        let lane = &mut self.lanes[entry.upstream];
        change(&mut lane.documents, documents);
        change(&mut lane.polled, usize::from(entry.is_polled()));
        if entry.is_cold() {
            let cold = self.cold.entry(entry.owner).or_default();
            change(cold, 1);
            if *cold == 0 {
                self.cold.remove(&entry.owner);
            }
        }
        if let Some(class) = entry.failing {
            let lane = &mut self.lanes[entry.upstream];
            change(&mut lane.failing[class as usize], 1);
            lane.has_failed[class as usize] = true;
        }
    }

    /// Moves a key that is due to the end of its upstream's queue.
    pub(super) fn enqueue(&mut self, key: &Key, entry: &mut Entry) {
        self.detach(key, entry);
        self.tickets += 1;
        entry.queue_state = QueueState::Ready { kind: FetchKind::of(entry), ticket: self.tickets };
        self.attach(key, entry);
    }

    /// The first key that is due at `now`.
    pub(super) fn first_due(&self, now: Instant) -> Option<Key> {
        self.due.first().filter(|(due, _)| *due <= now).map(|(_, key)| key.clone())
    }

    /// Of the keys without subscribers that are not in flight, the one whose linger time ends first; only if it ended by `by`.
    pub(super) fn first_lingering(&self, by: Option<Instant>) -> Option<Key> {
        let first = self.lingering.first().filter(|(end, _)| by.is_none_or(|by| *end <= by));
        first.map(|(_, key)| key.clone())
    }

    /// The same of those without a document.
    pub(super) fn first_empty_lingering(&self) -> Option<Key> {
        self.empty_lingering.first().map(|(_, key)| key.clone())
    }

    /// The number of never-fetched keys that a session waits for.
    pub(super) fn cold_keys_of(&self, owner: Owner) -> usize {
        self.cold.get(&owner).copied().unwrap_or(0)
    }

    /// The number of never-fetched keys that all sessions of an owner's address wait for.
    pub(super) fn cold_keys_of_address(&self, owner: Owner) -> usize {
        let of_address = self.cold.range(owner.first_of_address()..);
        of_address.take_while(|(other, _)| other.is_of_address(owner)).map(|(_, keys)| keys).sum()
    }

    /// The number of first fetches of an upstream that an owner's address waits for, and its session.
    pub(super) fn waiting_of(&self, upstream: usize, owner: Owner) -> (usize, usize) {
        self.lanes[upstream].firsts.waiting_of(owner)
    }

    /// Compares two owners: the one that waits for fewer first fetches of an upstream is served sooner.
    pub(super) fn sooner(&self, upstream: usize, one: Owner, other: Owner) -> std::cmp::Ordering {
        self.waiting_of(upstream, one).cmp(&self.waiting_of(upstream, other))
    }

    /// The last requested key of the session that waits for the most keys, at the address that does.
    pub(super) fn last_of_longest(&self) -> Option<Key> {
        let longest = self.lanes.iter().map(|lane| &lane.firsts).max_by_key(|firsts| firsts.longest())?;
        longest.last_of_longest().cloned()
    }

    /// Fetches that lanes may begin beyond their shares.
    fn room(&self) -> Room {
        Room {
            any: self.reserved < self.fetches_max,
            first: self.first_in_flight < first_fetches_max(self.fetches_max, self.documents),
        }
    }

    /// The key to fetch now, if its upstream may be asked. The caller marks it as in flight.
    pub(super) fn next_ready(&mut self, now: Instant) -> Option<Key> {
        let (room, lanes) = (self.room(), self.lanes.len());
        let mut places = (0..lanes).map(|i| (self.lane + i) % lanes);
        let (at, key) = places.find_map(|at| Some((at, self.lanes[at].next(now, room)?)))?;
        self.lane = (at + 1) % lanes;
        Some(key)
    }

    /// An upstream that is to be probed.
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
