//! An overload: a document changes up to ten times as often as it can be sent to all clients, and then as before.
//!
//! The capacity is the rate of delivery while the offered rate is far greater. The phases offer multiples of it. A
//! server that keeps only the newest value skips versions, disconnects no client, keeps its memory constant, and is as
//! up to date afterwards as before.

use std::time::Duration;

use super::sampler::Sample;
use super::{Curve, Metric, Trial, median};
use crate::clock::monotonic_ns;
use crate::generator::{Following, Live};
use crate::upstream::Pacer;

/// Versions per second while the capacity is measured; the duration of that measurement; and the duration of its first
/// part, which is ignored because the server isn't saturated yet.
const SATURATING_HZ: f64 = 40.0;
const SATURATES: Duration = Duration::from_secs(6);
const SATURATED_AFTER: Duration = Duration::from_secs(3);
/// Share of the delivered rate that counts as the capacity. At the limit itself, skipped versions would be random.
const OF_DELIVERED: f64 = 0.9;
/// Offered rate of each phase, as a multiple of the capacity. The last phase takes twice as long as the others.
pub(super) const OFFERED: [f64; 5] = [0.5, 2.0, 5.0, 10.0, 0.5];
/// Share of a phase, at its beginning, that still shows the previous phase.
const WARM_UP_SHARE: f64 = 0.4;

/// A phase of the load with a constant offered rate: `multiple` times the capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    multiple: f64,
    from_ns: u64,
    to_ns: u64,
}

/// Sets the offered rate during the load, by the generator's reports.
pub(super) struct Conductor {
    pacer: Pacer,
    clients: f64,
    phase: Duration,
    began_ns: u64,
    delivered_hz: Vec<f64>,
    /// Versions per second that can be sent to all clients.
    pub(super) capacity_hz: f64,
    /// The phases so far.
    pub(super) phases: Vec<Phase>,
}

impl Conductor {
    pub(super) fn new(pacer: Pacer, clients: usize, phase: Duration) -> Self {
        let clients = clients.max(1) as f64;
        let (delivered_hz, phases) = (Vec::new(), Vec::new());
        Self { pacer, clients, phase, began_ns: 0, delivered_hz, capacity_hz: 0.0, phases }
    }

    /// Starts the load.
    pub(super) fn begin(&mut self) {
        self.began_ns = monotonic_ns();
        self.pacer.set_rate_hz(SATURATING_HZ, Duration::ZERO);
    }

    /// Handles a report after a second of the load.
    pub(super) fn observe(&mut self, live: &Live) {
        if self.began_ns > 0 {
            self.step(Duration::from_nanos(monotonic_ns() - self.began_ns), live.delivered_hz);
        }
    }

    fn step(&mut self, at: Duration, delivered_hz: f64) {
        if at < SATURATES {
            self.delivered_hz.extend((at >= SATURATED_AFTER).then_some(delivered_hz));
            return;
        }
        if self.phases.is_empty() {
            self.capacity_hz = median(&self.delivered_hz).unwrap_or(0.0) / self.clients * OF_DELIVERED;
        }
        let due = ((at - SATURATES).as_secs_f64() / self.phase.as_secs_f64().max(1e-9)) as usize;
        let now_ns = monotonic_ns();
        if let Some(last) = self.phases.last_mut() {
            last.to_ns = now_ns;
        }
        if self.phases.len() <= due && self.phases.len() < OFFERED.len() && self.capacity_hz > 0.0 {
            let multiple = OFFERED[self.phases.len()];
            self.pacer.set_rate_hz(self.capacity_hz * multiple, Duration::ZERO);
            self.phases.push(Phase { multiple, from_ns: now_ns, to_ns: now_ns });
        }
    }
}

/// Adds the figures and curves of an overload to those of its run.
pub(super) fn add(
    trial: &mut Trial,
    (capacity_hz, phases): &(f64, Vec<Phase>),
    samples: &[Following],
    memory: &[Sample],
) {
    let (Some(first), [before, .., last]) = (samples.first(), &phases[..]) else {
        trial.unmeasured = Some("the load ended before its phases".to_owned());
        return;
    };
    trial.context.insert("versions/s at the capacity".to_owned(), *capacity_hz);
    for (nth, phase) in phases.iter().enumerate() {
        let steady = SteadyState::of(phase, samples);
        let name = |what: &str| format!("{}. {} × capacity: {what}", nth + 1, phase.multiple);
        trial.context.insert(name("skipped %"), steady.skipped_share * 100.0);
        trial.context.insert(name("median age ms"), steady.age_ms);
        trial.context.insert(name("delivered/s"), steady.delivered_hz);
        if phase.multiple >= OFFERED[3] {
            trial.figures.insert(Metric::Deliveries, steady.delivered_hz);
        }
    }
    let (before, after) = (SteadyState::of(before, samples), SteadyState::of(last, samples));
    // Age grows between two versions. The time at which a sample falls between them is random.
    let version_ms = 1e3 / (capacity_hz * OFFERED[0]).max(1e-9);
    if before.age_ms > 0.0 {
        trial.figures.insert(Metric::AgeShift, (after.age_ms - version_ms / 2.0).max(0.0) / before.age_ms);
    }
    trial.figures.insert(Metric::Undelivered, before.skipped_share * 100.0);
    let seconds = |sample: &Following| (sample.at_ns - first.at_ns) as f64 / 1e9;
    let every = crate::generator::SAMPLE_EVERY.as_secs_f64();
    let mut draw = |curve: Curve, of: &dyn Fn(&Following) -> f64| {
        trial.curves.insert(curve, samples.iter().map(|sample| (seconds(sample), of(sample))).collect());
    };
    draw(Curve::AgeMedian, &|sample| sample.age_ns[0] as f64 / 1e6);
    draw(Curve::AgeP99, &|sample| sample.age_ns[1] as f64 / 1e6);
    draw(Curve::DeliveredOverTime, &|sample| sample.delivered as f64 / every);
    let kernel = memory.iter().enumerate();
    let kernel = kernel.map(|(nth, sample)| (nth as f64 * every, sample.kernel_bytes as f64 / 1e6));
    trial.curves.insert(Curve::KernelOverTime, kernel.collect());
    trial.curves.retain(|_, points| !points.is_empty());
}

/// A phase without its first part, which still shows the previous phase.
struct SteadyState {
    age_ms: f64,
    delivered_hz: f64,
    skipped_share: f64,
}

impl SteadyState {
    fn of(phase: &Phase, samples: &[Following]) -> Self {
        let from_ns = phase.from_ns + ((phase.to_ns - phase.from_ns) as f64 * WARM_UP_SHARE) as u64;
        let during: Vec<&Following> =
            samples.iter().filter(|sample| (from_ns..phase.to_ns).contains(&sample.at_ns)).collect();
        let ages: Vec<f64> = during.iter().map(|sample| sample.age_ns[0] as f64 / 1e6).collect();
        let sum = |of: fn(&Following) -> u64| during.iter().map(|sample| of(sample)).sum::<u64>() as f64;
        let (delivered, skipped) = (sum(|sample| sample.delivered), sum(|sample| sample.skipped));
        let spans = during.len().max(1) as f64 * crate::generator::SAMPLE_EVERY.as_secs_f64();
        Self {
            age_ms: median(&ages).unwrap_or(0.0),
            delivered_hz: delivered / spans,
            skipped_share: skipped / (skipped + delivered).max(1.0),
        }
    }
}

#[cfg(test)]
mod tests;
