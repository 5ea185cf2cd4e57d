//! A lane: the keys of an upstream that wait for a fetch, and the times at which fetches may start.

use super::Entry;
use super::outage::Outage;
use super::outcome::{FAILURE_CLASSES, LaneStats, Limit};
use crate::fair::{FairQueue, Owner};
use crate::options::UpstreamOptions;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use stentor_hub::{FeedState, Key};

/// A refresh that is late by this many intervals precedes first fetches.
const INTERVALS_LATE: u32 = 10;

/// Number of late refreshes in a row after which a waiting first fetch may begin.
const LATE_PER_FIRST: u32 = 7;

/// Keys that don't exist may use this fraction (a tenth) of the fetches in flight and of the requests per
/// second.
const LOST_SHARE: usize = 10;

/// Maximum time by which a fetch may start before its evenly spaced time.
const AHEAD_MAX: Duration = Duration::from_millis(100);

/// The kind of a fetch, by the state of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchKind {
    /// The key has a document.
    Refresh,
    /// The key has no document yet.
    First,
    /// The upstream has reported that the key doesn't exist.
    Lost,
}

impl FetchKind {
    pub(super) fn of(entry: &Entry) -> Self {
        match (&entry.kept, entry.state) {
            (Some(_), _) => Self::Refresh,
            (None, Some(FeedState::NotFound)) => Self::Lost,
            (None, _) => Self::First,
        }
    }
}

/// Tells which fetches a lane may begin beyond its share.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// `true` if the lane may begin any fetch beyond its share.
    pub(super) any: bool,
    /// `true` if the lane may begin a first fetch beyond its share.
    pub(super) first: bool,
}

/// Sums over all lanes.
#[derive(Clone, Copy)]
pub(super) struct AllLanes {
    /// Number of lanes that share `fetches_max`.
    pub(super) lanes: usize,
    /// The sum of [`Lane::bodies_bytes`].
    pub(super) bodies_bytes: usize,
}

#[derive(Default)]
pub(super) struct Lane {
    pub(super) in_flight: usize,
    pub(super) concurrency_max: usize,
    /// Number of fetches that this lane may always use.
    pub(super) share: usize,
    /// Time between two evenly spaced starts of fetches.
    spacing: Duration,
    /// The evenly spaced time of the next start. `None` before the first fetch.
    next_start: Option<Instant>,
    /// Time before which no fetch starts, because the upstream answered 429.
    paused_until: Option<Instant>,
    /// `true` if the rate has delayed a fetch since the last fetch began.
    rate_waits: bool,
    rate_waits_total: u64,
    poll_interval: Duration,
    /// Time between the starts of the last refresh and of the previous fetch of its key.
    interval: Duration,
    /// The limit that delays refreshes.
    waits_for: Option<Limit>,
    /// The limit that delayed the last refresh.
    limited_by: Option<Limit>,
    /// Time for which the key of the last first fetch waited.
    first_wait: Duration,
    /// The limit that delays first fetches.
    first_waits_for: Option<Limit>,
    /// Mean duration of fetches.
    fetch_time: Duration,
    /// Mean time that fetches wait for memory.
    body_wait: Duration,
    /// Size in bytes of large bodies as received: a maximum that decreases slowly.
    body_bytes: usize,
    /// Number of keys whose last fetch has failed, by kind of failure.
    pub(super) failing: [usize; FAILURE_CLASSES],
    pub(super) has_failed: [bool; FAILURE_CLASSES],
    /// Number of fetches in flight for keys without a document.
    pub(super) first_in_flight: usize,
    /// Number of fetches in flight for keys that don't exist.
    pub(super) lost_in_flight: usize,
    /// Number of keys with a document.
    pub(super) documents: usize,
    /// Keys that wait for a refresh, with their due times.
    refreshes: BTreeMap<u64, (Option<Instant>, Key)>,
    /// Keys that wait for their first document.
    pub(super) firsts: FairQueue<Key>,
    /// Keys that don't exist and wait for another fetch.
    lost: FairQueue<Key>,
    /// Time at which the next fetch of a key that doesn't exist may begin.
    lost_start: Option<Instant>,
    /// Number of other fetches since the last fetch of a key that doesn't exist.
    others_in_row: usize,
    /// Number of refreshes that began while first fetches waited, minus the first fetches that began in their
    /// turn later.
    refreshes_ahead: u32,
    /// Number of keys that are fetched regularly, now or after their first document.
    pub(super) polled: usize,
    pub(super) outage: Outage,
}

