//! What a run gives beside its figures: curves to be drawn, and the figures that are read off them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sampler::{SAMPLE_EVERY, Sample};
use crate::generator::{ChatStep, Doubt, LAG_SHARE_MAX, Outcome, Progress};

/// The mean latency up to which a chat isn't saturated, in seconds.
const SATURATED_S: f64 = 0.2;
/// Looks at memory that are drawn at most.
const SAMPLES_DRAWN: usize = 200;
/// Percentiles that are drawn.
const PERCENTILES: [f64; 9] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0];

/// What is drawn over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Curve {
    /// Percentiles of the latency, in milliseconds.
    Latency,
    /// Mean latency of a chat in milliseconds over deliveries a second.
    LatencyOverDeliveries,
    /// CPU time of the server in milliseconds over connections.
    CpuOverConnections,
    /// The server's resident memory and its memfds in megabytes over seconds of the load.
    MemoryOverTime,
}

impl Curve {
    /// All of them, in the order of a page.
    pub const ALL: [Self; 4] =
        [Self::Latency, Self::LatencyOverDeliveries, Self::CpuOverConnections, Self::MemoryOverTime];

    /// What is to be read at its axes: across, up.
    pub fn axes(self) -> (&'static str, &'static str) {
        match self {
            Self::Latency => ("percentile", "latency, ms"),
            Self::LatencyOverDeliveries => ("deliveries a second", "mean latency, ms"),
            Self::CpuOverConnections => ("connections", "server CPU, ms"),
            Self::MemoryOverTime => ("seconds", "server's memory, MB"),
        }
    }

    /// Whether it stands in spite of these doubts.
    pub fn stands(self, doubts: &[Doubt]) -> bool {
        let is_time = matches!(self, Self::Latency | Self::LatencyOverDeliveries);
        doubts.iter().all(|doubt| doubt.latency_only && !is_time)
    }

    /// A line to be drawn across, where something is decided by it.
    pub fn limit(self) -> Option<f64> {
        (self == Self::LatencyOverDeliveries).then_some(SATURATED_S * 1e3)
    }
}

/// All curves of an outcome, and of looks at memory while it came about.
pub(super) fn curves(outcome: &Outcome, samples: &[Sample]) -> BTreeMap<Curve, Vec<(f64, f64)>> {
    let mut curves = BTreeMap::new();
    // One or two say nothing about how it went.
    if samples.len() > 2 {
        let every = samples.len().div_ceil(SAMPLES_DRAWN).max(1);
        let points = samples.iter().enumerate().step_by(every).map(|(nth, sample)| {
            let bytes = sample.resident_bytes + sample.memfd_bytes;
            (SAMPLE_EVERY.as_secs_f64() * nth as f64, bytes as f64 / 1e6)
        });
        curves.insert(Curve::MemoryOverTime, points.collect());
    }
    if !outcome.latency.is_empty() && outcome.steps.is_empty() {
        let at = |percent| (percent, outcome.latency.percentile(percent).as_secs_f64() * 1e3);
        curves.insert(Curve::Latency, PERCENTILES.map(at).to_vec());
    }
    if !outcome.steps.is_empty() {
        let steps =
            outcome.steps.iter().map(|step| (step.delivered_hz, step.latency.mean().as_secs_f64() * 1e3));
        curves.insert(Curve::LatencyOverDeliveries, steps.collect());
    }
    if !outcome.progress.is_empty() {
        let points = outcome.progress.iter();
        let points = points.map(|point| (point.connections as f64, point.server_cpu.as_secs_f64() * 1e3));
        curves.insert(Curve::CpuOverConnections, points.collect());
    }
    curves
}

/// Why the figure of a chat isn't to be believed: the generator was late in a step that counts.
pub(super) fn doubts(steps: &[ChatStep]) -> Vec<Doubt> {
    let counted = steps.iter().filter(|step| step.latency.mean().as_secs_f64() < SATURATED_S);
    let lag = counted.map(|step| step.lag).max().unwrap_or_default();
    if lag.as_secs_f64() <= SATURATED_S * LAG_SHARE_MAX {
        return Vec::new();
    }
    vec![Doubt {
        latency_only: true,
        what: format!("the generator lagged {lag:.1?} behind its schedule (p99)"),
    }]
}

