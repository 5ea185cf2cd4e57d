//! The metrics in `/metrics`: those of the data plane, the feeds, the admin port and the process.
//!
//! Names have the prefix `stentor_` and the unit last. Process metrics have the names that all Prometheus
//! client libraries use. The format is OpenMetrics 1.0, which Prometheus and compatible systems read.

use crate::auth::metrics::AuthMetrics;
use crate::declare::metrics;
use crate::options::{Expiries, ProcessCounter};
use crate::process;
use crate::pushed_documents::{PushStats, PushedDocuments};
use crate::schedule::{FailureClass, LaneStats, Stats};
use crate::view::{FeedsView, UpstreamView};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use stentor_ports::{DataPlane, Metric, MetricKind, plain_metrics};

/// The `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels of a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FetchLabels {
    pub(crate) upstream: Arc<str>,
    pub(crate) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpstreamLabels {
    pub(crate) upstream: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabels {
    pub(crate) reason: &'static str,
}

type FetchSeconds = Family<UpstreamLabels, Histogram, fn() -> Histogram>;
pub(crate) type Refusals = Family<ReasonLabels, Counter>;

metrics! {
    /// The control plane's own counters.
    pub(crate) struct Metrics {
        pub(crate) fetches: Family<FetchLabels, Counter>,
            "feed_fetches", "Fetches of documents, by upstream and outcome";
        // Buckets from 1 ms to 16 s.
        pub(crate) fetch_seconds: FetchSeconds =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 15))),
            "feed_fetch_seconds", "Duration of a fetch, including parsing and comparing the document, by upstream";
        pub(crate) fetch_received_bytes: Family<UpstreamLabels, Counter>,
            "feed_fetch_received_bytes", "Bytes of response bodies of upstreams, as received";
        pub(crate) upstream_interval: Family<UpstreamLabels, Gauge<f64, AtomicU64>>,
            "feed_upstream_interval_seconds",
            "Time between two fetches of a key, by upstream: poll_interval, or longer as last measured";
        pub(crate) upstream_max_age: Family<UpstreamLabels, Gauge<f64, AtomicU64>>,
            "feed_upstream_max_age_seconds",
            "Time between two fetches of a key that Cache-Control of the last response sets, by upstream; 0 while poll_interval applies";
        pub(crate) publications: Counter,
            "admin_publications", "Messages published over the admin API";
        pub(crate) publish_refusals: Refusals,
            "admin_publish_refusals", "Publish requests that failed, by reason";
        pub(crate) pushes: Counter,
            "feed_pushes", "Document versions pushed by backends";
        pub(crate) push_refusals: Refusals,
            "feed_push_refusals", "Requests to push or delete documents that failed, by reason";
        pub(crate) admin_refusals: Refusals,
            "admin_refusals", "Requests and connections refused by the admin port, by reason";
        pub(crate) admin_connections: Gauge,
            "admin_connections", "Open connections to the admin port";
        pub(crate) mailbox_waits: Counter,
            "mailbox_waits", "Times that the control plane waited for a full mailbox of the data plane";
    }
}

impl Metrics {
    /// Makes a registry of all metrics.
    pub(crate) fn registry(
        &self,
        figures: Figures,
        auth: &AuthMetrics,
        hooks: Option<&crate::hooks::Metrics>,
    ) -> Registry {
        let mut all = Registry::default();
        all.register_collector(Box::new(ProcessCollector));
        let registry = all.sub_registry_with_prefix("stentor");
        self.register(registry);
        auth.register(registry);
        hooks.into_iter().for_each(|hooks| hooks.register(registry));
        registry.register_collector(Box::new(figures));
        all
    }
}

/// Sources of the metrics whose values are read when `/metrics` is requested.
pub(crate) struct Figures {
    pub(crate) data_plane: DataPlane,
    pub(crate) feeds: Arc<FeedsView>,
    pub(crate) pushed_documents: Arc<PushedDocuments>,
    pub(crate) counters: Vec<ProcessCounter>,
    /// The certificates of the admin port. `None` without TLS.
    pub(crate) admin_expiries: Option<Expiries>,
}

stentor_ports::opaque_debug!(Figures, "Figures");

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counters = self.counters.iter();
        let counters = counters
            .map(|counter| Metric::one(MetricKind::Counter, counter.name, counter.help, (counter.value)()));
        let metrics = feed_metrics(self.feeds.stats(), self.pushed_documents.stats()).into_iter();
        let metrics = metrics.chain(upstream_metrics(&self.feeds.upstreams()));
        for mut metric in metrics.chain(self.data_plane.metrics()).chain(counters) {
            if metric.name == stentor_ports::CERTIFICATE_EXPIRY
                && let Some(expiries) = &self.admin_expiries
            {
                metric.samples.extend(stentor_ports::expiries(expiries()).samples);
            }
            write(&mut encoder, &metric)?;
        }
        self.data_plane.histograms().iter().try_for_each(|histogram| write_histogram(&mut encoder, histogram))
    }
}

fn write(encoder: &mut DescriptorEncoder<'_>, metric: &Metric) -> fmt::Result {
    let kind = match metric.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
    };
    let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
    let write = |value: u64, encoder: MetricEncoder<'_>| match metric.kind {
        MetricKind::Counter => ConstCounter::new(value).encode(encoder),
        MetricKind::Gauge => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder),
    };
    match metric.samples.as_slice() {
        [(labels, value)] if labels.is_empty() => write(*value, family),
        samples => {
            samples.iter().try_for_each(|(labels, value)| write(*value, family.encode_family(labels)?))
        }
    }
}

