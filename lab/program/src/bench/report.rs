//! Reports: figures, comparisons and verdicts. Results are written from these types and read back: a metric or curve that this
//! version doesn't know is skipped, and a missing field is empty.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::case::Goal;
use super::stats::{Rule, is_difference, median, range, ratios, resolution, suffices};
use super::{Case, Curve, Interval, LAG, Metric, Trial, separated};
use crate::table::{RATIO, Table};

/// The whole report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub(crate) congestion: String,
    /// Servers that were requested but couldn't be installed.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
    /// The cases, in order.
    pub cases: Vec<CaseReport>,
}

/// The results of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseReport {
    pub(crate) name: String,
    pub(crate) title: String,
    /// Metrics of the case, the decisive one first.
    #[serde(deserialize_with = "known_metrics")]
    pub(crate) metrics: Vec<Metric>,
    /// Messages per second that an open loop sent to every server.
    pub(crate) rate_hz: Option<f64>,
    pub(crate) connections: Option<usize>,
    /// The servers: the baseline first, and its second name last.
    pub servers: Vec<ServerReport>,
    /// The goals and whether they were reached.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
}

/// A server in a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerReport {
    pub(crate) name: String,
    /// Medians over the valid runs.
    #[serde(default, deserialize_with = "known_keys")]
    pub(crate) medians: BTreeMap<Metric, f64>,
    /// The baseline's figure divided by this server's.
    #[serde(default, deserialize_with = "known_keys")]
    pub(crate) comparisons: BTreeMap<Metric, Comparison>,
    /// All runs.
    pub trials: Vec<Trial>,
}

/// The comparison of the baseline with another server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub ratio: Interval,
    /// The minimum detectable difference: the smallest ratio above 1 that counts as a difference. Its inverse is the
    /// largest such ratio below 1. `None` without an A/A test.
    pub resolution: Option<f64>,
    /// `true` if there is a difference: the interval excludes 1, and the effect is larger than in the A/A test and, for
    /// times, larger than the generator's lag.
    pub differs: bool,
    /// Meaning of the ratio if a figure is a bound, because the generator reached its limit before the server.
    pub(crate) bound: Option<Bound>,
}

/// The meaning of a ratio between bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// The true ratio is this or larger.
    AtLeast,
    /// The true ratio is this or smaller.
    AtMost,
    /// Both figures are bounds, so the ratio means nothing.
    Neither,
}

/// A goal, and whether it was reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    #[serde(deserialize_with = "metric_or_none")]
    pub(crate) metric: Option<Metric>,
    /// The other server. `None` if the goal is about the figure itself.
    pub(crate) against: Option<String>,
    /// The maximum, or the minimum if a larger figure is better.
    pub(crate) bound: f64,
    /// The result. `None` if either server has no valid run.
    pub(crate) measured: Option<f64>,
    pub(crate) reached: bool,
}

/// Keeps the entries whose keys this version knows.
pub(super) fn known_keys<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: DeserializeOwned + Ord,
    V: Deserialize<'de>,
{
    let all = BTreeMap::<String, V>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|(key, value)| Some((known(key)?, value))).collect())
}

pub(super) fn known_metrics<'de, D, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    C: FromIterator<Metric>,
{
    Ok(Vec::<String>::deserialize(deserializer)?.into_iter().filter_map(known).collect())
}

fn metric_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Metric>, D::Error> {
    Ok(known(String::deserialize(deserializer)?))
}

fn known<T: DeserializeOwned>(name: String) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

impl ServerReport {
    pub(crate) fn valid(&self, metric: Metric) -> Vec<f64> {
        self.trials.iter().filter_map(|trial| trial.valid(metric)).collect()
    }

    /// A curve of the median valid run, in running order.
    pub(crate) fn curve(&self, curve: Curve) -> Option<&[(f64, f64)]> {
        let valid = self.trials.iter().filter(|trial| curve.stands(&trial.doubts));
        let runs: Vec<_> = valid.filter_map(|trial| trial.curves.get(&curve)).collect();
        runs.get(runs.len() / 2).map(|points| points.as_slice())
    }
}

