//! A histogram of times that can be sent between processes.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest recorded time. Longer times count as this one.
const LONGEST_NS: u64 = 600_000_000_000;

/// Times in nanoseconds, kept to three digits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Counts", into = "Counts")]
pub struct Latencies(Histogram<u64>);

/// The non-empty buckets: nanoseconds and count.
type Counts = Vec<(u64, u64)>;

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, LONGEST_NS, 3) {
            Ok(histogram) => Self(histogram),
            Err(_) => unreachable!("the bounds are constants that the histogram accepts"),
        }
    }

    /// A histogram of these times.
    pub fn of(each_ns: &[u64]) -> Self {
        let mut latencies = Self::new();
        each_ns.iter().for_each(|ns| latencies.record_ns(*ns));
        latencies
    }

    /// Counts one time.
    #[inline]
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so nothing is out of range.
        let _ = self.0.add(&other.0);
    }

    /// Number of times.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns `true` if the histogram is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that `percent` of the times don't exceed. Zero for an empty histogram.
    pub fn percentile(&self, percent: f64) -> Duration {
        if self.0.is_empty() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// The maximum.
    pub fn max(&self) -> Duration {
        self.percentile(100.0)
    }

    /// The mean.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Counts> for Latencies {
    fn from(counts: Counts) -> Self {
        let mut latencies = Self::new();
        for (ns, count) in counts {
            latencies.0.saturating_record_n(ns, count);
        }
        latencies
    }
}

impl From<Latencies> for Counts {
    fn from(latencies: Latencies) -> Self {
        let buckets = latencies.0.iter_recorded();
        buckets.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }
}

#[cfg(test)]
mod tests;