/// Returns the number of `workers` that first fetches may use if this number of keys has documents.
pub(super) fn first_fetches_max(workers: usize, documents: usize) -> usize {
    workers - documents.min(workers / 2)
}

impl Lane {
    pub(super) fn new(upstream: &UpstreamOptions) -> Self {
        let per_second = u32::try_from(upstream.requests_per_second_max.max(1)).unwrap_or(u32::MAX);
        Self {
            concurrency_max: upstream.concurrency_max,
            spacing: Duration::from_secs(1) / per_second,
            poll_interval: upstream.poll_interval,
            ..Self::default()
        }
    }

    /// Takes the numbers, the rate's state and the pause from the upstream's previous lane.
    pub(super) fn take_over(&mut self, before: &Self) {
        self.next_start = before.next_start;
        self.paused_until = before.paused_until;
        self.rate_waits_total = before.rate_waits_total;
        self.fetch_time = before.fetch_time;
        self.has_failed = before.has_failed;
    }

    /// Returns the time of the next probe: a fetch of a failed key. `None` without an outage.
    pub(super) fn probe(&self) -> Option<Instant> {
        let probe = self.outage.probe()?;
        Some(self.held_until().map_or(probe, |held| held.max(probe)))
    }

    /// Adds a key to its queue.
    pub(super) fn insert(&mut self, kind: FetchKind, ticket: u64, entry: &Entry, key: &Key) {
        match kind {
            FetchKind::Refresh => {
                if self.refreshes.is_empty() {
                    self.waits_for = None;
                }
                self.refreshes.insert(ticket, (entry.due, key.clone()));
            }
            FetchKind::First => self.firsts.insert(entry.owner, ticket, key.clone()),
            FetchKind::Lost => self.lost.insert(entry.owner, ticket, key.clone()),
        }
    }

    /// Removes a key from its queue.
    pub(super) fn remove(&mut self, kind: FetchKind, ticket: u64, owner: Owner) {
        match kind {
            FetchKind::Refresh => _ = self.refreshes.remove(&ticket),
            FetchKind::First => self.firsts.remove(owner, ticket),
            FetchKind::Lost => self.lost.remove(owner, ticket),
        }
    }

    /// Returns the number of waiting keys.
    pub(super) fn waiting(&self) -> usize {
        self.refreshes.len() + self.firsts.len() + self.lost.len()
    }

    /// Returns `true` for each kind of fetch that could begin if the rate allows it: a refresh, a first
    /// fetch, a fetch of a key that doesn't exist.
    fn has_next(&self, room: Room) -> (bool, bool, bool) {
        let is_free = self.limit(room).is_none();
        let first = self.first_limit(room).is_none();
        let lost = first && self.lost_in_flight < (self.concurrency_max / LOST_SHARE).max(1);
        let has = |queue: &FairQueue<Key>| queue.len() > 0;
        (is_free && !self.refreshes.is_empty(), first && has(&self.firsts), lost && has(&self.lost))
    }

    /// Returns the time at which the next fetch may begin, if a key waits only for this time.
    pub(super) fn next_open(&self, room: Room) -> Option<Instant> {
        match self.has_next(room) {
            (false, false, false) => None,
            (false, false, true) => self.open_from().max(self.lost_start),
            _ => self.open_from(),
        }
    }

    /// Returns the limit that prevents any further fetch. `None` if a fetch may begin.
    fn limit(&self, room: Room) -> Option<Limit> {
        if self.in_flight >= self.concurrency_max {
            return Some(Limit::Concurrency);
        }
        (self.in_flight >= self.share && !room.any).then_some(Limit::Fetches)
    }

    /// Returns the limit that prevents a further first fetch. `None` if one may begin.
    fn first_limit(&self, room: Room) -> Option<Limit> {
        let has = |workers| self.first_in_flight < first_fetches_max(workers, self.documents);
        self.limit(room).or_else(|| match (has(self.concurrency_max), has(self.share) || room.first) {
            (false, _) => Some(Limit::Concurrency),
            (true, false) => Some(Limit::Fetches),
            (true, true) => None,
        })
    }

