//! Where each key waits, and what all of them add up to.
//!
//! An entry is *attached* while it rests and *detached* while somebody changes it; the queues and sums are
//! functions of the attached entries, so nothing else has to keep them true. Everything is ordered (by time, or
//! by ticket), never by hash, so that a run depends on nothing but its inputs.
//!
//! A lane is an upstream's: it has a bound of fetches in flight and one of fetches a second. The second is kept by the
//! generic cell rate algorithm (ITU-T I.371): each fetch takes its turn in an evenly spaced row, and may be ahead of it by a
//! tenth of a second. An upstream that asks to be left alone (429) moves the row's begin.
//!
//! Keys whose first document is awaited and keys that are refreshed queue apart and are served in turn: a flood of
//! new keys takes at most every second worker from the feeds that run already.

use super::{Entry, FAILURE_CLASSES, LaneStats, Stats};
use crate::options::UpstreamOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use stentor_hub::{FeedState, Key};

/// Where a key waits for its next fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Until it is due, or for ever.
    Parked,
    /// For a worker; `due` has passed.
    Ready { refresh: bool, ticket: u64 },
    /// For an answer.
    InFlight { started: Instant },
}

/// How far ahead of its place in the row a fetch may begin.
const AHEAD_MAX: Duration = Duration::from_millis(100);

struct Lane {
    in_flight: usize,
    concurrency_max: usize,
    /// Time from one place in the row to the next.
    spacing: Duration,
    /// The first free place in the row.
    place: Option<Instant>,
    /// Until when the upstream wants to be left alone.
    paused_until: Option<Instant>,
    /// Whether the rate has kept a fetch waiting since the last one began.
    rate_waits: bool,
    rate_waits_total: u64,
    /// Keys whose last fetch failed, by kind of failure.
    failing: [usize; FAILURE_CLASSES],
    has_failed: [bool; FAILURE_CLASSES],
    /// First fetches (no document yet), and refreshes.
    ready: [BTreeMap<u64, Key>; 2],
    /// Which of the two is served next.
    turn: usize,
}

impl Lane {
    /// The key that would be served next.
    fn next(&self) -> Option<&Key> {
        let first = |turn: usize| self.ready[turn].first_key_value().map(|(_, key)| key);
        first(self.turn).or_else(|| first(1 - self.turn))
    }

    fn has_worker(&self) -> bool {
        self.in_flight < self.concurrency_max
    }

    /// The time before which no further fetch may begin.
    fn open_from(&self) -> Option<Instant> {
        // At least one place ahead: the first may be taken at its time.
        let ahead = AHEAD_MAX.saturating_sub(self.spacing);
        let place = self.place.map(|place| place.checked_sub(ahead).unwrap_or(place));
        place.max(self.paused_until)
    }

    /// Takes a place in the row.
    fn begin(&mut self, now: Instant) {
        self.place = Some(self.place.map_or(now, |place| place.max(now)) + self.spacing);
        self.paused_until = None;
        self.rate_waits = false;
    }
}

pub(super) struct Queues {
    due: BTreeSet<(Instant, Key)>,
    lingering: BTreeSet<(Instant, Key)>,
    lanes: Vec<Lane>,
    /// The lane that is asked first next time.
    lane: usize,
    tickets: u64,
    fetches_max: usize,
    stats: Stats,
}

impl Queues {
    pub(super) fn new(fetches_max: usize, upstreams: &[UpstreamOptions]) -> Self {
        let lane = |upstream: &UpstreamOptions| Lane {
            in_flight: 0,
            concurrency_max: upstream.concurrency_max,
            spacing: Duration::from_secs(1)
                / u32::try_from(upstream.requests_per_second_max.max(1)).unwrap_or(u32::MAX),
            place: None,
            paused_until: None,
            rate_waits: false,
            rate_waits_total: 0,
            failing: [0; FAILURE_CLASSES],
            has_failed: [false; FAILURE_CLASSES],
            ready: Default::default(),
            turn: 0,
        };
        Self {
            due: BTreeSet::new(),
            lingering: BTreeSet::new(),
            lanes: upstreams.iter().map(lane).collect(),
            lane: 0,
            tickets: 0,
            fetches_max,
            stats: Stats::default(),
        }
    }

    /// Puts an entry where it belongs.
    pub(super) fn attach(&mut self, key: &Key, entry: &mut Entry) {
        self.count(entry, |sum, n| *sum += n);
        let lane = &mut self.lanes[entry.upstream];
        match entry.place {
            Place::InFlight { .. } => {
                lane.in_flight += 1;
                return;
            }
            Place::Ready { refresh, ticket } if entry.is_active() => {
                lane.ready[usize::from(refresh)].insert(ticket, key.clone());
            }
            // Nobody waits for it any more: it stays due, and queues again when somebody does.
            Place::Ready { .. } => entry.place = Place::Parked,
            Place::Parked => {
                if let Some(due) = entry.due.filter(|_| entry.is_active()) {
                    self.due.insert((due, key.clone()));
                }
            }
        }
        if let Some(end) = entry.linger_end {
            self.lingering.insert((end, key.clone()));
        }
    }

