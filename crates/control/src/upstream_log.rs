//! The log lines about one upstream: its failures, pauses and delays. Sans-I/O, except that it logs.

use crate::failures::{FailureLog, Line};
use crate::interval_log::{IntervalLog, STEADY};
use crate::max_age::MaxAge;
use crate::options::UpstreamOptions;
use crate::schedule::{FailureClass, LaneStats, Limit};
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// Minimum length of a logged pause.
const PAUSE_LOGGED: Duration = Duration::from_secs(5);

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
