//! Compares two results of one scenario: the old and the new figure of each case, server and metric.
//!
//! Two results weren't measured under the same conditions, and their runs didn't alternate. So a difference is marked
//! only if the ratio is beyond the scatter of the runs, **and** beyond the change of every server that has the same
//! versions in both. Such a change is caused by the machine. Without such a server, a warning says so.

use std::fmt;

use minijinja::context;

use super::record::Record;
use crate::Error;
use crate::bench::{Metric, ServerReport, is_beyond, lag_ms, median, unpaired_resolution};
use crate::catalogue::is_known;
use crate::table::Table;
use crate::templates::render;

#[derive(Clone, Debug)]
pub(crate) struct ComparedResults {
    pub warnings: Vec<String>,
    pub rows: Vec<Row>,
}

/// One figure of one server in one case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub case: String,
    pub server: String,
    /// `true` if this is the case's decisive figure.
    pub is_decisive: bool,
    pub metric: Metric,
    /// Medians of the valid runs.
    pub old: Option<f64>,
    pub new: Option<f64>,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// Better than before, by more than noise.
    Better,
    /// Worse than before, by more than noise.
    Worse,
    /// No difference shown: a ratio below this one, and above its inverse, can't be distinguished from noise.
    NotShown(f64),
    /// Only one run on either side, so no verdict.
    TooFew,
    /// No valid run on one side.
    Invalid,
}

impl Row {
    pub(super) fn figure(&self, value: Option<f64>) -> String {
        value.map_or("–".to_owned(), |value| self.metric.format(value))
    }

    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.new? / self.old.filter(|old| *old > 0.0)?)
    }
}

/// Compares `new` with `old`.
pub(crate) fn compare(old: &Record, new: &Record) -> Result<ComparedResults, Error> {
    let (one, other) = (&old.scenario.name, &new.scenario.name);
    if one != other {
        return Err(Error::Usage(format!("they are of different scenarios: {one} and {other}")));
    }
    let machines = old.machine.differences(&new.machine).into_iter();
    let mut warnings: Vec<String> = machines.map(|line| format!("the machines differ: {line}")).collect();
    for (what, one, other) in [
        ("congestion control", old.report.congestion.as_str(), new.report.congestion.as_str()),
        ("effort", old.effort.name(), new.effort.name()),
    ] {
        if one != other {
            warnings.push(format!("the {what} differs: {one} / {other}"));
        }
    }
    // An unknown version may be any version.
    let is_same = |server: &str| match (old.server(server), new.server(server)) {
        (Some(old), Some(new)) => {
            old.versions == new.versions && old.versions.values().all(|one| is_known(one))
        }
        _ => false,
    };
    let mut rows = Vec::new();
    let mut uncontrolled = false;
    for case in &new.report.cases {
        let Some(before) = old.case(&case.name) else { continue };
        for runs in case.named() {
            let Some(runs_before) = before.runs(&runs.name) else { continue };
            let drift_by = |metric| {
                let same = case.named().filter(|other| other.name != runs.name && is_same(&other.name));
                let ratios = same.filter_map(|other| ratio(before.runs(&other.name)?, other, metric));
                ratios.max_by(|one, other| one.ln().abs().total_cmp(&other.ln().abs()))
            };
            for (nth, metric) in case.metrics.iter().copied().enumerate() {
                let drift = drift_by(metric);
                uncontrolled |= drift.is_none() && !is_same(&runs.name);
                rows.push(Row {
                    case: case.name.clone(),
                    server: runs.name.clone(),
                    is_decisive: nth == 0,
                    metric,
                    old: median(&runs_before.valid(metric)),
                    new: median(&runs.valid(metric)),
                    change: change(runs_before, runs, metric, drift.unwrap_or(1.0)),
                });
            }
        }
    }
    for (one, other, which) in [(new, old, "new"), (old, new, "old")] {
        for case in &one.report.cases {
            let Some(there) = other.case(&case.name) else {
                warnings.push(format!("{} is only in the {which} one", case.name));
                continue;
            };
            let lacking = case.named().filter(|runs| there.runs(&runs.name).is_none());
            warnings.extend(
                lacking.map(|runs| format!("{}: {} is only in the {which} one", case.name, runs.name)),
            );
        }
    }
    if rows.is_empty() {
        return Err(Error::Usage("they have no case and server in common".into()));
    }
    if uncontrolled {
        warnings.push(
            "no other server is the same in both, so a change of the machine looks like a change of the server"
                .to_owned(),
        );
    }
    Ok(ComparedResults { warnings, rows })
}

fn ratio(old: &ServerReport, new: &ServerReport, metric: Metric) -> Option<f64> {
    let ratio = median(&new.valid(metric))? / median(&old.valid(metric))?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

fn change(old: &ServerReport, new: &ServerReport, metric: Metric, drift: f64) -> Change {
    let (before, after) = (old.valid(metric), new.valid(metric));
    let (Some(was), Some(is)) = (median(&before), median(&after)) else { return Change::Invalid };
    if was <= 0.0 || is <= 0.0 {
        // A ratio to zero has no value. A change from zero to another value isn't noise.
        return match is.total_cmp(&was) {
            std::cmp::Ordering::Equal => Change::NotShown(1.0),
            order => direction(metric, order.is_gt()),
        };
    }
    let Some(resolution) = unpaired_resolution(&before, &after) else { return Change::TooFew };
    let mut least = resolution.max(drift).max(1.0 / drift);
    if metric.has_lag() {
        least = least.max(1.0 + lag_ms(&old.trials).max(lag_ms(&new.trials)) / was.min(is));
    }
    if is_beyond(is / was, least) { direction(metric, is > was) } else { Change::NotShown(least) }
}

fn direction(metric: Metric, more: bool) -> Change {
    if more == metric.larger_is_better() { Change::Better } else { Change::Worse }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Better => f.write_str("better"),
            Self::Worse => f.write_str("worse"),
            Self::NotShown(least) if *least < 10.0 => {
                write!(f, "no difference shown (less than {:.0} %)", ((least - 1.0) * 100.0).ceil())
            }
            Self::NotShown(_) => f.write_str("no difference shown (too much noise)"),
            Self::TooFew => f.write_str("too few runs"),
            Self::Invalid => f.write_str("no valid run"),
        }
    }
}

impl fmt::Display for ComparedResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        self.table().fmt(f)
    }
}

impl ComparedResults {
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(["case", "server", "figure", "old", "new", "ratio", "verdict"]);
        for row in &self.rows {
            table.push([
                row.case.clone(),
                row.server.clone(),
                row.metric.label().to_owned(),
                row.figure(row.old),
                row.figure(row.new),
                row.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
                row.change.to_string(),
            ]);
        }
        table
    }

    /// The comparison as a page without external files.
    pub(crate) fn page(&self) -> String {
        let sections = [context! { table => self.table() }];
        render(
            "sections.html",
            &context! { title => "Two results compared", warnings => self.warnings, sections },
        )
    }
}

#[cfg(test)]
pub(super) mod tests;
