//! Curves of a run, and the figures that are derived from them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::disturbance::steal_doubt;
use super::sampler::{SAMPLE_EVERY, Sample};
use crate::generator::{
    Cause, ChatStep, Doubt, FanoutPlan, LAG_SHARE_MAX, LoadSpec, OWN_CPU_MAX, Outcome, Progress,
};

/// Mean latency (s) from which a chat counts as saturated.
const SATURATED_S: f64 = 0.2;
/// The maximum number of points of a curve.
const POINTS_MAX: usize = 200;
/// Percentiles that are drawn.
const PERCENTILES: [f64; 10] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

macro_rules! curves {
    ($($(#[$doc:meta])* $name:ident $key:literal $title:literal $across:literal $up:literal)*) => {
        /// A curve, named by its axes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub(crate) enum Curve {
            $($(#[$doc])* #[serde(rename = $key)] $name,)*
        }

        impl Curve {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            pub(crate) fn axes(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => ($across, $up),)*
                }
            }

            pub(crate) fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }
        }
    };
}

curves! {
    Latency "latency" "How long do messages take?" "percentile" "latency, ms"
    LatencyOverDeliveries "latency_over_deliveries" "When does the chat become slow?" "deliveries a second" "mean latency, ms"
    /// The 99th percentile of the age on arrival of each publication, over seconds.
    AgeOverTime "age_over_time" "How old are documents when they arrive?" "seconds" "age of data, p99, ms"
    AgeOverClients "age_over_clients" "How old are documents, by clients?" "clients" "age of data, p99, ms"
    CpuOverConnections "cpu_over_connections" "What do connections cost in CPU?" "connections" "server CPU, ms"
    /// The server's resident memory over connections. For a search: the peak at each level, with memfds.
    MemoryOverConnections "memory_over_connections" "What do connections cost in memory?" "connections" "server's memory, MB"
    KernelOverConnections "kernel_over_connections" "What do connections cost the kernel?" "connections" "kernel memory, both ends, MB"
    /// The server's resident memory and its memfds over seconds of the load.
    MemoryOverTime "memory_over_time" "Does memory grow under the load?" "seconds" "server's memory, MB"
    AgeMedian "age_median" "How old is what the median client has?" "seconds" "age, ms"
    AgeP99 "age_p99" "How old is what slow clients have?" "seconds" "age, p99, ms"
    DeliveredOverTime "delivered_over_time" "How much is delivered?" "seconds" "documents a second"
    KernelOverTime "kernel_over_time" "What waits in the kernel?" "seconds" "socket buffers, both ends, MB"
}

impl Curve {
    /// Returns `true` if the curve is valid despite these doubts.
    pub(crate) fn stands(self, doubts: &[Doubt]) -> bool {
        let is_time = matches!(
            self,
            Self::Latency | Self::LatencyOverDeliveries | Self::AgeOverTime | Self::AgeOverClients
        );
        doubts.iter().all(|doubt| doubt.latency_only && !is_time)
    }

    /// A horizontal line for a limit that decides something.
    pub(crate) fn limit(self) -> Option<f64> {
        (self == Self::LatencyOverDeliveries).then_some(SATURATED_S * 1e3)
    }
}

/// All curves of a run and of the memory samples taken during it.
pub(super) fn curves(
    load: &LoadSpec,
    outcome: &Outcome,
    samples: &[Sample],
) -> BTreeMap<Curve, Vec<(f64, f64)>> {
    let mut curves = BTreeMap::new();
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    // One or two samples don't show a change over time.
    if samples.len() > 2 {
        let points = samples.iter().enumerate().map(|(nth, sample)| {
            let bytes = sample.resident_bytes + sample.memfd_bytes;
            (SAMPLE_EVERY.as_secs_f64() * nth as f64, bytes as f64 / 1e6)
        });
        curves.insert(Curve::MemoryOverTime, points.collect());
    }
    if !outcome.latency.is_empty() && outcome.steps.is_empty() {
        let at = |percent| (percent, millis(outcome.latency.percentile(percent)));
        curves.insert(Curve::Latency, PERCENTILES.map(at).to_vec());
    }
    if let LoadSpec::Fanout(FanoutPlan { rate_hz, .. }) = load
        && outcome.p99_of_each_ns.len() > 2
    {
        let points = outcome.p99_of_each_ns.iter().enumerate();
        let points = points.map(|(nth, ns)| (nth as f64 / rate_hz, *ns as f64 / 1e6));
        curves.insert(Curve::AgeOverTime, points.collect());
    }
    if !outcome.steps.is_empty() {
        let steps = outcome.steps.iter().map(|step| (step.delivered_hz, millis(step.latency.mean())));
        curves.insert(Curve::LatencyOverDeliveries, steps.collect());
    }
    let way = &outcome.progress;
    if let [first, _, ..] = &way[..] {
        let over = |of: &dyn Fn(&Progress) -> f64| {
            way.iter().map(|point| (point.connections as f64, of(point))).collect::<Vec<_>>()
        };
        curves.insert(Curve::CpuOverConnections, over(&|point| millis(point.server_cpu)));
        if way.iter().all(|point| point.server_bytes > 0) {
            curves.insert(Curve::MemoryOverConnections, over(&|point| point.server_bytes as f64 / 1e6));
        }
        let grown = |point: &Progress| point.kernel_bytes.saturating_sub(first.kernel_bytes) as f64 / 1e6;
        curves.insert(Curve::KernelOverConnections, over(&grown));
    }
    for points in curves.values_mut() {
        thin_out(points);
    }
    curves
}

