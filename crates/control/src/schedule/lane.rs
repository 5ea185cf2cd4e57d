//! A lane: the keys of an upstream that wait for a fetch, and the times at which fetches may start.

use super::Entry;
use super::lost::Lost;
use super::measured::{AllLanes, Measured};
use super::outage::Outage;
use super::outcome::{FAILURE_CLASSES, LaneStats, Limit};
use super::rate::Rate;
use super::slots::{FetchKind, Room, Slots};
use crate::fair::{FairQueue, Owner};
use crate::options::UpstreamOptions;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// A refresh that is late by this many intervals precedes first fetches.
const INTERVALS_LATE: u32 = 10;

/// Number of late refreshes in a row after which a waiting first fetch may begin.
const LATE_PER_FIRST: u32 = 7;

#[derive(Default)]
pub(super) struct Lane {
    pub(super) slots: Slots,
    pub(super) rate: Rate,
    pub(super) outage: Outage,
    pub(super) measured: Measured,
    /// Number of keys whose last fetch has failed, by kind of failure.
    pub(super) failing: [usize; FAILURE_CLASSES],
    pub(super) has_failed: [bool; FAILURE_CLASSES],
    /// Number of keys that are fetched regularly, now or after their first document.
    pub(super) polled: usize,
    /// Keys that wait for a refresh, with their due times.
    refreshes: BTreeMap<u64, (Option<Instant>, Key)>,
    /// Keys that wait for their first document.
    pub(super) firsts: FairQueue<Key>,
    lost: Lost,
    /// Number of refreshes that began while first fetches waited, minus the first fetches that began in their
    /// turn later.
    refreshes_ahead: u32,
}

impl Lane {
    pub(super) fn new(upstream: &UpstreamOptions) -> Self {
        Self {
            slots: Slots::new(upstream.concurrency_max),
            rate: Rate::new(upstream.requests_per_second_max),
            measured: Measured::new(upstream.poll_interval),
            ..Self::default()
        }
    }

    /// Takes the numbers, the rate's state and the pause from the upstream's previous lane.
    pub(super) fn take_over(&mut self, before: &Self) {
        self.rate.take_over(&before.rate);
        self.measured.take_over(&before.measured);
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
                    self.measured.end_refresh_waits();
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
        let refresh = self.slots.limit(room).is_none() && !self.refreshes.is_empty();
        let first = self.slots.first_limit(room).is_none() && self.firsts.len() > 0;
        (refresh, first, self.slots.has_for_lost(room) && self.lost.len() > 0)
    }

    /// Returns the time at which the next fetch may begin, if a key waits only for this time.
    pub(super) fn next_open(&self, room: Room) -> Option<Instant> {
        match self.has_next(room) {
            (false, false, false) => None,
            (false, false, true) => self.open_from().max(self.lost.start),
            _ => self.open_from(),
        }
    }

    /// Returns the time before which the rate, a pause or a hold allows no further fetch.
    fn open_from(&self) -> Option<Instant> {
        self.rate.next_start().max(self.held_until())
    }

    /// Ends the pause, and a hold during an outage.
    pub(super) fn release(&mut self) {
        self.rate.paused_until = None;
        self.outage.release();
    }

    /// Returns the time before which the upstream has asked for no fetches (`Retry-After`).
    fn held_until(&self) -> Option<Instant> {
        self.rate.paused_until.max(self.outage.held_until())
    }

    /// Takes the next key to fetch, if a fetch may begin now.
    pub(super) fn next(&mut self, now: Instant, room: Room) -> Option<Key> {
        let (refresh, first, lost) = self.has_next(room);
        let lost = lost && self.lost.start.is_none_or(|start| start <= now);
        let limit = self.slots.limit(room).filter(|_| !self.refreshes.is_empty());
        self.measured.record_limits(limit, self.slots.first_limit(room));
        if !(refresh || first || lost) {
            return None;
        }
        if self.open_from().is_some_and(|open| open > now) {
            self.rate.count_wait();
            self.measured.record_rate(self.held_until().is_none().then_some(Limit::RequestsPerSecond));
            return None;
        }
        let takes_lost = lost && (!(refresh || first) || self.lost.has_turn());
        let key = if takes_lost {
            self.lost.next(now, self.rate.spacing)
        } else {
            self.lost.skip();
            self.next_existing(now, refresh, first)
        };
        self.rate.begin(now);
        self.outage.begin(now);
        key
    }

