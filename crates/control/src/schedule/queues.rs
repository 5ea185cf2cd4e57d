//! The queues of keys that wait for a fetch, and the sums over all keys.
//!
//! An entry is *attached* while it rests and *detached* while it is changed; the queues and sums are
//! functions of the attached entries, so nothing else has to keep them true. Everything is ordered (by time, or
//! by ticket), never by hash, so that a run depends on nothing but its inputs.
//!
//! A lane is an upstream's: it has a bound of fetches in flight and one of fetches a second. The second is kept by the
//! generic cell rate algorithm (ITU-T I.371): fetches start at evenly spaced times, and may
//! be ahead of them by a tenth of a second. An upstream that answers 429 is paused.
//!
//! First fetches and refreshes have separate queues. Refreshes come first, but after [`REFRESHES_IN_ROW_MAX`] of them
//! a first fetch may begin. A fetch can't be interrupted, so first fetches leave up to half of the workers free, one
//! for each key with a document. A flood of new keys therefore delays no running feed, except by one request when
//! `requests_per_second_max` is reached, or with a single worker. First fetches take turns ([`crate::fair`]).

use super::{Entry, FAILURE_CLASSES, LaneStats, Stats};
use crate::fair::{FairQueue, Owner};
use crate::options::UpstreamOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use stentor_hub::{FeedState, Key};

/// The position of a key in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    /// Until it is due, or for ever.
    Parked,
    /// For a worker; `due` has passed.
    Ready { refresh: bool, ticket: u64 },
    /// In flight. `first`: there is no document yet.
    InFlight { started: Instant, first: bool },
}

/// After this many refreshes in a row, a first fetch may begin if one waits.
const REFRESHES_IN_ROW_MAX: u32 = 7;

/// How far ahead of its evenly spaced start a fetch may begin.
const AHEAD_MAX: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Lane {
    in_flight: usize,
    concurrency_max: usize,
    /// Time between evenly spaced starts.
    spacing: Duration,
    /// The earliest evenly spaced start of the next fetch.
    next_start: Option<Instant>,
    /// No fetch starts before this time, because the upstream answered 429.
    paused_until: Option<Instant>,
    /// Whether the rate has kept a fetch waiting since the last one began.
    rate_waits: bool,
    rate_waits_total: u64,
    poll_interval: Duration,
    /// Whether the rate kept the last fetch waiting, and how long it was due, if it was a refresh.
    was_rate_limited: bool,
    delay: Duration,
    /// Keys whose last fetch failed, by kind of failure.
    failing: [usize; FAILURE_CLASSES],
    has_failed: [bool; FAILURE_CLASSES],
    /// First fetches in flight.
    first_in_flight: usize,
    /// Keys with a document.
    documents: usize,
    /// Keys that wait for a refresh, and those that wait for their first document.
    refreshes: BTreeMap<u64, Key>,
    firsts: FairQueue<Key>,
    refreshes_in_row: u32,
}

/// The number of these workers that first fetches may use, given the number of keys that are refreshed.
fn first_fetches_max(workers: usize, documents: usize) -> usize {
    workers - documents.min(workers / 2)
}

impl Lane {
    /// Whether a refresh and whether a first fetch could begin, if the rate allows it.
    fn has_next(&self, first_allowed: bool) -> (bool, bool) {
        let first_max = first_fetches_max(self.concurrency_max, self.documents);
        let first = first_allowed && self.first_in_flight < first_max && self.firsts.len() > 0;
        (!self.refreshes.is_empty() && self.has_worker(), first && self.has_worker())
    }

    fn has_worker(&self) -> bool {
        self.in_flight < self.concurrency_max
    }

    /// The time before which no further fetch may begin.
    fn open_from(&self) -> Option<Instant> {
        let ahead = AHEAD_MAX.saturating_sub(self.spacing);
        let next_start = self.next_start.map(|start| start.checked_sub(ahead).unwrap_or(start));
        next_start.max(self.paused_until)
    }

    /// Starts a fetch and computes the next start.
    fn begin(&mut self, now: Instant) {
        self.next_start = Some(self.next_start.map_or(now, |start| start.max(now)) + self.spacing);
        self.was_rate_limited = self.rate_waits && self.paused_until.is_none();
        self.paused_until = None;
        self.rate_waits = false;
    }
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
    first_in_flight: usize,
    documents: usize,
    /// The number of never-fetched keys that each session waits for.
    cold: BTreeMap<Owner, usize>,
    stats: Stats,
}

impl Queues {
    pub(super) fn new(fetches_max: usize, upstreams: &[UpstreamOptions]) -> Self {
        let lane = |upstream: &UpstreamOptions| {
            let per_second = u32::try_from(upstream.requests_per_second_max.max(1)).unwrap_or(u32::MAX);
            let spacing = Duration::from_secs(1) / per_second;
            Lane {
                concurrency_max: upstream.concurrency_max,
                spacing,
                poll_interval: upstream.poll_interval,
                ..Lane::default()
            }
        };
        Self { lanes: upstreams.iter().map(lane).collect(), fetches_max, ..Self::default() }
    }

    pub(super) fn set_fetches_max(&mut self, fetches_max: usize) {
        self.fetches_max = fetches_max;
    }

