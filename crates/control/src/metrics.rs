//! The figures that `/metrics` shows: the data plane's, the feeds', the admin port's, the process's.
//!
//! Names follow the house rule (the unit last, prefix `stentor_`); those of the process are the ones that every
//! Prometheus client library uses. The text is OpenMetrics 1.0, which Prometheus and its kin read.

use crate::feeds::FeedsView;
use crate::options::ProcessCounter;
use crate::process;
use crate::pushed_documents::PushedDocuments;
use crate::schedule::{FailureClass, LaneStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use stentor_edge::{DataPlane, MetricKind};

/// What Prometheus is told the text is.
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

/// The control plane's own counters. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) fetches: Family<FetchLabels, Counter>,
    pub(crate) fetch_seconds: FetchSeconds,
    pub(crate) fetch_received_bytes: Family<UpstreamLabels, Counter>,
    pub(crate) publications: Counter,
    pub(crate) publish_refusals: Family<ReasonLabels, Counter>,
    pub(crate) pushes: Counter,
    pub(crate) push_refusals: Family<ReasonLabels, Counter>,
    pub(crate) admin_refusals: Family<ReasonLabels, Counter>,
    pub(crate) admin_connections: Gauge,
    pub(crate) mailbox_waits: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        // 1 ms to 16 s.
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        Self {
            fetches: Family::default(),
            fetch_seconds: Family::new_with_constructor(buckets),
            fetch_received_bytes: Family::default(),
            publications: Counter::default(),
            publish_refusals: Family::default(),
            pushes: Counter::default(),
            push_refusals: Family::default(),
            admin_refusals: Family::default(),
            admin_connections: Gauge::default(),
            mailbox_waits: Counter::default(),
        }
    }
}

impl Metrics {
    /// A registry of everything.
    pub(crate) fn registry(
        &self,
        data_plane: Arc<dyn DataPlane>,
        feeds: Arc<FeedsView>,
        pushed_documents: Arc<PushedDocuments>,
        counters: Vec<ProcessCounter>,
    ) -> Registry {
        let mut all = Registry::default();
        all.register_collector(Box::new(ProcessCollector));
        let registry = all.sub_registry_with_prefix("stentor");
        registry.register(
            "feed_fetches",
            "Fetches of documents, by upstream and outcome",
            self.fetches.clone(),
        );
        registry.register_with_unit(
            "feed_fetch",
            "Duration of a fetch, including parsing and comparing the document, by upstream",
            Unit::Seconds,
            self.fetch_seconds.clone(),
        );
        registry.register_with_unit(
            "feed_fetch_received",
            "Bytes of response bodies of upstreams, as received",
            Unit::Bytes,
            self.fetch_received_bytes.clone(),
        );
        registry.register(
            "admin_publications",
            "Messages published over the admin API",
            self.publications.clone(),
        );
        registry.register(
            "admin_publish_refusals",
            "Publish requests that failed, by reason",
            self.publish_refusals.clone(),
        );
        registry.register("feed_pushes", "Document versions pushed by backends", self.pushes.clone());
        registry.register(
            "feed_push_refusals",
            "Requests to push or delete documents that failed, by reason",
            self.push_refusals.clone(),
        );
        registry.register(
            "admin_refusals",
            "Requests and connections refused by the admin port, by reason",
            self.admin_refusals.clone(),
        );
        registry.register(
            "admin_connections",
            "Open connections to the admin port",
            self.admin_connections.clone(),
        );
        registry.register(
            "mailbox_waits",
            "Times that the control plane waited for a full mailbox of the data plane",
            self.mailbox_waits.clone(),
        );
        registry.register_collector(Box::new(FeedsCollector(feeds, pushed_documents)));
        registry.register_collector(Box::new(DataPlaneCollector(data_plane)));
        registry.register_collector(Box::new(CountersCollector(counters)));
        all
    }
}

/// Writes one figure without labels.
fn write_one(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: impl EncodeMetric + TypedMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

struct FeedsCollector(Arc<FeedsView>, Arc<PushedDocuments>);

impl fmt::Debug for FeedsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FeedsCollector")
    }
}

