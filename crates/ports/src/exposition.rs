//! Metrics in Prometheus's data model.

use std::path::PathBuf;
use std::time::Duration;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

/// A counter or gauge in Prometheus's data model.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Name with the unit last, without the prefix `stentor_` and without a counter's `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// Values by label sets, e.g. `([("core", "0")], 17)`.
    pub samples: Vec<(Vec<(&'static str, String)>, u64)>,
}

impl Metric {
    /// Makes a metric without labels.
    pub fn one(kind: MetricKind, name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, kind, samples: vec![(Vec::new(), value)] }
    }

    /// Makes a metric with one label.
    pub fn by<V: ToString>(
        label: &'static str,
        kind: MetricKind,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (V, u64)>,
    ) -> Self {
        let sample = |(of, value): (V, u64)| (vec![(label, of.to_string())], value);
        Self { name, help, kind, samples: samples.into_iter().map(sample).collect() }
    }
}

/// Makes an array of metrics without labels. The doc comment of each is its help text.
#[macro_export]
macro_rules! plain_metrics {
    ($($(#[doc = $help:literal])+ $kind:ident $name:literal = $value:expr;)*) => {
        [$($crate::Metric::one($crate::MetricKind::$kind, $name, concat!($($help),+).trim_ascii(), $value as u64),)*]
    };
}

/// A Prometheus histogram.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Name with the unit last, without the prefix `stentor_`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Upper bounds of the buckets, ascending.
    pub bounds: &'static [f64],
    /// The series, one per label set.
    pub samples: Vec<HistogramSample>,
}

/// The series of one label set in a [`Histogram`].
#[derive(Clone, Debug)]
pub struct HistogramSample {
    /// Names and values of the labels, for example `("core", "0")`.
    pub labels: Vec<(&'static str, String)>,
    /// The number of values per bucket. The last bucket has no upper bound.
    pub buckets: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

/// The name of the metric with the expiry of certificates. Each server of the process adds samples for its own certificates.
pub const CERTIFICATE_EXPIRY: &str = "tls_certificate_expiry_timestamp_seconds";

/// Returns the metric with the expiry of each certificate, in Unix time, by its file.
pub fn expiries(certificates: impl IntoIterator<Item = (PathBuf, Duration)>) -> Metric {
    let sample =
        |(file, at): (PathBuf, Duration)| (vec![("certificate", file.display().to_string())], at.as_secs());
    Metric {
        name: CERTIFICATE_EXPIRY,
        help: "Expiry of a certificate, in Unix time, by its file.",
        kind: MetricKind::Gauge,
        samples: certificates.into_iter().map(sample).collect(),
    }
}