    /// Continues the figures of other queues, which have the lane of an upstream at another place or not at all. Rates
    /// and pauses continue as well.
    pub(super) fn take_over(&mut self, before: &mut Self, place: impl Fn(usize) -> Option<usize>) {
        self.tickets = before.tickets;
        for (upstream, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(before) = place(upstream).and_then(|place| before.lanes.get(place)) {
                lane.next_start = before.next_start;
                lane.paused_until = before.paused_until;
                lane.rate_waits_total = before.rate_waits_total;
                lane.has_failed = before.has_failed;
            }
        }
    }

    /// Puts an entry where it belongs.
    pub(super) fn attach(&mut self, key: &Key, entry: &mut Entry) {
        self.count(entry, |sum, n| *sum += n);
        let lane = &mut self.lanes[entry.upstream];
        match entry.queue_state {
            QueueState::InFlight { first, .. } => {
                lane.in_flight += 1;
                lane.first_in_flight += usize::from(first);
                self.first_in_flight += usize::from(first);
                return;
            }
            QueueState::Ready { refresh: true, ticket } if entry.is_active() => {
                lane.refreshes.insert(ticket, key.clone());
            }
            QueueState::Ready { refresh: false, ticket } if entry.is_active() => {
                lane.firsts.insert(entry.owner, ticket, key.clone());
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
            QueueState::InFlight { first, .. } => {
                lane.in_flight -= 1;
                lane.first_in_flight -= usize::from(first);
                self.first_in_flight -= usize::from(first);
            }
            QueueState::Ready { refresh: true, ticket } => {
                lane.refreshes.remove(&ticket);
            }
            QueueState::Ready { refresh: false, ticket } => lane.firsts.remove(entry.owner, ticket),
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
        change(&mut self.lanes[entry.upstream].documents, documents);
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
        entry.queue_state = QueueState::Ready { refresh: entry.kept.is_some(), ticket: self.tickets };
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

    /// Whether first fetches may begin, for all upstreams together.
    fn first_allowed(&self) -> bool {
        self.first_in_flight < first_fetches_max(self.fetches_max, self.documents)
    }

    /// The key to fetch now, if a worker is free and its upstream may be asked. The caller marks it as in flight.
    pub(super) fn next_ready(&mut self, now: Instant) -> Option<Key> {
        if self.stats.in_flight >= self.fetches_max {
            return None;
        }
        let first_allowed = self.first_allowed();
        let lanes = self.lanes.len();
        for i in 0..lanes {
            let at = (self.lane + i) % lanes;
            let lane = &mut self.lanes[at];
            let (refresh, first) = lane.has_next(first_allowed);
            if !(refresh || first) {
                continue;
            }
            if lane.open_from().is_some_and(|open| open > now) {
                lane.rate_waits_total += u64::from(!std::mem::replace(&mut lane.rate_waits, true));
                continue;
            }
            let takes_refresh = refresh && (!first || lane.refreshes_in_row < REFRESHES_IN_ROW_MAX);
            let key = if takes_refresh {
                lane.refreshes.first_key_value().map(|(_, key)| key.clone())
            } else {
                lane.firsts.next()
            };
            lane.refreshes_in_row = if takes_refresh { lane.refreshes_in_row.saturating_add(1) } else { 0 };
            lane.begin(now);
            self.lane = (at + 1) % lanes;
            return key;
        }
        None
    }

    /// A refresh, the last one that [`Self::next_ready`] returned, begins so long after it was due.
    pub(super) fn record_delay(&mut self, upstream: usize, delay: Duration) {
        let lane = &mut self.lanes[upstream];
        lane.delay = if lane.was_rate_limited { delay } else { Duration::ZERO };
    }

    /// Starts no fetch of an upstream until then.
    pub(super) fn pause(&mut self, upstream: usize, until: Instant) {
        let lane = &mut self.lanes[upstream];
        lane.paused_until = lane.paused_until.max(Some(until));
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, Key)>| set.first().map(|(at, _)| *at);
        let is_free = self.stats.in_flight < self.fetches_max;
        let first_allowed = self.first_allowed();
        let waits = |lane: &&Lane| is_free && lane.has_next(first_allowed) != (false, false);
        let open = self.lanes.iter().filter(waits).filter_map(Lane::open_from).min();
        [first(&self.due), first(&self.lingering), open].into_iter().flatten().min()
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneStats> {
        self.lanes.iter().map(|lane| LaneStats {
            in_flight: lane.in_flight,
            waiting: lane.refreshes.len() + lane.firsts.len(),
            first_waiting: lane.firsts.len(),
            rate_waits: lane.rate_waits_total,
            documents: lane.documents,
            interval: lane.poll_interval + if lane.documents > 0 { lane.delay } else { Duration::ZERO },
            failing: lane.failing,
            has_failed: lane.has_failed,
        })
    }

    pub(super) fn documents_bytes(&self) -> usize {
        self.stats.documents_bytes
    }

    pub(super) fn stats(&self) -> Stats {
        let waiting = self.lanes.iter().map(|lane| lane.refreshes.len() + lane.firsts.len()).sum();
        Stats { waiting, ..self.stats }
    }
}