    /// Takes an entry out, to be changed.
    pub(super) fn detach(&mut self, key: &Key, entry: &mut Entry) {
        self.count(entry, |sum, n| *sum -= n);
        let lane = &mut self.lanes[entry.upstream];
        match entry.place {
            Place::InFlight { .. } => lane.in_flight -= 1,
            Place::Ready { refresh, ticket } => {
                lane.ready[usize::from(refresh)].remove(&ticket);
            }
            Place::Parked => {
                if let Some(due) = entry.due {
                    self.due.remove(&(due, key.clone()));
                }
            }
        }
        if let Some(end) = entry.linger_end {
            self.lingering.remove(&(end, key.clone()));
        }
    }

    fn count(&mut self, entry: &Entry, change: impl Fn(&mut usize, usize)) {
        let stats = &mut self.stats;
        change(&mut stats.keys, 1);
        change(&mut stats.wanted, usize::from(entry.wanted));
        change(&mut stats.documents_bytes, entry.document_bytes());
        change(&mut stats.in_flight, usize::from(matches!(entry.place, Place::InFlight { .. })));
        let state = match entry.state {
            None => &mut stats.cold,
            Some(FeedState::Live) => &mut stats.live,
            Some(FeedState::Stale) => &mut stats.stale,
            Some(FeedState::Ended) => &mut stats.ended,
            Some(FeedState::Lost) => &mut stats.lost,
        };
        change(state, 1);
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
        entry.place = Place::Ready { refresh: entry.kept.is_some(), ticket: self.tickets };
        self.attach(key, entry);
    }

    /// The first key that is due at `now`.
    pub(super) fn first_due(&self, now: Instant) -> Option<Key> {
        self.due.first().filter(|(due, _)| *due <= now).map(|(_, key)| key.clone())
    }

    /// The key that nobody wants and that isn't in flight whose linger time ends first; only if it ended by `by`.
    pub(super) fn first_lingering(&self, by: Option<Instant>) -> Option<Key> {
        let first = self.lingering.first().filter(|(end, _)| by.is_none_or(|by| *end <= by));
        first.map(|(_, key)| key.clone())
    }

    /// The key to fetch now, if a worker is free and its upstream may be asked. The caller marks it as in flight.
    pub(super) fn next_ready(&mut self, now: Instant) -> Option<Key> {
        if self.stats.in_flight >= self.fetches_max {
            return None;
        }
        let lanes = self.lanes.len();
        for i in 0..lanes {
            let at = (self.lane + i) % lanes;
            let lane = &mut self.lanes[at];
            if !lane.has_worker() {
                continue;
            }
            let Some(key) = lane.next().cloned() else { continue };
            if lane.open_from().is_some_and(|open| open > now) {
                lane.rate_waits_total += u64::from(!std::mem::replace(&mut lane.rate_waits, true));
                continue;
            }
            lane.begin(now);
            lane.turn = 1 - lane.turn;
            self.lane = (at + 1) % lanes;
            return Some(key);
        }
        None
    }

    /// Leaves an upstream alone until then.
    pub(super) fn pause(&mut self, upstream: usize, until: Instant) {
        let lane = &mut self.lanes[upstream];
        lane.paused_until = lane.paused_until.max(Some(until));
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, Key)>| set.first().map(|(at, _)| *at);
        let is_free = self.stats.in_flight < self.fetches_max;
        let waits = |lane: &&Lane| is_free && lane.has_worker() && lane.next().is_some();
        let open = self.lanes.iter().filter(waits).filter_map(Lane::open_from).min();
        [first(&self.due), first(&self.lingering), open].into_iter().flatten().min()
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneStats> {
        self.lanes.iter().map(|lane| LaneStats {
            in_flight: lane.in_flight,
            waiting: lane.ready.iter().map(BTreeMap::len).sum(),
            rate_waits: lane.rate_waits_total,
            failing: lane.failing,
            has_failed: lane.has_failed,
        })
    }

    pub(super) fn documents_bytes(&self) -> usize {
        self.stats.documents_bytes
    }

    pub(super) fn stats(&self) -> Stats {
        let waiting = self.lanes.iter().flat_map(|lane| &lane.ready).map(BTreeMap::len).sum();
        Stats { waiting, ..self.stats }
    }
}