/// The median of the generator's lags in these runs.
pub(crate) fn lag_ms(runs: &[Trial]) -> f64 {
    let lags: Vec<f64> = runs.iter().filter_map(|trial| trial.context.get(LAG).copied()).collect();
    median(&lags).unwrap_or(0.0)
}

impl CaseReport {
    /// Reports these runs. If `again`, the last server is the first one again. Otherwise, no difference is marked.
    pub(super) fn new(case: &Case, trials: Vec<(String, Vec<Trial>)>, again: bool, rule: Rule) -> Self {
        let figures = |trials: &[Trial], metric: Metric| -> Vec<Option<f64>> {
            trials.iter().map(|trial| trial.valid(metric)).collect()
        };
        let last = trials.len().saturating_sub(1);
        let mut servers: Vec<ServerReport> = Vec::new();
        for (index, (name, runs)) in trials.iter().enumerate() {
            let mut medians = BTreeMap::new();
            let mut comparisons = BTreeMap::new();
            for metric in &case.metrics {
                let theirs = figures(runs, *metric);
                let valid: Vec<f64> = theirs.iter().copied().flatten().collect();
                medians.extend(median(&valid).map(|value| (*metric, value)));
                let ours = figures(&trials[0].1, *metric);
                let others = ratios(&ours, &theirs);
                let (true, Some(ratio)) = (index > 0, range(&others)) else { continue };
                let of_itself =
                    if again { ratios(&ours, &figures(&trials[last].1, *metric)) } else { Vec::new() };
                let resolution = resolution(&others, &of_itself, rule);
                let bound = bound(*metric, &trials[0].1, runs);
                let direction = match bound {
                    None => true,
                    Some(Bound::AtLeast) => ratio.median > 1.0,
                    Some(Bound::AtMost) => ratio.median < 1.0,
                    Some(Bound::Neither) => false,
                };
                let differs = direction
                    && is_difference(&others, &of_itself, index != last, rule)
                    && is_more_than_the_lag(*metric, &trials[0].1, runs);
                let ratio = resolution.map_or(ratio, |resolution| ratio.widened(resolution));
                comparisons.insert(*metric, Comparison { ratio, resolution, differs, bound });
            }
            servers.push(ServerReport { name: name.clone(), medians, comparisons, trials: runs.clone() });
        }
        let verdict = |goal: &Goal| {
            let measured = match &goal.against {
                None => servers.first().and_then(|first| first.medians.get(&goal.metric).copied()),
                Some(against) => {
                    let other = servers.iter().skip(1).find(|server| server.name == *against);
                    other.and_then(|other| Some(other.comparisons.get(&goal.metric)?.ratio.median))
                }
            };
            let holds = |measured: f64| match goal.metric.larger_is_better() {
                true => measured >= goal.bound,
                false => measured <= goal.bound,
            };
            Verdict {
                metric: Some(goal.metric),
                against: goal.against.clone(),
                bound: goal.bound,
                measured,
                reached: measured.is_some_and(holds),
            }
        };
        let verdicts = case.goals.iter().map(verdict).collect();
        let rate_hz = case.offered_hz();
        let title =
            rate_hz.map_or(case.title.clone(), |rate_hz| format!("{}, {rate_hz:.0} a second", case.title));
        Self {
            name: case.name.clone(),
            title: separated(&title),
            metrics: case.metrics.clone(),
            rate_hz,
            connections: case.fixed_connections(),
            servers,
            verdicts,
        }
    }

    pub(crate) fn runs(&self, server: &str) -> Option<&ServerReport> {
        self.servers.iter().find(|runs| runs.name == server)
    }

    /// The servers without the baseline's second name.
    pub(crate) fn named(&self) -> impl Iterator<Item = &ServerReport> {
        let again = self.servers.first().map(|first| format!("{} again", first.name));
        self.servers.iter().filter(move |runs| Some(&runs.name) != again.as_ref())
    }

