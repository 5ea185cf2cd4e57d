//! The metrics of each hook.

use super::failure::Cause;
use super::options::HookKind;
use crate::declare::metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    hook: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    hook: Arc<str>,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    hook: Arc<str>,
    cause: &'static str,
}

metrics! {
    /// The metrics of all hooks.
    pub(crate) struct Metrics {
        requests: Family<HookLabels, Counter>,
            "hook_requests", "Requests to hooks, by hook";
        request_failures: Family<CauseLabels, Counter>,
            "hook_request_failures",
            "Requests to hooks that failed, and questions without an answer in a response, by hook and cause";
        // Buckets from 0.5 ms to 8 s.
        request_seconds: Family<HookLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 15))),
            "hook_request_seconds", "Duration of a request, by hook";
        questions: Family<KindLabels, Counter>,
            "hook_questions", "Questions to hooks, by hook and kind";
        unanswered: Family<CauseLabels, Counter>,
            "hook_unanswered_questions",
            "Questions that were refused or allowed because the hook gave no answer, by hook and cause";
        cached: Family<HookLabels, Counter>,
            "hook_cached_answers", "Questions answered from the cache, by hook";
        breaker_open: Family<HookLabels, Gauge>,
            "hook_breaker_open", "Whether the hook isn't asked because its requests fail, by hook";
        in_flight: Family<HookLabels, Gauge>,
            "hook_requests_in_flight", "Requests in flight, by hook";
        waiting: Family<HookLabels, Gauge>,
            "hook_waiting_questions", "Questions that wait for a request, by hook";
        notices: Family<KindLabels, Counter>,
            "hook_notices", "Notices for hooks, by hook and kind";
        notices_dropped: Family<HookLabels, Counter>,
            "hook_notices_dropped",
            "Notices that were dropped because too many waited or the backend refused them, by hook";
        notices_waiting: Family<HookLabels, Gauge>,
            "hook_waiting_notices", "Notices that wait for a request, by hook";
        emits_without_recipients: Family<HookLabels, Counter>,
            "hook_emit_without_recipients",
            "Messages in a hook's answers that no session was there to receive, by hook. Of a node in a cluster, only those to \
             sessions by id";
        emits_unconfirmed: Family<HookLabels, Counter>,
            "hook_emit_unconfirmed",
            "Messages in a hook's answers to sessions by id whose delivery is unknown, because other nodes didn't answer or this \
             one was too busy, by hook";
    }
}

/// The metrics of one hook. All appear in `/metrics` from the start.
#[derive(Clone)]
pub(super) struct HookMetrics {
    pub(super) requests: Counter,
    request_failures: Vec<Counter>,
    pub(super) request_seconds: Histogram,
    questions: Vec<Counter>,
    unanswered: Vec<Counter>,
    pub(super) cached: Counter,
    pub(super) breaker_open: Gauge,
    pub(super) in_flight: Gauge,
    pub(super) waiting: Gauge,
    notices: Vec<Counter>,
    pub(super) notices_dropped: Counter,
    pub(super) notices_waiting: Gauge,
    pub(super) emits_without_recipients: Counter,
    pub(super) emits_unconfirmed: Counter,
}

impl HookMetrics {
    pub(super) fn failure(&self, cause: Cause) -> &Counter {
        &self.request_failures[cause as usize]
    }

    pub(super) fn question(&self, kind: HookKind) -> &Counter {
        &self.questions[kind as usize]
    }

    pub(super) fn notice(&self, kind: HookKind) -> &Counter {
        &self.notices[kind as usize - HookKind::QUESTIONS.len()]
    }

    pub(super) fn unanswered(&self, cause: Cause) -> &Counter {
        &self.unanswered[cause as usize]
    }
}

impl Metrics {
    pub(super) fn of(&self, name: &str) -> HookMetrics {
        let hook: Arc<str> = name.into();
        let labels = HookLabels { hook: hook.clone() };
        let by_cause = |family: &Family<CauseLabels, Counter>| {
            let one = |cause: Cause| {
                let labels = CauseLabels { hook: hook.clone(), cause: cause.name() };
                family.get_or_create(&labels).clone()
            };
            Cause::ALL.map(one).to_vec()
        };
        let by_kind = |family: &Family<KindLabels, Counter>, kinds: &[HookKind]| {
            let one = |kind: &HookKind| {
                let labels = KindLabels { hook: hook.clone(), kind: kind.name() };
                family.get_or_create(&labels).clone()
            };
            kinds.iter().map(one).collect()
        };
        HookMetrics {
            requests: self.requests.get_or_create(&labels).clone(),
            request_failures: by_cause(&self.request_failures),
            request_seconds: self.request_seconds.get_or_create(&labels).clone(),
            questions: by_kind(&self.questions, &HookKind::QUESTIONS),
            unanswered: by_cause(&self.unanswered),
            cached: self.cached.get_or_create(&labels).clone(),
            breaker_open: self.breaker_open.get_or_create(&labels).clone(),
            in_flight: self.in_flight.get_or_create(&labels).clone(),
            waiting: self.waiting.get_or_create(&labels).clone(),
            notices: by_kind(&self.notices, &HookKind::NOTICES),
            notices_dropped: self.notices_dropped.get_or_create(&labels).clone(),
            notices_waiting: self.notices_waiting.get_or_create(&labels).clone(),
            emits_without_recipients: self.emits_without_recipients.get_or_create(&labels).clone(),
            emits_unconfirmed: self.emits_unconfirmed.get_or_create(&labels).clone(),
        }
    }

    /// Makes every metric for a hook named `any`, for the generated reference.
    pub(crate) fn sample() -> Self {
        let metrics = Self::default();
        metrics.of("any").request_seconds.observe(0.0);
        metrics
    }
}