    /// Takes the next key with a document, if `refresh`, or the next new one, if `first`.
    fn next_existing(&mut self, now: Instant, refresh: bool, first: bool) -> Option<Key> {
        let per_first = self.refreshes_per_first(now);
        if refresh && (!first || self.refreshes_ahead < per_first) {
            self.refreshes_ahead = (self.refreshes_ahead + 1).min(self.refreshes_ahead_max());
            self.refreshes.first_key_value().map(|(_, (_, key))| key.clone())
        } else {
            self.refreshes_ahead = self.refreshes_ahead.saturating_sub(per_first);
            self.firsts.next()
        }
    }

    /// Returns the number of refreshes between two first fetches: more if refreshes are late.
    fn refreshes_per_first(&self, now: Instant) -> u32 {
        let due = self.refreshes.first_key_value().and_then(|(_, (due, _))| *due);
        let lateness = due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        let is_late = lateness >= self.measured.poll_interval.saturating_mul(INTERVALS_LATE);
        if is_late { LATE_PER_FIRST } else { 1 }
    }

    /// Returns the maximum of `refreshes_ahead`. First fetches may make up for the refreshes that begin while
    /// all slots of first fetches are in use.
    fn refreshes_ahead_max(&self) -> u32 {
        let places = if self.firsts.len() > 0 { self.slots.concurrency_max } else { 0 };
        u32::try_from(places).unwrap_or(u32::MAX).max(LATE_PER_FIRST)
    }

    /// Returns the estimated size in bytes of all bodies if as many fetches are in flight as
    /// `concurrency_max` allows.
    pub(super) fn bodies_bytes(&self) -> usize {
        self.measured.body_bytes.saturating_mul(self.polled.min(self.slots.concurrency_max))
    }

    /// Returns the value of `limit` with which all waiting first fetches could begin.
    fn sufficient_for_firsts(&self, limit: Limit, all: AllLanes) -> usize {
        let firsts = self.slots.first_in_flight + self.firsts.len();
        let concurrency = firsts + self.slots.documents.min(firsts);
        let refreshes = self.measured.sufficient(limit, self.polled, all);
        match limit {
            Limit::RequestsPerSecond => refreshes + self.firsts.len(),
            Limit::Concurrency => refreshes.max(concurrency),
            Limit::Fetches => refreshes.max(concurrency.saturating_mul(all.lanes)),
            Limit::FetchesBytes | Limit::FetchTime => refreshes,
        }
    }

    pub(super) fn stats(&self, all: AllLanes) -> LaneStats {
        let documents = self.slots.documents;
        let (interval, limited_by) = self.measured.refreshes();
        let (interval, limited_by) =
            if documents > 0 { (interval, limited_by) } else { (self.measured.poll_interval, None) };
        let firsts = self.measured.firsts().filter(|_| self.firsts.len() > 0);
        LaneStats {
            in_flight: self.slots.in_flight,
            waiting: self.waiting(),
            first_waiting: self.firsts.len() + self.lost.len(),
            rate_waits: self.rate.waits,
            documents,
            interval,
            held_until: self.held_until(),
            limited_by: limited_by.map(|limit| (limit, self.measured.sufficient(limit, self.polled, all))),
            first_wait: firsts.map_or(Duration::ZERO, |(wait, _)| wait),
            first_limited_by: firsts.map(|(_, limit)| (limit, self.sufficient_for_firsts(limit, all))),
            failing: self.failing,
            has_failed: self.has_failed,
        }
    }
}