    /// Returns `true` if no further round is needed to compare the decisive figure ([`suffices`]).
    pub(super) fn suffices(&self) -> bool {
        let (Some(metric), [first, others @ .., again]) = (self.metrics.first(), &self.servers[..]) else {
            return false;
        };
        let figures = |server: &ServerReport| {
            server.trials.iter().map(|trial| trial.valid(*metric)).collect::<Vec<_>>()
        };
        let (ours, of_itself) = (figures(first), ratios(&figures(first), &figures(again)));
        others.iter().all(|other| suffices(&ratios(&ours, &figures(other)), &of_itself))
    }

    /// The reasons why runs are invalid or lack a figure.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for server in &self.servers {
            for (nth, trial) in server.trials.iter().enumerate() {
                let mut remark =
                    |what: String| lines.push(format!("{}, run {}: {what}", server.name, nth + 1));
                trial.unmeasured.iter().for_each(|what| remark(what.clone()));
                for doubt in &trial.doubts {
                    let what = if doubt.latency_only { "times invalid" } else { "invalid" };
                    remark(format!("{what}: {}", doubt.what));
                }
            }
        }
        lines
    }

    /// Figures and ratios of all servers.
    pub(crate) fn table(&self) -> Table {
        // A single server has no ratios.
        let alone = self.servers.len() < 2;
        let columns = self.metrics.iter().flat_map(|metric| [metric.label(), RATIO]);
        let columns = columns.filter(|name| !alone || *name != RATIO);
        let mut table = Table::new(std::iter::once("server").chain(columns).chain(["valid runs"]));
        for server in &self.servers {
            let mut row = vec![server.name.clone()];
            for metric in &self.metrics {
                row.push(server.medians.get(metric).map_or("–".to_owned(), |value| metric.format(*value)));
                if !alone {
                    let cell = |comparison: &Comparison| comparison.cell(*metric);
                    row.push(server.comparisons.get(metric).map_or(String::new(), cell));
                }
            }
            let valid = self.metrics.first().map_or(0, |main| server.valid(*main).len());
            row.push(format!("{valid}/{}", server.trials.len()));
            table.push(row);
        }
        table
    }
}

impl Comparison {
    /// Returns `true` if the first server is better by this difference. `None` if this is unknown or the metric has no
    /// better direction.
    pub(super) fn is_better(&self, metric: Metric) -> Option<bool> {
        let is_more = self.ratio.median > 1.0;
        (self.differs && metric != Metric::CutOff).then_some(is_more == metric.larger_is_better())
    }

    fn cell(&self, metric: Metric) -> String {
        let sign = match self.bound {
            Some(Bound::AtLeast) => "≥ ",
            Some(Bound::AtMost) => "≤ ",
            Some(Bound::Neither) => "both bounds: ",
            None => "",
        };
        let Interval { median, low, high } = self.ratio;
        let word = match self.is_better(metric) {
            Some(true) => " better",
            Some(false) => " worse",
            None if self.differs => " differs",
            None => "",
        };
        format!("{sign}{median:.2}× ({low:.2}–{high:.2}){word}")
    }
}

/// The meaning of the ratio of these runs' figures, if either is a bound.
fn bound(metric: Metric, ours: &[Trial], theirs: &[Trial]) -> Option<Bound> {
    let is_bound = |runs: &[Trial]| {
        runs.iter().any(|trial| trial.bounds.contains(&metric) && trial.valid(metric).is_some())
    };
    // A server whose figure is a bound may be better than the bound.
    match (is_bound(ours), is_bound(theirs), metric.larger_is_better()) {
        (false, false, _) => None,
        (true, true, _) => Some(Bound::Neither),
        (true, false, true) | (false, true, false) => Some(Bound::AtLeast),
        (true, false, false) | (false, true, true) => Some(Bound::AtMost),
    }
}

/// Returns `true` if the medians of a time differ by more than the generator's lag, and for all other figures.
fn is_more_than_the_lag(metric: Metric, ours: &[Trial], theirs: &[Trial]) -> bool {
    let figure = |runs: &[Trial]| {
        let valid: Vec<f64> = runs.iter().filter_map(|trial| trial.valid(metric)).collect();
        median(&valid).unwrap_or(0.0)
    };
    !metric.has_lag() || (figure(ours) - figure(theirs)).abs() > lag_ms(ours).max(lag_ms(theirs))
}

#[cfg(test)]
mod tests;
