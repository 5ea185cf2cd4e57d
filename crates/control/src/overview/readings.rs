//! Readings: the figures of all parts of the process at one moment.

use super::threads;
use crate::hooks::Hooks;
use crate::links::Links;
use crate::metrics::{FetchLabels, Metrics};
use crate::options::AdminTls;
use crate::process;
use crate::schedule::FailureClass;
use crate::unix_time::unix_millis;
use crate::view::{FeedsView, UpstreamView};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;
use stentor_ports::{CERTIFICATE_EXPIRY, DataPlane, LinkState, Metric, expiries};

/// Sessions whose bytes wait for their client, a worker or the engine, each with its metric.
const WAITING: [(&str, &str); 6] = [
    ("clients", "send_buffer_bytes"),
    ("engine", "cluster_outgoing_bytes"),
    ("this node, from the engine", "cluster_inbox_bytes"),
    ("workers, sent", "link_unacknowledged_bytes"),
    ("workers, queued", "link_queued_bytes"),
    ("the cores", "inbox_bytes"),
];

/// The parts of the process whose figures are read.
pub(crate) struct Sources {
    pub(crate) data_plane: DataPlane,
    pub(crate) feeds: Arc<FeedsView>,
    pub(crate) metrics: Metrics,
    pub(crate) hooks: Option<Arc<Hooks>>,
    pub(crate) links: Option<Arc<dyn Links>>,
    pub(crate) admin_tls: Option<AdminTls>,
}

/// The type of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    /// A gauge whose series begins with its first value other than 0, such as the sessions of a protocol.
    SparseGauge,
    /// A value that only grows. Its increase per second is shown.
    Counter,
}

/// The value of one series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) chart: &'static str,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) value: f64,
}

/// A histogram, summed over the cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Buckets {
    pub(super) bounds: Vec<f64>,
    /// Numbers of values per bucket. The last bucket has no upper bound.
    pub(super) counts: Vec<u64>,
}

/// An upstream whose fetches fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailingUpstream {
    pub(super) name: Arc<str>,
    /// Number of keys whose last fetch has failed.
    pub(super) keys: usize,
    /// The failing key, if it is the only one and known.
    pub(super) key: Option<String>,
    pub(super) seconds: u64,
    /// The last failure.
    pub(super) message: String,
}

/// Numbers of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deliveries {
    /// Publications times the sessions that receive them.
    pub(super) due: u64,
    /// Deliveries that were dropped, because a send buffer was full, or because they were volatile.
    pub(super) dropped: u64,
    /// Sessions that were ended, because their send buffers were full.
    pub(super) slow_consumers: u64,
}

impl Deliveries {
    /// Returns the increase since an earlier moment.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            due: self.due.saturating_sub(earlier.due),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            slow_consumers: self.slow_consumers.saturating_sub(earlier.slow_consumers),
        }
    }
}

/// All figures at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    pub(super) unix_ms: u64,
    /// The values of the time series.
    pub(super) figures: Vec<Figure>,
    /// The time from publications to their deliveries, in seconds.
    pub(super) deliveries: Buckets,
    /// Names of the hooks whose breaker is open.
    pub(super) paused_hooks: Vec<String>,
    pub(super) failing_upstreams: Vec<FailingUpstream>,
    /// The time since the engine was lost. `None` while it is connected, and without a cluster.
    pub(super) engine_away_seconds: Option<u64>,
    /// The Redis servers of bridges that aren't connected.
    pub(super) lost_bridges: Vec<String>,
    /// The bytes held for clients, and the budget.
    pub(super) memory: (u64, u64),
    /// Files of certificates, each with its expiry in Unix time.
    pub(super) certificates: Vec<(String, u64)>,
    /// The share of one address in a core's sessions, in percent. 0 unless it is most of them.
    pub(super) address_share_percent: u64,
    /// Workers whose connection is broken: their application and name.
    pub(super) lost_workers: Vec<(String, String)>,
    /// Open file descriptors, and their maximum.
    pub(super) descriptors: (usize, usize),
    pub(super) is_draining: bool,
    /// Deliveries since the start. For findings, [`Overview`](super::Overview) replaces them by those of the last minute.
    pub(super) flow: Deliveries,
}