/// Whether a chat ended for the generator's sake, so that the server could do more.
pub(super) fn is_lower_bound(steps: &[ChatStep]) -> bool {
    steps.last().is_some_and(|last| last.wrong == 0 && last.latency.mean().as_secs_f64() < SATURATED_S)
}

/// Copies delivered a second at the mean latency where a chat counts as saturated, between the last step below it and the
/// first above. A step that lost something is above.
pub(super) fn saturation_hz(steps: &[ChatStep]) -> f64 {
    let mut below = (0.0, 0.0);
    for step in steps {
        let mean = step.latency.mean().as_secs_f64();
        if step.wrong > 0 {
            break;
        }
        if mean >= SATURATED_S {
            let share = (SATURATED_S - below.1) / (mean - below.1);
            // An overloaded server may deliver less than before.
            return below.0 + (step.delivered_hz - below.0).max(0.0) * share;
        }
        below = (step.delivered_hz, mean);
    }
    below.0
}

/// `cpu = a + b connects + c echoes`, fitted by least squares to how a budget was used: b and c in seconds. `None` where
/// there are too few points, or they lie in one plane with more than one answer.
pub(super) fn fitted(progress: &[Progress]) -> Option<(f64, f64)> {
    if progress.len() < 4 {
        return None;
    }
    // The normal equations, solved by elimination.
    let mut rows = [[0.0f64; 4]; 3];
    for point in progress {
        // In thousands, so that the three unknowns are of one size.
        let terms = [1.0, point.connections as f64 / 1e3, point.messages as f64 / 1e3];
        for (row, factor) in rows.iter_mut().zip(terms) {
            for (cell, term) in row.iter_mut().zip(terms) {
                *cell += factor * term;
            }
            row[3] += factor * point.server_cpu.as_secs_f64();
        }
    }
    for at in 0..3 {
        let largest = (at..3).max_by(|one, other| rows[*one][at].abs().total_cmp(&rows[*other][at].abs()))?;
        rows.swap(at, largest);
        let pivot = rows[at];
        if pivot[at].abs() < 1e-9 {
            return None;
        }
        for (nth, row) in rows.iter_mut().enumerate() {
            if nth != at {
                let factor = row[at] / pivot[at];
                for (cell, above) in row.iter_mut().zip(pivot) {
                    *cell -= factor * above;
                }
            }
        }
    }
    Some((rows[1][3] / rows[1][1] / 1e3, rows[2][3] / rows[2][2] / 1e3))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::generator::{Latencies, Span};

    #[test]
    fn a_budget_is_taken_apart() {
        let point = |seconds: u64| {
            let (connections, messages) = (seconds * 1000, seconds * seconds * 500);
            let cpu = 0.01 + 80e-6 * connections as f64 + 11e-6 * messages as f64;
            let at = Duration::from_secs(seconds);
            Progress { at, connections, messages, server_cpu: Duration::from_secs_f64(cpu) }
        };
        let points: Vec<Progress> = (1..20).map(point).collect();
        let (connect, echo) = fitted(&points).unwrap();
        assert!((connect - 80e-6).abs() < 1e-9 && (echo - 11e-6).abs() < 1e-9, "{connect} {echo}");
        assert_eq!(fitted(&points[..3]), None);
        assert_eq!(fitted(&[points[0]; 9]), None);
    }

    #[test]
    fn saturation_lies_between_the_steps_around_200_ms() {
        let step = |delivered_hz, mean_ms: u64, wrong| {
            let mut latency = Latencies::new();
            latency.record_ns(mean_ms * 1_000_000);
            let (last, span, lag) = (Latencies::new(), Span::default(), Duration::ZERO);
            ChatStep { rate_hz: 1.0, offered_hz: 1.0, delivered_hz, wrong, latency, last, span, lag }
        };
        let check = |steps: &[ChatStep], expect: f64| {
            let found = saturation_hz(steps);
            assert!((found / expect - 1.0).abs() < 0.01 || found == expect, "{found} {expect}");
        };
        check(&[step(1000.0, 10, 0), step(2000.0, 100, 0), step(3000.0, 300, 0)], 2500.0);
        check(&[step(1000.0, 10, 0), step(2000.0, 100, 0)], 2000.0);
        check(&[step(1000.0, 10, 0), step(2000.0, 100, 1), step(3000.0, 300, 0)], 1000.0);
        check(&[step(1000.0, 100, 0), step(900.0, 300, 0)], 1000.0);
        check(&[step(1000.0, 400, 0)], 500.0);
    }
}
