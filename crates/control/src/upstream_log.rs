//! The log lines about one upstream. Sans-I/O, except that it logs.
//!
//! - Failures: one line when a kind of failure begins, one for each further cause of this kind, and one when it ends. Failed fetches aren't
//!   logged one by one. A kind of failure that begins and ends repeatedly causes at most [`CHANGES_MAX`] lines within
//!   [`CHANGES_INTERVAL`]. A later change is logged with the first fetch after the interval.
//! - Documents that are fetched less often than `poll_interval`, and new keys that wait: one line when this begins, and one when it ends.
//! - The interval that the upstream's `Cache-Control` sets, and pauses for which the upstream asks.

use crate::options::UpstreamOptions;
use crate::schedule::{FAILURE_CLASSES, FailureClass, LaneStats, Limit};
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// Minimum length of a logged pause.
const PAUSE_LOGGED: Duration = Duration::from_secs(5);

/// Maximum number of log lines for one kind of failure of one upstream within [`CHANGES_INTERVAL`].
const CHANGES_MAX: u32 = 4;
const CHANGES_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of causes of one kind of failure that are logged before it ends.
const CAUSES_MAX: usize = 16;
/// Minimum time between two lines about keys that an upstream doesn't have. Such lines are rare because
/// clients may request any key.
const MISSING_INTERVAL: Duration = Duration::from_secs(600);
/// Time for which a state must last before it is logged. When many keys start at once, the limits delay only
/// their first fetches, which isn't logged.
const STEADY: Duration = Duration::from_secs(5);
/// An interval counts as longer if it exceeds `poll_interval` by more than `poll_interval / SHARE`.
const SHARE: u32 = 10;
/// Minimum time between two log lines about an upstream, because an upstream may send `max-age` with only
/// some documents.
const MAX_AGE_QUIET: Duration = Duration::from_secs(600);

/// The log state of one upstream.
#[derive(Default)]
pub(crate) struct UpstreamLog {
    pub(crate) failures: FailureLog,
    /// End of the last logged pause.
    paused_until: Option<Instant>,
    interval: IntervalLog,
    /// The logged waits for first fetches.
    first_wait: IntervalLog,
    pub(crate) max_age: MaxAge,
}

impl UpstreamLog {
    /// Returns the state after a reload, which keeps only the logged failures.
    pub(crate) fn after_reload(self) -> Self {
        Self { failures: self.failures, ..Self::default() }
    }

    /// Records a 404 of the upstream. For a key that keeps its document, the 404 is a failure. For other
    /// keys, only few are logged.
    pub(crate) fn record_missing(
        &mut self,
        now: Instant,
        upstream: &str,
        key: &Key,
        cause: &str,
        keeps_document: bool,
    ) {
        if keeps_document {
            let text = format!("{cause}; its document stays for feeds_limits.not_found_after");
            self.failures.record(FailureClass::NotFound, "", key, &text);
        } else if self.failures.record_missing(now) {
            let key = key.as_str();
            tracing::info!(upstream, key, cause, "the upstream has no document for a key");
        }
    }

    /// Records the `max-age` of a response, and the time until the key's next fetch if `max_age` sets it.
    pub(crate) fn record_max_age(
        &mut self,
        now: Instant,
        upstream: &UpstreamOptions,
        key: &Key,
        max_age: Option<Duration>,
        interval: Option<Duration>,
    ) {
        let UpstreamOptions { name, poll_interval, .. } = upstream;
        if self.max_age.record(now, *poll_interval, interval) {
            let (max_age, interval) = (max_age.unwrap_or_default(), interval.unwrap_or_default());
            tracing::info!(
                upstream = name,
                key = key.as_str(),
                ?max_age,
                ?interval,
                ?poll_interval,
                "Cache-Control sets the time until the next fetch, not poll_interval; max_age_min and max_age_max bound it, and \
                 ignore_cache_control turns this off"
            );
        }
    }

