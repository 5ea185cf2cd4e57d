//! The works of the project and their goals: the first table of `docs/benchmarks.md`, and what `bench` reports of them.
//! `docs/benchmarks.toml` has the rows; the bounds of the goals are those of the cases.

use serde::Deserialize;

use super::SCENARIOS;
use crate::bench::{Effort, Goal, Metric, Report};
use crate::table::Table;

/// A work, with the newest figure and its goal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the test that writes the page's table reads the other fields")
)]
struct Row {
    work: String,
    /// Stentor's figure, with its unit.
    figure: String,
    peer: Option<String>,
    /// Stentor's figure divided by the peer's.
    ratio: Option<f64>,
    interval: Option<[f64; 2]>,
    /// `true` if the strict rule shows a difference.
    #[serde(default)]
    differs: bool,
    date: String,
    /// What bounds the figure.
    limit: String,
    /// The case with the goal.
    case: Option<String>,
    #[serde(default = "main_metric")]
    metric: Metric,
    /// The server in the case's goal.
    against: Option<String>,
    /// The figure in the metric's unit, for a goal without a server.
    measured: Option<f64>,
    /// A goal that no case has, and its result.
    goal: Option<String>,
    /// The command that measures it.
    by: Option<String>,
}

fn main_metric() -> Metric {
    Metric::CpuPerMessage
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    rows: Vec<Row>,
}

/// The embedded rows. A mistake in them is a bug of this program, which the tests find.
fn rows() -> Vec<Row> {
    let rows = toml::from_str(include_str!("../../../../docs/benchmarks.toml"));
    rows.map(|Rows { rows }| rows).unwrap_or_else(|error| panic!("docs/benchmarks.toml: {error}"))
}

impl Row {
    /// The goal in the row's case.
    fn declared(&self) -> Option<Goal> {
        let name = self.case.as_ref()?;
        let cases = SCENARIOS.iter().flat_map(|scenario| scenario.cases(Effort::Full));
        let goals = cases.filter(|case| case.name == *name).flat_map(|case| case.goals);
        goals.into_iter().find(|goal| goal.metric == self.metric && goal.against == self.against)
    }

    /// The goal as a text: `≤ 0.85 of uws-cpp`, `≤ 70.00 µs`.
    fn bound(&self, goal: &Goal) -> String {
        let sign = if goal.metric.larger_is_better() { "≥" } else { "≤" };
        match &goal.against {
            Some(against) => format!("{sign} {:.2} of {against}", goal.bound),
            None => format!("{sign} {}", goal.metric.format(goal.bound)),
        }
    }

    /// What a run of the cases has shown of the goal.
    fn result(&self, report: &Report) -> String {
        let Some(case) = report.cases.iter().find(|case| Some(&case.name) == self.case.as_ref()) else {
            return "not run".to_owned();
        };
        let is_own =
            |metric, against: &Option<String>| metric == Some(self.metric) && *against == self.against;
        let verdict = case.verdicts.iter().find(|verdict| is_own(verdict.metric, &verdict.against));
        let figure = |measured: f64| match self.against {
            Some(_) => format!("{measured:.2}"),
            None => self.metric.format(measured),
        };
        match verdict.and_then(|verdict| Some((verdict.measured?, verdict.reached))) {
            Some((measured, true)) => format!("{}: reached", figure(measured)),
            Some((measured, false)) => format!("{}: MISSED", figure(measured)),
            None => "not measured".to_owned(),
        }
    }
}

/// A table of all works with goals: the goal, the result of a run, and the case or the command that measures it.
pub(crate) fn results(report: &Report) -> Table {
    let mut table = Table::new(["work", "goal", "result", "measured by"]);
    let mut work = String::new();
    for row in rows() {
        if row.work != "the same" {
            work.clone_from(&row.work);
        }
        let (goal, result, by) = match (row.declared(), &row.goal) {
            (Some(goal), _) => (row.bound(&goal), row.result(report), row.case.clone().unwrap_or_default()),
            (None, Some(goal)) => {
                let bound = goal.split(':').next().unwrap_or_default().to_owned();
                (bound, "by hand".to_owned(), row.by.clone().unwrap_or_default())
            }
            (None, None) => continue,
        };
        table.push([work.clone(), goal, result, by]);
    }
    table
}

#[cfg(test)]
mod tests;
