//! Time series in bounded memory. Sans-I/O: readings and their time go in, series come out.
//!
//! Gauges are kept as they are. Counters are kept as their increase per second since the last sample. The
//! latency of deliveries is computed from the increase of a histogram over [`LATENCY_SAMPLES`] samples, because
//! only every 64th publication is measured.
//!
//! A sparse series begins with its first value other than 0, so that protocols that no client uses take no
//! memory. Earlier samples of the series, and those without a value, are NaN, which is `null` in JSON.

use super::readings::{Buckets, Figure, Kind, Readings};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of samples over which the latency of deliveries is computed: one minute.
const LATENCY_SAMPLES: usize = 30;
/// The chart of the latency, and its series.
const LATENCY: (&str, [(&str, f64); 2]) = ("latency", [("p50", 0.5), ("p99", 0.99)]);

/// A chart: series with a common unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Chart {
    name: &'static str,
    unit: &'static str,
    series: Vec<Line>,
}

/// One series of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    name: String,
    /// One value per sample.
    values: Vec<f32>,
}

/// The charts, in the order in which they are shown, with the unit of their values.
pub(super) const CHARTS: [(&str, &str); 9] = [
    ("connections", "count"),
    ("messages", "per_second"),
    ("bytes", "bytes_per_second"),
    ("latency", "seconds"),
    ("cpu", "percent"),
    ("memory", "bytes"),
    ("fetches", "per_second"),
    ("waiting", "bytes"),
    ("cluster", "count"),
];

struct Column {
    chart: &'static str,
    name: String,
    /// The counter's value at the last sample. `None` for a gauge, and before the first value.
    counted: Option<f64>,
    values: VecDeque<f32>,
}

pub(super) struct Series {
    samples_max: usize,
    series_max: usize,
    times_ms: VecDeque<u64>,
    /// The time of the last sample.
    last: Option<Instant>,
    columns: Vec<Column>,
    /// Histograms of deliveries at the last [`LATENCY_SAMPLES`] + 1 samples.
    deliveries: VecDeque<Buckets>,
}

impl Series {
    pub(super) fn new(samples_max: usize, series_max: usize) -> Self {
        Self {
            samples_max,
            series_max,
            times_ms: VecDeque::new(),
            last: None,
            columns: Vec::new(),
            deliveries: VecDeque::new(),
        }
    }

    /// Records a sample.
    pub(super) fn record(&mut self, now: Instant, readings: &Readings) {
        let passed = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
        if self.times_ms.len() == self.samples_max {
            self.times_ms.pop_front();
            self.columns.iter_mut().for_each(|column| _ = column.values.pop_front());
        }
        // The time of a sample is later than that of the previous sample, even if the clock was set back, because
        // readers request the samples after a time.
        let next = self.times_ms.back().map_or(0, |last| last + 1);
        self.times_ms.push_back(readings.unix_ms.max(next));
        for column in &mut self.columns {
            column.values.push_back(f32::NAN);
        }
        for Figure { chart, name, kind, value } in &readings.figures {
            let begins = *kind != Kind::SparseGauge || *value != 0.0;
            let Some(column) = self.column(chart, name, begins) else { continue };
            let shown = match kind {
                Kind::Gauge | Kind::SparseGauge => Some(*value),
                // A series that begins after the first sample was 0 before.
                Kind::Counter => rate(column.counted.replace(*value).unwrap_or(0.0), *value, passed),
            };
            column.show(shown);
        }
        self.record_latency(&readings.deliveries);
    }

    fn record_latency(&mut self, now: &Buckets) {
        if self.deliveries.len() > LATENCY_SAMPLES {
            self.deliveries.pop_front();
        }
        self.deliveries.push_back(now.clone());
        let before = self.deliveries.front().filter(|before| before.bounds == now.bounds);
        let increase: Vec<u64> = match before {
            Some(before) => {
                now.counts.iter().zip(&before.counts).map(|(now, then)| now.saturating_sub(*then)).collect()
            }
            None => Vec::new(),
        };
        let (chart, lines) = LATENCY;
        for (name, quantile) in lines {
            let Some(value) = self::quantile(&now.bounds, &increase, quantile) else { continue };
            if let Some(column) = self.column(chart, name, true) {
                column.show(Some(value));
            }
        }
    }

    /// Returns a series. If `begins` is `true`, a series that hasn't begun yet begins now. `None` if the series
    /// hasn't begun, or if there are too many series.
    fn column(&mut self, chart: &'static str, name: &str, begins: bool) -> Option<&mut Column> {
        let found = self.columns.iter().position(|column| column.chart == chart && column.name == name);
        let at = match found {
            Some(at) => at,
            None if !begins || self.columns.len() == self.series_max => return None,
            None => {
                let values = std::iter::repeat_n(f32::NAN, self.times_ms.len()).collect();
                self.columns.push(Column { chart, name: name.to_owned(), counted: None, values });
                self.columns.len() - 1
            }
        };
        self.columns.get_mut(at)
    }

    /// Returns the times of the samples after a Unix time, and the charts with their values.
    pub(super) fn after(&self, after_ms: u64) -> (Vec<u64>, Vec<Chart>) {
        let from = self.times_ms.partition_point(|time| *time <= after_ms);
        let chart = |(name, unit): (&'static str, &'static str)| {
            let columns = self.columns.iter().filter(|column| column.chart == name);
            let series = columns.map(|column| Line {
                name: column.name.clone(),
                values: column.values.range(from..).copied().collect(),
            });
            Chart { name, unit, series: series.collect() }
        };
        (self.times_ms.range(from..).copied().collect(), CHARTS.map(chart).into())
    }
}