    /// Logs the failures, pauses and delays that have begun or ended.
    pub(crate) fn review(&mut self, now: Instant, upstream: &UpstreamOptions, lane: &LaneStats) {
        let UpstreamOptions { name, poll_interval, .. } = upstream;
        self.review_interval(now, name, *poll_interval, lane);
        self.review_first_wait(now, name, lane);
        self.review_pause(now, name, lane);
        self.review_failures(now, name, lane);
    }

    fn review_interval(&mut self, now: Instant, name: &str, poll_interval: Duration, lane: &LaneStats) {
        if let Some(is_longer) = self.interval.review(now, poll_interval, lane.interval) {
            let effective_interval = Duration::from_millis(lane.interval.as_millis() as u64);
            let keys = lane.documents;
            let limit = lane.limited_by.filter(|_| is_longer);
            match limit {
                Some((Limit::FetchTime, _)) => tracing::warn!(
                    upstream = name,
                    keys,
                    ?poll_interval,
                    ?effective_interval,
                    "the upstream takes longer than poll_interval: its documents are fetched less often"
                ),
                Some((limit, sufficient)) => tracing::warn!(
                    upstream = name,
                    keys,
                    limit = limit.name(),
                    sufficient,
                    ?poll_interval,
                    ?effective_interval,
                    "a limit is reached: documents are fetched less often than poll_interval says; raise the limit to the \
                     sufficient value, or poll_interval"
                ),
                None if is_longer => {}
                None => {
                    tracing::info!(
                        upstream = name,
                        keys,
                        ?poll_interval,
                        "documents are fetched at poll_interval again"
                    );
                }
            }
        }
    }

    fn review_first_wait(&mut self, now: Instant, name: &str, lane: &LaneStats) {
        if let Some(is_longer) = self.first_wait.review(now, STEADY, lane.first_wait) {
            let keys = lane.first_waiting;
            match lane.first_limited_by.filter(|_| is_longer) {
                Some((limit, sufficient)) => tracing::warn!(
                    upstream = name,
                    keys,
                    limit = limit.name(),
                    sufficient,
                    waited = ?lane.first_wait,
                    "a limit is reached: new keys wait for their first document; raise the limit to the sufficient value"
                ),
                None => tracing::info!(upstream = name, "new keys no longer wait for their first document"),
            }
        }
    }

    fn review_pause(&mut self, now: Instant, name: &str, lane: &LaneStats) {
        let held = lane.held_until.filter(|until| *until >= now + PAUSE_LOGGED);
        if held > self.paused_until {
            self.paused_until = held;
            let pause = held.map(|until| Duration::from_secs((until - now).as_secs_f64().ceil() as u64));
            tracing::warn!(
                upstream = name,
                ?pause,
                "the upstream asks for no requests (Retry-After): no documents are fetched meanwhile"
            );
        }
    }

    fn review_failures(&mut self, now: Instant, name: &str, lane: &LaneStats) {
        for line in self.failures.review(now, &lane.failing) {
            match line {
                Line::Fails { class, last: Some((key, cause)) } => {
                    let (failure, key) = (class.name(), key.as_str());
                    tracing::warn!(upstream = name, failure, key, cause, "fetches fail");
                }
                Line::Fails { class, last: None } => {
                    tracing::warn!(upstream = name, failure = class.name(), "fetches fail");
                }
                Line::Recovered { class: FailureClass::NotFound } => {
                    let text = "no documents are kept of keys that the upstream answers with 404";
                    tracing::info!(upstream = name, failure = FailureClass::NotFound.name(), "{text}");
                }
                Line::Recovered { class } => {
                    tracing::info!(upstream = name, failure = class.name(), "fetches no longer fail");
                }
            }
        }
    }
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    /// A first key fails with this kind of failure.
    Fails {
        class: FailureClass,
        /// The key and the reason with all details. `None` if the scheduler itself refused a document.
        last: Option<(Key, String)>,
    },
    /// The last key has stopped failing with this kind of failure.
    Recovered { class: FailureClass },
}

/// The logged failures of one upstream.
#[derive(Default)]
pub(crate) struct FailureLog {
    classes: [Logged; FAILURE_CLASSES],
    /// Time of the last log line about a missing key.
    missing: Option<Instant>,
}