fn write_histogram(encoder: &mut DescriptorEncoder<'_>, histogram: &stentor_ports::Histogram) -> fmt::Result {
    let mut family =
        encoder.encode_descriptor(histogram.name, histogram.help, None, MetricType::Histogram)?;
    for sample in &histogram.samples {
        let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(sample.buckets.iter().copied()).collect();
        let count = sample.buckets.iter().sum();
        let mut encoder = family.encode_family(&sample.labels)?;
        encoder.encode_histogram::<NoLabelSet>(sample.sum, count, &buckets, None)?;
    }
    Ok(())
}

fn upstream_metrics(upstreams: &[UpstreamView]) -> Vec<Metric> {
    let each = |kind, name, help, value: fn(&LaneStats) -> u64| {
        let samples = upstreams.iter().map(|upstream| (&upstream.name, value(&upstream.lane)));
        Metric::by("upstream", kind, name, help, samples)
    };
    let failing = upstreams.iter().flat_map(|upstream| {
        let lane = &upstream.lane;
        let seen = FailureClass::ALL.into_iter().filter(|class| lane.has_failed[*class as usize]);
        seen.map(|class| {
            let labels = vec![("upstream", upstream.name.to_string()), ("failure", class.name().to_owned())];
            (labels, lane.failing[class as usize] as u64)
        })
    });
    vec![
        each(
            MetricKind::Gauge,
            "feed_upstream_fetches_in_flight",
            "Fetches in flight, by upstream",
            |lane| lane.in_flight as u64,
        ),
        each(
            MetricKind::Gauge,
            "feed_upstream_waiting_keys",
            "Keys that are due and wait for a free fetch slot or for the rate, by upstream",
            |lane| lane.waiting as u64,
        ),
        each(
            MetricKind::Gauge,
            "feed_upstream_waiting_cold_keys",
            "Keys that are due and wait for their first document, by upstream",
            |lane| lane.first_waiting as u64,
        ),
        each(
            MetricKind::Counter,
            "feed_upstream_rate_waits",
            "Fetches delayed by requests_per_second_max or by a pause that the upstream asked for, by upstream",
            |lane| lane.rate_waits,
        ),
        Metric {
            name: "feed_failing_keys",
            help: "Keys whose last fetch failed, by upstream and kind of failure",
            kind: MetricKind::Gauge,
            samples: failing.collect(),
        },
    ]
}

fn feed_metrics(stats: Stats, pushed: PushStats) -> Vec<Metric> {
    let states = [
        ("cold", stats.cold),
        ("live", stats.live),
        ("stale", stats.stale),
        ("complete", stats.complete),
        ("not_found", stats.not_found),
    ];
    let states = states.map(|(state, keys)| (state, keys as u64));
    let counters = stats.counters;
    let mut all = vec![Metric::by("state", MetricKind::Gauge, "feed_keys", "Feed keys, by state", states)];
    all.extend(plain_metrics! {
        /// Feed keys with subscribers
        Gauge "feed_subscribed_keys" = stats.wanted;
        /// Keys that are due and wait for a free fetch slot or for the rate
        Gauge "feed_waiting_keys" = stats.waiting;
        /// Fetches in flight
        Gauge "feed_fetches_in_flight" = stats.in_flight;
        /// Size of all kept documents
        Gauge "feed_documents_bytes" = stats.documents_bytes;
        /// Keys with pushed documents
        Gauge "feed_pushed_keys" = pushed.keys;
        /// Size of all pushed documents
        Gauge "feed_pushed_documents_bytes" = pushed.bytes;
        /// Size of pushed documents that are being received
        Gauge "feed_pushed_bodies_bytes" = pushed.bodies_bytes;
        /// Keys refused at feeds_limits.keys_max
        Counter "feed_refused_keys" = counters.refused_keys;
        /// Subscriptions refused at limits.cold_keys_max or address_limits.cold_keys_max
        Counter "feed_refused_cold_keys" = counters.refused_cold_keys;
        /// Keys refused because no feed is configured for them
        Counter "feed_unknown_keys" = counters.unknown_keys;
        /// Document versions refused at feeds_limits.documents_bytes_max
        Counter "feed_refused_documents" = counters.refused_documents;
        /// Keys without subscribers evicted for other keys
        Counter "feed_evicted_keys" = counters.evicted_keys;
        /// Pushed keys without subscribers evicted for other keys
        Counter "feed_pushed_evicted_keys" = pushed.evicted;
    });
    all
}

#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok(stats) = process::stats() else { return Ok(()) };
        for metric in plain_metrics! {
            /// Resident memory of the process
            Gauge "process_resident_memory_bytes" = stats.resident_bytes;
            /// Open file descriptors
            Gauge "process_open_fds" = stats.descriptors;
            /// Limit of open file descriptors
            Gauge "process_max_fds" = stats.descriptors_max;
            /// Start time of the process, in seconds since 1970
            Gauge "process_start_time_seconds" = stats.started_at_seconds;
        } {
            write(&mut encoder, &metric)?;
        }
        let (name, help) = ("process_cpu_seconds", "CPU time of the process, user and system");
        let cpu = ConstCounter::new(stats.cpu.as_secs_f64());
        cpu.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
    }
}