/// A figure of the process's size as Prometheus's signed gauge.
fn gauge(value: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Collector for FeedsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.0.stats();
        let mut keys =
            encoder.encode_descriptor("feed_keys", "Feed keys, by state", None, MetricType::Gauge)?;
        for (state, count) in [
            ("cold", stats.cold),
            ("live", stats.live),
            ("stale", stats.stale),
            ("complete", stats.complete),
            ("not_found", stats.not_found),
        ] {
            gauge(count).encode(keys.encode_family(&[("state", state)])?)?;
        }
        let upstreams = self.0.upstreams();
        let mut each = |name, help, metric_type, value: fn(LaneStats) -> u64| {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for upstream in &upstreams {
                let labels = [("upstream", &*upstream.name)];
                let encoder = family.encode_family(&labels)?;
                match metric_type {
                    MetricType::Counter => ConstCounter::new(value(upstream.lane)).encode(encoder)?,
                    _ => ConstGauge::new(i64::try_from(value(upstream.lane)).unwrap_or(i64::MAX))
                        .encode(encoder)?,
                }
            }
            fmt::Result::Ok(())
        };
        each(
            "feed_upstream_fetches_in_flight",
            "Fetches in flight, by upstream",
            MetricType::Gauge,
            |lane| lane.in_flight as u64,
        )?;
        each(
            "feed_upstream_waiting_keys",
            "Keys that are due and wait for a free fetch slot or for the rate, by upstream",
            MetricType::Gauge,
            |lane| lane.waiting as u64,
        )?;
        each(
            "feed_upstream_waiting_cold_keys",
            "Keys that are due and wait for their first document, by upstream",
            MetricType::Gauge,
            |lane| lane.first_waiting as u64,
        )?;
        each(
            "feed_upstream_rate_waits",
            "Fetches delayed by requests_per_second_max or by a pause that the upstream asked for, by upstream",
            MetricType::Counter,
            |lane| lane.rate_waits,
        )?;
        let mut failing = encoder.encode_descriptor(
            "feed_failing_keys",
            "Keys whose last fetch failed, by upstream and kind of failure",
            None,
            MetricType::Gauge,
        )?;
        for upstream in &upstreams {
            for class in FailureClass::ALL {
                if upstream.lane.has_failed[class as usize] {
                    let labels = [("upstream", &*upstream.name), ("failure", class.name())];
                    gauge(upstream.lane.failing[class as usize]).encode(failing.encode_family(&labels)?)?;
                }
            }
        }
        let encoder = &mut encoder;
        write_one(encoder, "feed_subscribed_keys", "Feed keys with subscribers", gauge(stats.wanted))?;
        write_one(
            encoder,
            "feed_waiting_keys",
            "Keys that are due and wait for a free fetch slot",
            gauge(stats.waiting),
        )?;
        write_one(encoder, "feed_fetches_in_flight", "Fetches in flight", gauge(stats.in_flight))?;
        write_one(
            encoder,
            "feed_documents_bytes",
            "Size of all kept documents",
            gauge(stats.documents_bytes),
        )?;
        let pushed = self.1.stats();
        write_one(encoder, "feed_pushed_keys", "Keys with pushed documents", gauge(pushed.keys))?;
        write_one(
            encoder,
            "feed_pushed_documents_bytes",
            "Size of all pushed documents",
            gauge(pushed.bytes),
        )?;
        let bodies = gauge(pushed.bodies_bytes);
        write_one(
            encoder,
            "feed_pushed_bodies_bytes",
            "Size of pushed documents that are being received",
            bodies,
        )?;
        for (name, help, count) in [
            ("feed_refused_keys", "Keys refused at feeds_limits.keys_max", stats.refused_keys),
            (
                "feed_refused_cold_keys",
                "Subscriptions refused at limits.cold_keys_max",
                stats.refused_cold_keys,
            ),
            ("feed_unknown_keys", "Keys refused because no feed is configured for them", stats.unknown_keys),
            (
                "feed_refused_documents",
                "Document versions refused at feeds_limits.documents_bytes_max",
                stats.refused_documents,
            ),
            ("feed_evicted_keys", "Keys without subscribers evicted for other keys", stats.evicted_keys),
            (
                "feed_pushed_evicted_keys",
                "Pushed keys without subscribers evicted for other keys",
                pushed.evicted,
            ),
        ] {
            write_one(encoder, name, help, ConstCounter::new(count))?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct CountersCollector(Vec<ProcessCounter>);

impl Collector for CountersCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let each = |counter: &ProcessCounter| {
            write_one(&mut encoder, counter.name, counter.help, ConstCounter::new((counter.value)()))
        };
        self.0.iter().try_for_each(each)
    }
}

struct DataPlaneCollector(Arc<dyn DataPlane>);

impl fmt::Debug for DataPlaneCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataPlaneCollector")
    }
}

impl Collector for DataPlaneCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.0.metrics() {
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            let write = |value: u64, encoder: MetricEncoder<'_>| match metric.kind {
                MetricKind::Counter => ConstCounter::new(value).encode(encoder),
                MetricKind::Gauge => {
                    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)
                }
            };
            match metric.samples.as_slice() {
                [(labels, value)] if labels.is_empty() => write(*value, family)?,
                samples => {
                    for (labels, value) in samples {
                        write(*value, family.encode_family(labels)?)?;
                    }
                }
            }
        }
        for histogram in self.0.histograms() {
            let (name, help) = (histogram.name, histogram.help);
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for sample in &histogram.samples {
                let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(sample.buckets.iter().copied()).collect();
                let count = sample.buckets.iter().sum();
                let mut encoder = family.encode_family(&sample.labels)?;
                encoder.encode_histogram::<NoLabelSet>(sample.sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok(stats) = process::stats() else { return Ok(()) };
        let encoder = &mut encoder;
        write_one(
            encoder,
            "process_resident_memory_bytes",
            "Resident memory of the process",
            gauge(stats.resident_bytes),
        )?;
        write_one(encoder, "process_open_fds", "Open file descriptors", gauge(stats.descriptors))?;
        write_one(
            encoder,
            "process_max_fds",
            "Limit of open file descriptors",
            gauge(stats.descriptors_max),
        )?;
        write_one(
            encoder,
            "process_cpu_seconds",
            "CPU time of the process, user and system",
            ConstCounter::new(stats.cpu.as_secs_f64()),
        )
    }
}
