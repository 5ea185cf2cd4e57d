//! The effects of a fetch's outcome: the key's document, state and next due time.

use super::outcome::{FailureClass, Freshness, Outcome, Version};
use super::queues::{QueueState, Queues};
use super::{Entry, Scheduler, common_time, later, state_update};
use crate::options::FeedsOptions;
use fastrand::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{FeedState, Key};
use stentor_ports::FeedUpdate;

/// The minimum delay before a retry, whatever the random number.
pub(super) const RETRY_MIN: Duration = Duration::from_millis(100);

/// A key that failed in an outage continues with the delay after at most this many failures, because the key
/// didn't cause the outage.
const FAILURES_AFTER_OUTAGE: u32 = 2;

impl Scheduler {
    /// Probes the upstream during an outage: makes the next failed key due now.
    pub(super) fn probe(&mut self, now: Instant, upstream: usize) {
        let lane = self.queues.lane_mut(upstream);
        lane.outage.begin(now);
        let entries = &self.entries;
        let waits = |key: &Key| {
            let entry = entries.get(key)?;
            let may =
                entry.queue_state == QueueState::Parked && entry.last.not_before().is_none_or(|at| at <= now);
            entry.due.filter(|due| may && entry.is_active() && *due > now)
        };
        let next = lane.outage.keys().filter_map(|key| Some((waits(key)?, key))).min();
        if let Some(key) = next.map(|(_, key)| key.clone()) {
            self.bring_forward(&key, now);
        }
    }

    /// Makes a failed key due earlier than planned, but not before the time that its upstream has set.
    fn bring_forward(&mut self, key: &Key, due: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if entry.last.failures.is_none() || entry.queue_state != QueueState::Parked {
            return;
        }
        self.queues.detach(key, entry);
        let due = entry.last.not_before().map_or(due, |at| at.max(due));
        entry.due = entry.due.map(|before| before.min(due));
        self.queues.attach(key, entry);
    }

    /// If a success ends an outage, makes the keys that failed in it due at once.
    fn end_outage(&mut self, now: Instant, upstream: usize) {
        let Some((due, keys)) = self.queues.lane_mut(upstream).outage.succeed(now) else { return };
        for key in keys {
            self.bring_forward(&key, due);
            let entry = self.entries.get_mut(&key);
            if let Some(failures) = entry.and_then(|entry| entry.last.failures.as_mut()) {
                failures.count = failures.count.min(FAILURES_AFTER_OUTAGE);
            }
        }
    }

    /// Makes a key due now, because its upstream has just answered a request for it outside the schedule.
    /// Ends holds by `Retry-After`: that of the key, and that of all keys of its upstream (429).
    pub fn refetch(&mut self, now: Instant, key: &Key) {
        let Some(upstream) = self.routes.find(key) else { return };
        self.queues.lane_mut(upstream).release();
        let is_held = |other: &Key, entry: &Entry| {
            let is_paused =
                entry.upstream == upstream && entry.last.failing() == Some(FailureClass::TooManyRequests);
            (is_paused || other == key) && entry.due.is_some() && entry.queue_state == QueueState::Parked
        };
        // In the order of the keys, so that a run only depends on its inputs.
        let mut held: Vec<Key> = self
            .entries
            .iter()
            .filter(|(key, entry)| is_held(key, entry))
            .map(|(key, _)| key.clone())
            .collect();
        held.sort_unstable();
        for key in held {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            self.queues.detach(&key, entry);
            if let Some(failures) = &mut entry.last.failures {
                failures.not_before = None;
            }
            entry.due = entry.due.map(|due| due.min(now));
            self.queues.attach(&key, entry);
        }
    }

    /// Counts requests for followed redirects towards `requests_per_second_max`.
    pub fn record_redirects(&mut self, now: Instant, upstream: usize, redirects: u32) {
        self.queues.lane_mut(upstream).rate.record_requests(now, redirects);
    }

