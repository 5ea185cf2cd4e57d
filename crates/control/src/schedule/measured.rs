//! Measurements of a lane's fetches, and the limits that delay them.

use super::outcome::Limit;
use std::time::Duration;

/// Sums over all lanes.
#[derive(Clone, Copy)]
pub(super) struct AllLanes {
    /// Number of lanes that share `fetches_max`.
    pub(super) lanes: usize,
    /// The sum of [`Lane::bodies_bytes`](super::lane::Lane::bodies_bytes).
    pub(super) bodies_bytes: usize,
}

#[derive(Default)]
pub(super) struct Measured {
    pub(super) poll_interval: Duration,
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
    pub(super) body_bytes: usize,
}

impl Measured {
    pub(super) fn new(poll_interval: Duration) -> Self {
        Self { poll_interval, ..Self::default() }
    }

    /// Takes the mean duration of fetches from the upstream's previous lane.
    pub(super) fn take_over(&mut self, before: &Self) {
        self.fetch_time = before.fetch_time;
    }

    /// Records that no refresh waits.
    pub(super) fn end_refresh_waits(&mut self) {
        self.waits_for = None;
    }

    /// Records the limits that prevent waiting refreshes and first fetches.
    pub(super) fn record_limits(&mut self, refresh: Option<Limit>, first: Option<Limit>) {
        (self.waits_for, self.first_waits_for) = (refresh.or(self.waits_for), first);
    }

    /// Records that only the rate delays fetches. `limit` is `None` during a pause.
    pub(super) fn record_rate(&mut self, limit: Option<Limit>) {
        (self.waits_for, self.first_waits_for) = (limit, limit);
    }

    /// Records that a refresh of the last key from [`Lane::next`](super::lane::Lane::next) begins late by
    /// `late`. `interval` is the time since the last fetch of this key, if that fetch succeeded and
    /// `poll_interval` applies.
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

    /// Returns the interval of refreshes and the limit because of which it is longer than `poll_interval`.
    pub(super) fn refreshes(&self) -> (Duration, Option<Limit>) {
        (self.interval.max(self.poll_interval), self.limited_by.map(|limit| self.cause(limit)))
    }

    /// Returns the time for which the key of the last first fetch waited, and the limit that delays first
    /// fetches. `None` without such a limit.
    pub(super) fn firsts(&self) -> Option<(Duration, Limit)> {
        self.first_waits_for.map(|limit| (self.first_wait, self.cause(limit)))
    }

    /// Returns the limit that causes `limit` to be reached. If fetches mainly wait for memory, that is
    /// `fetches_bytes_max`.
    fn cause(&self, limit: Limit) -> Limit {
        let is_memory = !self.body_wait.is_zero() && self.body_wait * 2 >= self.fetch_time;
        if is_memory && limit != Limit::RequestsPerSecond { Limit::FetchesBytes } else { limit }
    }

    /// Returns the value of `limit` with which the interval of `polled` keys would be `poll_interval`.
    pub(super) fn sufficient(&self, limit: Limit, polled: usize, all: AllLanes) -> usize {
        let interval = self.poll_interval.as_secs_f64();
        // Keys that wait for their first document will be refreshed too.
        let per_second = (polled as f64 / interval).ceil();
        let concurrency = (polled as f64 * self.fetch_time.as_secs_f64() / interval).ceil();
        let concurrency = (concurrency as usize).clamp(1, polled.max(1));
        match limit {
            Limit::RequestsPerSecond => per_second as usize,
            Limit::Concurrency => concurrency,
            Limit::Fetches => concurrency.saturating_mul(all.lanes),
            Limit::FetchesBytes => all.bodies_bytes,
            Limit::FetchTime => 0,
        }
    }
}