impl Column {
    /// Replaces the value of the last sample.
    fn show(&mut self, value: Option<f64>) {
        if let (Some(last), Some(value)) = (self.values.back_mut(), value) {
            *last = value as f32;
        }
    }
}

/// Returns the increase of a counter per second. A counter that has decreased has begun anew.
fn rate(before: f64, now: f64, passed: Option<Duration>) -> Option<f64> {
    let seconds = passed?.as_secs_f64();
    (before <= now && seconds > 0.0).then(|| (now - before) / seconds)
}

/// Returns a quantile of a histogram, interpolated within its bucket. Values in the last bucket, which has no upper
/// bound, count as the last bound. `None` if the histogram is empty.
fn quantile(bounds: &[f64], counts: &[u64], quantile: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    let rank = total as f64 * quantile;
    let mut below = 0;
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        if (below + count) as f64 >= rank {
            let Some(upper) = bounds.get(bucket) else { break };
            let lower = bucket.checked_sub(1).map_or(0.0, |before| bounds[before]);
            return Some(lower + (upper - lower) * (rank - below as f64) / *count as f64);
        }
        below += count;
    }
    bounds.last().copied().filter(|_| total > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn readings(unix_ms: u64, figures: &[(&'static str, &str, Kind, f64)]) -> Readings {
        let figure = |(chart, name, kind, value): &(&'static str, &str, Kind, f64)| Figure {
            chart,
            name: (*name).to_owned(),
            kind: *kind,
            value: *value,
        };
        Readings { unix_ms, figures: figures.iter().map(figure).collect(), ..Readings::default() }
    }

    /// Returns the values of a series after a time, `-` for none.
    fn values(series: &Series, after_ms: u64, chart: &str, name: &str) -> String {
        let (_, charts) = series.after(after_ms);
        let chart = charts.into_iter().find(|other| other.name == chart).unwrap();
        let Some(line) = chart.series.into_iter().find(|line| line.name == name) else {
            return "none".into();
        };
        let show = |value: &f32| if value.is_nan() { "-".to_owned() } else { value.to_string() };
        line.values.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn counters_become_rates_and_gauges_stay() {
        let (mut series, begun) = (Series::new(10, 10), Instant::now());
        for (second, (counted, open)) in
            [(100, 0), (120, 0), (120, 3), (5, 0), (10, 2)].into_iter().enumerate()
        {
            let second = u32::try_from(second).unwrap();
            let figures = [
                ("messages", "received", Kind::Counter, f64::from(counted)),
                ("connections", "open", Kind::Gauge, f64::from(open)),
                ("connections", "sse", Kind::SparseGauge, f64::from(open)),
                ("connections", "websocket", Kind::SparseGauge, 0.0),
            ];
            series.record(begun + 2 * second * SECOND, &readings(1_000 + u64::from(second), &figures));
        }
        // After the restart of a counter, one sample has no rate.
        assert_eq!(values(&series, 0, "messages", "received"), "- 10 0 - 2.5");
        assert_eq!(values(&series, 0, "connections", "open"), "0 0 3 0 2");
        assert_eq!(values(&series, 0, "connections", "sse"), "- - 3 0 2");
        assert_eq!(values(&series, 0, "connections", "websocket"), "none");
        assert_eq!(values(&series, 1_002, "connections", "open"), "0 2");
        assert_eq!(series.after(1_002).0, [1_003, 1_004]);
        assert!(series.after(1_004).0.is_empty());
    }

    #[test]
    fn samples_and_series_are_bounded() {
        let (mut series, begun) = (Series::new(3, 2), Instant::now());
        for second in 0..5_u32 {
            let figures = ["a", "b", "c"].map(|name| ("memory", name, Kind::Gauge, f64::from(second)));
            series.record(begun + second * SECOND, &readings(u64::from(second), &figures));
        }
        assert_eq!(series.after(0).0, [2, 3, 4]);
        assert_eq!(values(&series, 0, "memory", "b"), "2 3 4");
        assert_eq!(values(&series, 0, "memory", "c"), "none");
        // The clock was set back.
        series.record(begun + 5 * SECOND, &readings(0, &[]));
        assert_eq!(series.after(4).0, [5]);
        assert_eq!(values(&series, 0, "memory", "b"), "3 4 -");
    }

    #[test]
    fn latency_is_that_of_the_last_minute() {
        let (mut series, begun) = (Series::new(100, 10), Instant::now());
        for second in 0..40_u32 {
            let deliveries = Buckets {
                bounds: vec![0.001, 0.01],
                // Ten deliveries within 1 ms, once; one within 10 ms, later.
                counts: vec![if second == 0 { 0 } else { 10 }, u64::from(second > 35), 0],
            };
            let readings = Readings { deliveries, ..readings(u64::from(second), &[]) };
            series.record(begun + 2 * second * SECOND, &readings);
        }
        let p50 = values(&series, 0, "latency", "p50");
        let expect = [vec!["-"], vec!["0.0005"; 30], vec!["-"; 5], vec!["0.0055"; 4]].concat();
        assert_eq!(p50, expect.join(" ").trim_start_matches("- "));
    }

    #[test]
    fn quantiles_are_interpolated() {
        fn check(counts: &[u64], share: f64, expect: Option<f64>) {
            assert_eq!(quantile(&[1.0, 2.0, 4.0], counts, share), expect, "{counts:?} {share}");
        }
        check(&[0, 0, 0, 0], 0.5, None);
        check(&[], 0.5, None);
        check(&[4, 0, 0, 0], 0.5, Some(0.5));
        check(&[1, 1, 0, 0], 0.5, Some(1.0));
        check(&[1, 0, 2, 0], 0.5, Some(2.5));
        check(&[0, 1, 1, 0], 0.99, Some(3.96));
        check(&[1, 0, 0, 1], 0.99, Some(4.0));
    }
}