impl Sources {
    /// Reads all figures. Blocks, because it reads `/proc`.
    pub(super) fn read(&self) -> Readings {
        let upstreams = self.feeds.upstreams();
        let mut metrics = self.data_plane.metrics();
        if let Some(tls) = &self.admin_tls {
            metrics.push(expiries((tls.expiries)()));
        }
        let read = Read(&metrics);
        let connected = read.total("cluster_engine_up");
        Readings {
            unix_ms: unix_millis(),
            figures: self.figures(&read, &upstreams),
            deliveries: self.deliveries(),
            paused_hooks: self.hooks.iter().flat_map(|hooks| hooks.paused()).collect(),
            failing_upstreams: upstreams.iter().filter_map(failing).collect(),
            engine_away_seconds: (connected == Some(0))
                .then(|| read.total("cluster_engine_away_seconds").unwrap_or(0)),
            lost_bridges: read.labels("bridge_up", "redis", |up| up == 0),
            memory: (read.total("memory_bytes").unwrap_or(0), read.total("memory_bytes_max").unwrap_or(0)),
            certificates: read.by_label(CERTIFICATE_EXPIRY, "certificate").into_iter().collect(),
            address_share_percent: read.most("address_share_percent"),
            lost_workers: self.lost_workers(),
            descriptors: process::descriptor_counts().unwrap_or_default(),
            is_draining: read.total("draining") == Some(1),
            flow: Deliveries {
                due: read.total("deliveries_due").unwrap_or(0),
                dropped: read.total("deliveries_dropped").unwrap_or(0),
                slow_consumers: read.by_label("disconnects", "reason").remove("slow_consumer").unwrap_or(0),
            },
        }
    }

    /// Reads the values of the time series.
    fn figures(&self, read: &Read<'_>, upstreams: &[UpstreamView]) -> Vec<Figure> {
        let mut all = Figures::default();
        all.gauge("connections", "connections", read.total("connections"));
        for (protocol, sessions) in read.by_label("sessions_by_protocol", "protocol") {
            all.sparse("connections", protocol, sessions);
        }
        all.counter("messages", "received", read.total("messages_received"));
        all.counter("messages", "sent", read.total("deliveries_sent"));
        all.counter("messages", "dropped", read.total("deliveries_dropped"));
        all.counter("bytes", "received", read.total("received_bytes"));
        all.counter("bytes", "sent", read.total("sent_bytes"));
        for (thread, percent_seconds) in threads::cpu_percent_seconds() {
            all.push("cpu", thread, Kind::Counter, percent_seconds);
        }
        for (class, bytes) in read.by_label("memory_bytes", "class") {
            all.sparse("memory", class.replace('_', " "), bytes);
        }
        all.gauge("memory", "budget", read.total("memory_bytes_max"));
        if !upstreams.is_empty() {
            for (name, fetches) in self.fetches(upstreams) {
                all.counter("fetches", name, Some(fetches));
            }
        }
        for (name, metric) in WAITING {
            all.sparse("waiting", name, read.total(metric).unwrap_or(0));
        }
        all.gauge("cluster", "nodes", read.total("cluster_nodes"));
        all.gauge("cluster", "engine connected", read.total("cluster_engine_up"));
        for (state, workers) in read.by_label("link_workers", "state") {
            all.sparse("cluster", format!("workers {state}"), workers);
        }
        all.0
    }

