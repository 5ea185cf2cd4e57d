//! What a bench found, for people and for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::stats::{is_difference, ratios, resolution};
use super::{Case, Interval, LAG, Metric, Pace, Trial, median, ratio_interval};

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The congestion control of all connections.
    pub congestion: String,
    /// How much time it could take.
    pub pace: Pace,
    /// Servers that were named and couldn't be installed.
    pub missing: Vec<String>,
    /// Case by case.
    pub cases: Vec<CaseReport>,
}

/// One case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// Its name.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// Its metrics, in order.
    pub metrics: Vec<Metric>,
    /// What an open loop offered all of them, messages a second.
    pub rate_hz: Option<f64>,
    /// On how many connections, where that is fixed.
    pub connections: Option<usize>,
    /// Server by server, the judged one first, and last that one again.
    pub servers: Vec<ServerReport>,
    /// What was to be reached, and whether it was.
    pub verdicts: Vec<Verdict>,
}

/// One server in one case.
#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// Medians of its sound runs.
    pub medians: BTreeMap<Metric, f64>,
    /// The judged server's figure divided by this one's.
    pub comparisons: BTreeMap<Metric, Comparison>,
    /// Every run.
    pub trials: Vec<Trial>,
}

/// The judged server against another one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The ratio.
    pub ratio: Interval,
    /// How far from 1 it would have to be for that: the least ratio above 1, whose inverse is the greatest below. `None`
    /// where nothing can be claimed, because the judged server wasn't run twice.
    pub resolution: Option<f64>,
    /// Whether a difference may be claimed: the interval excludes 1, the effect is larger than that of the judged server
    /// against itself, and of times larger than what the generator lagged.
    pub differs: bool,
}

/// One target.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The figure.
    pub metric: Metric,
    /// Against whom; `None`: the figure itself.
    pub against: Option<&'static str>,
    /// What it is to be at most; at least, where more of it is better.
    pub bound: f64,
    /// What was measured; `None`: there was no sound run of both.
    pub measured: Option<f64>,
    /// Whether it holds.
    pub reached: bool,
}

impl CaseReport {
    /// `again`: whether the last one is the first one again. Without that, no difference is claimed.
    pub(super) fn new(case: &Case, trials: Vec<(String, Vec<Trial>)>, again: bool, seed: u64) -> Self {
        let figures = |trials: &[Trial], metric: Metric| -> Vec<Option<f64>> {
            trials.iter().map(|trial| trial.sound(metric)).collect()
        };
        let last = trials.len().saturating_sub(1);
        let mut servers = Vec::new();
        for (index, (name, runs)) in trials.iter().enumerate() {
            let mut medians = BTreeMap::new();
            let mut comparisons = BTreeMap::new();
            for metric in case.metrics {
                let theirs = figures(runs, *metric);
                let sound: Vec<f64> = theirs.iter().copied().flatten().collect();
                medians.extend(median(&sound).map(|value| (*metric, value)));
                if index == 0 {
                    continue;
                }
                let ours = figures(&trials[0].1, *metric);
                let Some(ratio) = ratio_interval(&ours, &theirs, seed) else { continue };
                let of_itself =
                    if again { ratios(&ours, &figures(&trials[last].1, *metric)) } else { Vec::new() };
                let others = ratios(&ours, &theirs);
                let differs = is_difference(&others, &of_itself, index != last)
                    && is_more_than_the_lag(*metric, &trials[0].1, runs);
                let resolution = resolution(&others, &of_itself);
                let ratio = resolution.map_or(ratio, |resolution| Interval {
                    median: ratio.median,
                    low: ratio.median / resolution,
                    high: ratio.median * resolution,
                });
                comparisons.insert(*metric, Comparison { ratio, resolution, differs });
            }
            servers.push(ServerReport { name: name.clone(), medians, comparisons, trials: runs.clone() });
        }
        let verdicts = case
            .targets
            .iter()
            .map(|target| {
                let measured = match target.against {
                    None => servers.first().and_then(|first| first.medians.get(&target.metric).copied()),
                    Some(against) => {
                        let other = servers.iter().skip(1).find(|server| server.name == against);
                        let comparison = other.and_then(|other| other.comparisons.get(&target.metric));
                        comparison.map(|comparison| comparison.ratio.median)
                    }
                };
                Verdict {
                    metric: target.metric,
                    against: target.against,
                    bound: target.bound,
                    measured,
                    reached: measured.is_some_and(|measured| match target.metric.larger_is_better() {
                        true => measured >= target.bound,
                        false => measured <= target.bound,
                    }),
                }
            })
            .collect();
        Self {
            name: case.name,
            title: match case.offered_hz() {
                Some(rate_hz) => format!("{}, {rate_hz:.0} a second", case.title),
                None => case.title.clone(),
            },
            metrics: case.metrics.to_vec(),
            rate_hz: case.offered_hz(),
            connections: case.kind.connections(),
            servers,
            verdicts,
        }
    }
}

/// Whether the medians of a time are farther apart than the generator's lag made them uncertain. Other figures are.
fn is_more_than_the_lag(metric: Metric, ours: &[Trial], theirs: &[Trial]) -> bool {
    let middle = |runs: &[Trial], of: &dyn Fn(&Trial) -> Option<f64>| {
        median(&runs.iter().filter_map(of).collect::<Vec<f64>>())
    };
    if !metric.has_lag() {
        return true;
    }
    let figure = |runs| middle(runs, &|trial| trial.sound(metric)).unwrap_or(0.0);
    let lag_ms = |runs| middle(runs, &|trial| trial.context.get(LAG).copied()).unwrap_or(0.0);
    (figure(ours) - figure(theirs)).abs() > lag_ms(ours).max(lag_ms(theirs))
}

#[cfg(test)]
mod tests;