    /// Returns the time before which the rate, a pause or a hold allows no further fetch.
    fn open_from(&self) -> Option<Instant> {
        let ahead = AHEAD_MAX.saturating_sub(self.spacing);
        let next_start = self.next_start.map(|start| start.checked_sub(ahead).unwrap_or(start));
        next_start.max(self.held_until())
    }

    /// Pauses all fetches until this time.
    pub(super) fn pause(&mut self, until: Instant) {
        self.paused_until = self.paused_until.max(Some(until));
    }

    /// Ends the pause, and a hold during an outage.
    pub(super) fn release(&mut self) {
        self.paused_until = None;
        self.outage.release();
    }

    /// Returns the time before which the upstream has asked for no fetches (`Retry-After`).
    fn held_until(&self) -> Option<Instant> {
        self.paused_until.max(self.outage.held_until())
    }

    /// Takes the next key to fetch, if a fetch may begin now.
    pub(super) fn next(&mut self, now: Instant, room: Room) -> Option<Key> {
        let (refresh, first, lost) = self.has_next(room);
        let lost = lost && self.lost_start.is_none_or(|start| start <= now);
        if !self.refreshes.is_empty() {
            self.waits_for = self.limit(room).or(self.waits_for);
        }
        self.first_waits_for = self.first_limit(room);
        if !(refresh || first || lost) {
            return None;
        }
        if self.open_from().is_some_and(|open| open > now) {
            self.rate_waits_total += u64::from(!std::mem::replace(&mut self.rate_waits, true));
            let limit = self.held_until().is_none().then_some(Limit::RequestsPerSecond);
            (self.waits_for, self.first_waits_for) = (limit, limit);
            return None;
        }
        let takes_lost = lost && (!(refresh || first) || self.others_in_row >= LOST_SHARE - 1);
        self.others_in_row = if takes_lost { 0 } else { self.others_in_row.saturating_add(1) };
        let per_first = self.refreshes_per_first(now);
        let takes_refresh = refresh && (!first || self.refreshes_ahead < per_first);
        let key = if takes_lost {
            self.lost_start = Some(now + self.spacing * LOST_SHARE as u32);
            self.lost.next()
        } else if takes_refresh {
            self.refreshes_ahead = (self.refreshes_ahead + 1).min(self.refreshes_ahead_max());
            self.refreshes.first_key_value().map(|(_, (_, key))| key.clone())
        } else {
            self.refreshes_ahead = self.refreshes_ahead.saturating_sub(per_first);
            self.firsts.next()
        };
        self.next_start = Some(self.next_start.map_or(now, |start| start.max(now)) + self.spacing);
        self.paused_until = None;
        self.rate_waits = false;
        self.outage.begin(now);
        key
    }

    /// Counts requests for followed redirects as starts of fetches.
    pub(super) fn record_redirects(&mut self, now: Instant, redirects: u32) {
        if redirects > 0 {
            let next_start = self.next_start.map_or(now, |start| start.max(now));
            self.next_start = Some(next_start + self.spacing * redirects);
        }
    }

    /// Returns the number of refreshes between two first fetches: more if refreshes are late.
    fn refreshes_per_first(&self, now: Instant) -> u32 {
        let due = self.refreshes.first_key_value().and_then(|(_, (due, _))| *due);
        let lateness = due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        if lateness >= self.poll_interval.saturating_mul(INTERVALS_LATE) { LATE_PER_FIRST } else { 1 }
    }

    /// Returns the maximum of `refreshes_ahead`. First fetches may make up for the refreshes that begin while
    /// all slots of first fetches are in use.
    fn refreshes_ahead_max(&self) -> u32 {
        let places = if self.firsts.len() > 0 { self.concurrency_max } else { 0 };
        u32::try_from(places).unwrap_or(u32::MAX).max(LATE_PER_FIRST)
    }

    /// Records that a refresh of the last key from [`Self::next`] begins late by `late`. `interval` is the
    /// time since the last fetch of this key, if that fetch succeeded and `poll_interval` applies.
    pub(super) fn record_refresh(&mut self, late: Duration, interval: Option<Duration>) {
        let limited_by = self.waits_for.filter(|_| !late.is_zero());
        if let Some(interval) = interval {
            self.interval = interval;
            let is_slow = interval > self.poll_interval + self.poll_interval / 10;
            self.limited_by = limited_by.or(is_slow.then_some(Limit::FetchTime));
        }
    }