/// Reduces the points to the number that is drawn, and keeps the last one.
fn thin_out(points: &mut Vec<(f64, f64)>) {
    let every = points.len().div_ceil(POINTS_MAX).max(1);
    let kept: Vec<(f64, f64)> = points.iter().rev().step_by(every).copied().collect();
    points.clear();
    points.extend(kept.iter().rev());
}

/// The reason why the figure of a chat is invalid: the generator was late in a deciding step. (For lateness due to a
/// lack of CPU, see [`lower_bound`].)
pub(super) fn doubts(steps: &[ChatStep]) -> Vec<Doubt> {
    let counted = steps.iter().filter(|step| !is_saturated(step) && step.span.own_share() <= OWN_CPU_MAX);
    let lag = counted.map(|step| step.lag).max().unwrap_or_default();
    if lag.as_secs_f64() <= SATURATED_S * LAG_SHARE_MAX {
        return Vec::new();
    }
    let what = format!("the generator lagged {lag:.1?} behind its schedule (mean)");
    vec![Doubt::about_times(Cause::GeneratorLate, what)]
}

/// The reason why the server could do more than a chat shows, if there is one. Either the chat went through all steps,
/// or, in the deciding step or the previous one, the generator had no CPU left or the hypervisor took too much. Results
/// of earlier steps remain valid.
pub(super) fn lower_bound(steps: &[ChatStep]) -> Option<String> {
    let deciding = steps.iter().position(is_saturated).unwrap_or(steps.len());
    let around = &steps[deciding.saturating_sub(1)..steps.len().min(deciding + 1)];
    if deciding == steps.len() || around.iter().any(|step| step.span.own_share() > OWN_CPU_MAX) {
        return Some("the steps, or the generator's core, were at their end before the server".to_owned());
    }
    around.iter().find_map(|step| steal_doubt(step.span.steal_share)).map(|doubt| doubt.what)
}

/// The step that ended the load, or else the last one.
pub(super) fn deciding(steps: &[ChatStep]) -> Option<&ChatStep> {
    steps.iter().find(|step| is_saturated(step)).or(steps.last())
}

/// Returns `true` if the step was too slow or lost copies.
fn is_saturated(step: &ChatStep) -> bool {
    step.wrong > 0 || step.latency.mean().as_secs_f64() >= SATURATED_S
}

/// Copies per second at the mean latency where a chat counts as saturated, interpolated between the last step below that latency and
/// the first step above it. A step that lost copies counts as above that latency.
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

/// `cpu = a + b connects + c echoes`, fitted by least squares to the progress of a budget; b and c in seconds. `None` if there are
/// too few points, or if they don't determine one solution.
pub(super) fn fitted(progress: &[Progress]) -> Option<(f64, f64)> {
    let mean =
        |of: &dyn Fn(&Progress) -> f64| progress.iter().map(of).sum::<f64>() / progress.len().max(1) as f64;
    let of = [
        |point: &Progress| point.connections as f64,
        |point: &Progress| point.messages as f64,
        |point: &Progress| point.server_cpu.as_secs_f64(),
    ];
    let means = of.map(|of| mean(&of));
    let covariance = |one: usize, other: usize| {
        mean(&|point| (of[one](point) - means[one]) * (of[other](point) - means[other]))
    };
    // The normal equations of two unknowns. The means give a.
    let (connections, both, messages) = (covariance(0, 0), covariance(0, 1), covariance(1, 1));
    let determinant = connections * messages - both * both;
    if progress.len() < 4 || determinant <= connections * messages * 1e-9 {
        return None;
    }
    let (cpu_0, cpu_1) = (covariance(0, 2), covariance(1, 2));
    Some((
        (messages * cpu_0 - both * cpu_1) / determinant,
        (connections * cpu_1 - both * cpu_0) / determinant,
    ))
}

#[cfg(test)]
mod tests;