    /// Handles the outcome of a fetch. Ignores it if no fetch of the key is in flight.
    pub fn handle_result(&mut self, now: Instant, key: &Key, outcome: Outcome) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let QueueState::InFlight { started, .. } = entry.queue_state else { return };
        self.queues.detach(key, entry);
        let lane = self.queues.lane_mut(entry.upstream);
        lane.measured.record_fetch_time(now.saturating_duration_since(started));
        entry.last.took = now.saturating_duration_since(started);
        entry.queue_state = QueueState::Parked;
        let over = entry.linger_end.is_some_and(|end| end <= now);
        self.queues.attach(key, entry);
        if over {
            self.forget(key);
            return;
        }
        let outcome = self.enforce_limits(key, outcome);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let upstream = entry.upstream;
        if matches!(outcome, Outcome::Fresh { .. } | Outcome::Same { .. } | Outcome::Gone { .. }) {
            self.end_outage(now, upstream);
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.queues.detach(key, entry);
        match outcome {
            Outcome::NotFound { .. } => self.queues.lane_mut(upstream).outage.forget(key),
            Outcome::Fresh { .. } | Outcome::Same { .. } => entry.last.succeeded_at = Some(now),
            Outcome::Gone { .. } | Outcome::Failed { .. } => {}
        }
        let mut tell = |update| self.events.push_back((key.clone(), update));
        match outcome {
            Outcome::Fresh { change, validators, freshness } => {
                entry.kept = Some(Arc::new(Version { document: change.document.clone(), validators }));
                tell(FeedUpdate::Changed(change));
                entry.state = Some(FeedState::Live);
                let origin = *self.first_refreshed.get_or_insert(started);
                succeed(&self.options, entry, origin, started, now, freshness, &mut tell);
            }
            Outcome::Same { validators, freshness } => {
                if let (Some(kept), Some(validators)) = (&mut entry.kept, validators)
                    && kept.validators != validators
                {
                    Arc::make_mut(kept).validators = validators;
                }
                if entry.state != Some(FeedState::Live) {
                    entry.state = Some(FeedState::Live);
                    tell(state_update(FeedState::Live, &"the upstream answers again".into()));
                }
                let origin = *self.first_refreshed.get_or_insert(started);
                succeed(&self.options, entry, origin, started, now, freshness, &mut tell);
            }
            Outcome::Gone { reason } => end(entry, reason, &mut tell),
            // The key keeps its document for a while, because a proxy in front of the upstream may answer 404
            // during a deploy.
            Outcome::NotFound { reason } if is_missing(&self.options, entry, now) => {
                let poll_interval = self.options.upstreams[upstream].poll_interval;
                let failures = entry.last.fail(now, FailureClass::NotFound);
                failures.count = 0;
                let since = *failures.missing_since.get_or_insert(now);
                let over = later(since, self.options.not_found_after);
                entry.due = Some(later(started, poll_interval).min(over).max(now));
                become_stale(entry, reason, &mut tell);
            }
            Outcome::NotFound { reason } => {
                if entry.state != Some(FeedState::NotFound) {
                    tell(state_update(FeedState::NotFound, &reason));
                }
                entry.state = Some(FeedState::NotFound);
                entry.reason = reason;
                entry.kept = None;
                entry.last.failures = None;
                entry.due = Some(later(now, self.options.not_found_retry_interval));
            }
            Outcome::Failed { class, reason, retry_after, pause } => {
                let lost = entry.state == Some(FeedState::NotFound);
                let lane = self.queues.lane_mut(upstream);
                let retry_after =
                    retry_after.map(|wait| later(now, self.options.bounded_retry_after(wait, pause)));
                let failures = entry.last.fail(now, class);
                failures.count = failures.count.saturating_add(1);
                (failures.missing_since, failures.not_before) = (None, retry_after);
                let wait = later(now, backoff(&self.options, failures.count, &mut self.random));
                if pause {
                    lane.rate.pause(retry_after.map_or(wait, |at| at.max(wait)));
                } else if let Some(until) = retry_after {
                    lane.outage.hold(until);
                }
                entry.due = Some(if lost {
                    later(now, self.options.not_found_retry_interval)
                } else {
                    if !matches!(class, FailureClass::NoSpace | FailureClass::Internal) {
                        lane.outage.fail(now, key, lane.polled + 1);
                    }
                    let due = lane.outage.due_if_begun_in(started).unwrap_or(wait).clamp(now, wait.max(now));
                    retry_after.map_or(due, |at| at.max(due))
                });
                if !lost {
                    become_stale(entry, reason, &mut tell);
                }
            }
        }
        self.queues.attach(key, entry);
    }