    /// Records that a first fetch begins, and for how long its key has waited.
    pub(super) fn record_first(&mut self, waited: Duration) {
        self.first_wait = waited;
    }

    /// Records the duration of a fetch.
    pub(super) fn record_fetch_time(&mut self, took: Duration) {
        let is_first = self.fetch_time.is_zero();
        self.fetch_time = if is_first { took } else { self.fetch_time * 7 / 8 + took / 8 };
    }

    /// Records the size of a fetch's body, and the time that the fetch waited for memory.
    pub(super) fn record_body(&mut self, bytes: usize, waited: Duration) {
        self.body_bytes = bytes.max(self.body_bytes - self.body_bytes / 8);
        self.body_wait = self.body_wait * 7 / 8 + waited / 8;
    }

    /// Returns the estimated size in bytes of all bodies if as many fetches are in flight as
    /// `concurrency_max` allows.
    pub(super) fn bodies_bytes(&self) -> usize {
        self.body_bytes.saturating_mul(self.polled.min(self.concurrency_max))
    }

    /// Returns the limit that causes `limit` to be reached. If fetches mainly wait for memory, that is
    /// `fetches_bytes_max`.
    fn cause(&self, limit: Limit) -> Limit {
        let is_memory = !self.body_wait.is_zero() && self.body_wait * 2 >= self.fetch_time;
        if is_memory && limit != Limit::RequestsPerSecond { Limit::FetchesBytes } else { limit }
    }

    /// Returns the value of `limit` with which the interval would be `poll_interval`.
    fn sufficient(&self, limit: Limit, all: AllLanes) -> usize {
        let interval = self.poll_interval.as_secs_f64();
        // Keys that wait for their first document will be refreshed too.
        let per_second = (self.polled as f64 / interval).ceil();
        let concurrency = (self.polled as f64 * self.fetch_time.as_secs_f64() / interval).ceil();
        let concurrency = (concurrency as usize).clamp(1, self.polled.max(1));
        match limit {
            Limit::RequestsPerSecond => per_second as usize,
            Limit::Concurrency => concurrency,
            Limit::Fetches => concurrency.saturating_mul(all.lanes),
            Limit::FetchesBytes => all.bodies_bytes,
            Limit::FetchTime => 0,
        }
    }

    /// Returns the value of `limit` with which all waiting first fetches could begin.
    fn sufficient_for_firsts(&self, limit: Limit, all: AllLanes) -> usize {
        let firsts = self.first_in_flight + self.firsts.len();
        let concurrency = firsts + self.documents.min(firsts);
        let refreshes = self.sufficient(limit, all);
        match limit {
            Limit::RequestsPerSecond => refreshes + self.firsts.len(),
            Limit::Concurrency => refreshes.max(concurrency),
            Limit::Fetches => refreshes.max(concurrency.saturating_mul(all.lanes)),
            Limit::FetchesBytes | Limit::FetchTime => refreshes,
        }
    }

    pub(super) fn stats(&self, all: AllLanes) -> LaneStats {
        let (measured, limited_by) =
            if self.documents > 0 { (self.interval, self.limited_by) } else { Default::default() };
        let first_limited_by = self.first_waits_for.filter(|_| self.firsts.len() > 0);
        let first_limited_by = first_limited_by.map(|limit| self.cause(limit));
        LaneStats {
            in_flight: self.in_flight,
            waiting: self.waiting(),
            first_waiting: self.firsts.len() + self.lost.len(),
            rate_waits: self.rate_waits_total,
            documents: self.documents,
            interval: measured.max(self.poll_interval),
            held_until: self.held_until(),
            limited_by: limited_by
                .map(|limit| self.cause(limit))
                .map(|limit| (limit, self.sufficient(limit, all))),
            first_wait: first_limited_by.map_or(Duration::ZERO, |_| self.first_wait),
            first_limited_by: first_limited_by.map(|limit| (limit, self.sufficient_for_firsts(limit, all))),
            failing: self.failing,
            has_failed: self.has_failed,
        }
    }
}