#[derive(Default)]
struct Logged {
    /// The last logged state. `true` if keys fail.
    failing: bool,
    /// Start of the interval in which changes are counted.
    since: Option<Instant>,
    /// Number of changes in this interval.
    changes: u32,
    last: Option<(Key, String)>,
    /// The cause of the last recorded failure.
    cause: String,
    /// The causes that have been logged since this kind of failure began.
    causes: Vec<String>,
}

impl FailureLog {
    /// Records a failed fetch. `cause` identifies the cause within the kind of failure. `text` is the message
    /// with all details.
    pub(crate) fn record(&mut self, class: FailureClass, cause: &str, key: &Key, text: &str) {
        let logged = &mut self.classes[class as usize];
        logged.last = Some((key.clone(), text.to_owned()));
        cause.clone_into(&mut logged.cause);
    }

    /// Records that the upstream doesn't have a key. Returns `true` if this must be logged.
    pub(crate) fn record_missing(&mut self, now: Instant) -> bool {
        let is_due = self.missing.is_none_or(|last| now.duration_since(last) >= MISSING_INTERVAL);
        if is_due {
            self.missing = Some(now);
        }
        is_due
    }

    /// Returns the log lines that are due. `failing` are the current numbers of failing keys by kind of
    /// failure.
    fn review(&mut self, now: Instant, failing: &[usize; FAILURE_CLASSES]) -> Vec<Line> {
        let mut lines = Vec::new();
        for (class, (logged, failing)) in
            FailureClass::ALL.into_iter().zip(self.classes.iter_mut().zip(failing))
        {
            let failing = *failing > 0;
            let has_new_cause = failing
                && logged.last.is_some()
                && logged.causes.len() < CAUSES_MAX
                && !logged.causes.contains(&logged.cause);
            if failing == logged.failing && !has_new_cause {
                continue;
            }
            if logged.since.is_none_or(|since| now.duration_since(since) >= CHANGES_INTERVAL) {
                (logged.since, logged.changes) = (Some(now), 0);
            }
            if logged.changes == CHANGES_MAX {
                continue;
            }
            logged.changes += 1;
            if !std::mem::replace(&mut logged.failing, failing) {
                logged.causes.clear();
            }
            logged.causes.push(logged.cause.clone());
            let last = logged.last.take();
            lines.push(if failing { Line::Fails { class, last } } else { Line::Recovered { class } });
        }
        lines
    }
}

/// The log state of an interval that may be longer than configured.
#[derive(Default)]
struct IntervalLog {
    /// The last logged state. `true` if the interval is longer than configured.
    is_longer: bool,
    /// Time since which the state has been different from the logged one.
    since: Option<Instant>,
}

impl IntervalLog {
    /// Returns `Some` if a line must be logged: `true` if the interval is longer now, `false` if no longer.
    pub(crate) fn review(
        &mut self,
        now: Instant,
        poll_interval: Duration,
        effective: Duration,
    ) -> Option<bool> {
        let is_longer = effective > poll_interval + poll_interval / SHARE;
        if is_longer == self.is_longer {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < STEADY {
            return None;
        }
        *self = Self { is_longer, since: None };
        Some(is_longer)
    }
}

/// The last `max-age` of an upstream.
#[derive(Default)]
pub(crate) struct MaxAge {
    /// The last `max-age`, within its configured minimum and maximum. `None` if the last successful response
    /// had no `max-age`, so that `poll_interval` applies.
    pub(crate) interval: Option<Duration>,
    logged: Option<Instant>,
}

impl MaxAge {
    /// Records the interval that a successful response sets. Returns `true` if it must be logged: it differs
    /// from `poll_interval`, and the last line is at least [`MAX_AGE_QUIET`] ago.
    pub(crate) fn record(
        &mut self,
        now: Instant,
        poll_interval: Duration,
        interval: Option<Duration>,
    ) -> bool {
        self.interval = interval;
        let is_quiet =
            self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= MAX_AGE_QUIET);
        let is_worth_a_line = is_quiet && interval.is_some_and(|interval| interval != poll_interval);
        if is_worth_a_line {
            self.logged = Some(now);
        }
        is_worth_a_line
    }
}

#[cfg(test)]
mod tests;