    /// Makes space for a new document by evicting keys without subscribers. Turns the outcome into a failure
    /// if the document still doesn't fit, or if it is `Same` without a kept document.
    fn enforce_limits(&mut self, key: &Key, outcome: Outcome) -> Outcome {
        let Some(entry) = self.entries.get(key) else { return outcome };
        match &outcome {
            Outcome::Fresh { change, .. } => {
                let (new, old) = (change.document.body.len(), entry.document_bytes());
                let most = self.options.documents_bytes_max;
                let fits = |queues: &Queues| {
                    let others = queues.documents_bytes() - old;
                    others.checked_add(new).is_some_and(|sum| sum <= most)
                };
                if fits(&self.queues) {
                    return outcome;
                }
                while let Some(oldest) = self.queues.first_lingering(None).filter(|oldest| oldest != key) {
                    self.counters.evicted_keys += 1;
                    self.forget(&oldest);
                    if fits(&self.queues) {
                        return outcome;
                    }
                }
                self.counters.refused_documents += 1;
                let reason = "there is no room for the new version (feeds_limits.documents_bytes_max)";
                Outcome::failed(FailureClass::NoSpace, reason)
            }
            Outcome::Same { .. } if entry.kept.is_none() => {
                let reason = "the upstream answered 304 to a request without a condition";
                Outcome::failed(FailureClass::Status, reason)
            }
            _ => outcome,
        }
    }
}

/// Changes an entry after a successful fetch. Common times of refreshes count from `origin`.
fn succeed(
    options: &FeedsOptions,
    entry: &mut Entry,
    origin: Instant,
    started: Instant,
    now: Instant,
    freshness: Freshness,
    tell: &mut impl FnMut(FeedUpdate),
) {
    entry.last.failures = None;
    entry.reason = Arc::default();
    entry.due = match freshness {
        Freshness::For(age) => Some(later(now, options.bounded_max_age(entry.upstream, age))),
        // The interval counts from the start of the fetch, so that it doesn't grow with a slow upstream. The
        // due time is never in the past.
        Freshness::Unsaid => {
            entry.fetched = Some(started);
            let interval = options.upstreams[entry.upstream].poll_interval;
            Some(common_time(origin, later(started, interval), interval).max(now))
        }
        Freshness::Over => {
            end(entry, "the upstream said that this is the last version (max-age=0)".into(), tell);
            None
        }
    };
}

/// Returns `true` if a key with a 404 has a document that it still keeps (`not_found_after`).
fn is_missing(options: &FeedsOptions, entry: &Entry, now: Instant) -> bool {
    let since = entry.last.failures.as_ref().and_then(|failures| failures.missing_since);
    let missing = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    entry.kept.is_some() && missing < options.not_found_after
}

fn become_stale(entry: &mut Entry, reason: Arc<str>, tell: &mut impl FnMut(FeedUpdate)) {
    if entry.state != Some(FeedState::Stale) || entry.reason != reason {
        tell(state_update(FeedState::Stale, &reason));
    }
    entry.state = Some(FeedState::Stale);
    entry.reason = reason;
}

fn end(entry: &mut Entry, reason: Arc<str>, tell: &mut impl FnMut(FeedUpdate)) {
    tell(state_update(FeedState::Complete, &reason));
    entry.state = Some(FeedState::Complete);
    entry.reason = reason;
    entry.last.failures = None;
    entry.due = None;
}

/// Returns a random delay (exponential back-off with full jitter) between [`RETRY_MIN`] and a maximum that
/// doubles with each failure.
pub(super) fn backoff(options: &FeedsOptions, failures: u32, random: &mut Rng) -> Duration {
    let doubled = options
        .backoff_initial
        .saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let bound = doubled.min(options.backoff_max);
    let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random.u64(..=nanos)).max(RETRY_MIN)
}