    /// Returns the number of fetches of all upstreams, by groups of outcomes.
    fn fetches(&self, upstreams: &[UpstreamView]) -> [(&'static str, u64); 4] {
        let sum = |outcomes: &[&'static str]| {
            let labels = upstreams.iter().flat_map(|upstream| {
                outcomes.iter().map(|outcome| FetchLabels { upstream: upstream.name.clone(), outcome })
            });
            labels.filter_map(|labels| self.metrics.fetches.get(&labels).map(|counter| counter.get())).sum()
        };
        let failed = FailureClass::ALL.into_iter().filter(|class| *class != FailureClass::NotFound);
        [
            ("changed", sum(&["changed"])),
            ("unchanged", sum(&["unchanged", "not_modified"])),
            ("not found", sum(&[FailureClass::NotFound.outcome()])),
            ("failed", sum(&failed.map(FailureClass::outcome).collect::<Vec<_>>())),
        ]
    }

    fn deliveries(&self) -> Buckets {
        let all = self.data_plane.histograms();
        let Some(found) = all.into_iter().find(|histogram| histogram.name == "delivery_seconds") else {
            return Buckets::default();
        };
        let mut counts = vec![0; found.bounds.len() + 1];
        for sample in &found.samples {
            counts.iter_mut().zip(&sample.buckets).for_each(|(sum, count)| *sum += count);
        }
        Buckets { bounds: found.bounds.to_vec(), counts }
    }

    fn lost_workers(&self) -> Vec<(String, String)> {
        let links = self.links.iter().flat_map(|links| links.links());
        let lost = links.filter(|link| link.state == LinkState::Lost);
        lost.map(|link| (link.app.to_string(), link.worker.to_string())).collect()
    }
}

/// Returns the upstream's failure, if fetches of some of its keys fail.
fn failing(upstream: &UpstreamView) -> Option<FailingUpstream> {
    let seconds = SystemTime::now().duration_since(upstream.failing_since?).unwrap_or_default().as_secs();
    let keys = upstream.lane.failed_keys();
    let only = upstream.failed_key.as_ref().filter(|_| keys == 1);
    let last = || upstream.last_failure.as_ref().map(|(_, message, _)| message.clone());
    let message = only.map(|(_, message)| message.clone()).or_else(last).unwrap_or_default();
    let key = only.map(|(key, _)| key.as_str().to_owned());
    Some(FailingUpstream { name: upstream.name.clone(), keys, key, seconds, message })
}

/// The metrics of all parts that have some.
struct Read<'a>(&'a [Metric]);

impl Read<'_> {
    fn samples(&self, name: &str) -> impl Iterator<Item = (&[(&'static str, String)], u64)> {
        let metrics = self.0.iter().filter(move |metric| metric.name == name);
        metrics.flat_map(|metric| metric.samples.iter().map(|(labels, value)| (labels.as_slice(), *value)))
    }

    /// Returns the sum of a metric. `None` if the process doesn't have it.
    fn total(&self, name: &str) -> Option<u64> {
        self.samples(name).map(|(_, value)| value).reduce(|sum, value| sum.saturating_add(value))
    }

    fn most(&self, name: &str) -> u64 {
        self.samples(name).map(|(_, value)| value).max().unwrap_or(0)
    }

    /// Returns the sums of a metric by one of its labels.
    fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (labels, value) in self.samples(name) {
            let text = labels.iter().find(|(name, _)| *name == label);
            let sum: &mut u64 =
                sums.entry(text.map(|(_, text)| text.clone()).unwrap_or_default()).or_default();
            *sum = sum.saturating_add(value);
        }
        sums
    }

    /// Returns the texts of a label whose values match.
    fn labels(&self, name: &str, label: &str, matches: impl Fn(u64) -> bool) -> Vec<String> {
        self.by_label(name, label)
            .into_iter()
            .filter(|(_, value)| matches(*value))
            .map(|(text, _)| text)
            .collect()
    }
}

#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn gauge(&mut self, chart: &'static str, name: impl Into<String>, value: Option<u64>) {
        if let Some(value) = value {
            self.push(chart, name.into(), Kind::Gauge, value as f64);
        }
    }

    fn sparse(&mut self, chart: &'static str, name: impl Into<String>, value: u64) {
        self.push(chart, name.into(), Kind::SparseGauge, value as f64);
    }

    fn counter(&mut self, chart: &'static str, name: impl Into<String>, value: Option<u64>) {
        if let Some(value) = value {
            self.push(chart, name.into(), Kind::Counter, value as f64);
        }
    }

    fn push(&mut self, chart: &'static str, name: String, kind: Kind, value: f64) {
        self.0.push(Figure { chart, name, kind, value });
    }
}
