//! Two results of one scenario beside each other: of each case, server and metric the old and the new figure.
//!
//! What was measured at different times wasn't measured under the same conditions, and nothing alternated. So a difference is
//! claimed only where the ratio is beyond what the runs of each scatter, **and** beyond what servers have changed that are the
//! same in both (the same versions): what they show is the machine. Where there is no such server, that is said.

use std::fmt;

use super::kept::{Case, Kept, Runs};
use crate::Error;
use crate::bench::{Metric, is_beyond, median, unpaired_resolution};
use crate::catalogue::UNKNOWN;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct ComparedResults {
    /// What is to be known before the figures are read.
    pub warnings: Vec<String>,
    /// Figure by figure.
    pub rows: Vec<Row>,
}

/// One figure of one server in one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The case's name.
    pub case: String,
    /// The server's name.
    pub server: String,
    /// Whether it is the case's decisive figure.
    pub is_decisive: bool,
    /// Which figure.
    pub metric: Metric,
    /// Medians of the sound runs.
    pub old: Option<f64>,
    /// Of the newer result.
    pub new: Option<f64>,
    /// What is said of it.
    pub change: Change,
}

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Better than before, by more than noise.
    Better,
    /// Worse than before, by more than noise.
    Worse,
    /// No difference is shown: less than this ratio, or its inverse, can't be told from noise.
    NotShown(f64),
    /// One run of either, so nothing can be said.
    TooFew,
    /// One of them has no sound run.
    Unsound,
}

impl Row {
    /// New to old.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.new? / self.old.filter(|old| *old > 0.0)?)
    }
}

/// Compares `new` with `old`.
///
/// # Errors
/// If they aren't of the same scenario.
pub fn compare(old: &Kept, new: &Kept) -> Result<ComparedResults, Error> {
    let (one, other) = (&old.scenario.name, &new.scenario.name);
    if one != other {
        return Err(Error::Usage(format!("they are of different scenarios: {one} and {other}")));
    }
    let mut warnings: Vec<String> = old.machine.differences(&new.machine);
    for line in &mut warnings {
        line.insert_str(0, "the machines differ: ");
    }
    for (what, one, other) in [
        ("congestion control", &old.report.congestion, &new.report.congestion),
        ("effort", &old.effort, &new.effort),
    ] {
        if one != other {
            warnings.push(format!("the {what} differs: {one} / {other}"));
        }
    }
    let is_same = |server: &str| {
        let version = old.version(server);
        // Whose version isn't known may be any.
        version == new.version(server) && version.is_some_and(|version| !version.contains(UNKNOWN))
    };
    let mut rows = Vec::new();
    let mut uncontrolled = false;
    for case in &new.report.cases {
        let Some(before) = old.report.cases.iter().find(|before| before.name == case.name) else {
            warnings.push(format!("{} is only in the new one", case.name));
            continue;
        };
        for runs in named(case) {
            let Some(runs_before) = before.runs(&runs.name) else {
                warnings.push(format!("{}: {} is only in the new one", case.name, runs.name));
                continue;
            };
            let drift_by = |metric| {
                let same = named(case).filter(|other| other.name != runs.name && is_same(&other.name));
                let ratios = same.filter_map(|other| ratio(before.runs(&other.name)?, other, metric));
                ratios.max_by(|one, other| one.ln().abs().total_cmp(&other.ln().abs()))
            };
            for (nth, metric) in case.known_metrics().enumerate() {
                let drift = drift_by(metric);
                uncontrolled |= drift.is_none() && !is_same(&runs.name);
                rows.push(Row {
                    case: case.name.clone(),
                    server: runs.name.clone(),
                    is_decisive: nth == 0,
                    metric,
                    old: median(&runs_before.sound(metric)),
                    new: median(&runs.sound(metric)),
                    change: change(runs_before, runs, metric, drift.unwrap_or(1.0)),
                });
            }
        }
    }
    for case in &old.report.cases {
        let now = new.report.cases.iter().find(|now| now.name == case.name);
        match now {
            None => warnings.push(format!("{} is only in the old one", case.name)),
            Some(now) => warnings.extend(
                named(case)
                    .filter(|runs| now.runs(&runs.name).is_none())
                    .map(|runs| format!("{}: {} is only in the old one", case.name, runs.name)),
            ),
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

/// The servers of a case, each once: not the judged one under its second name.
fn named(case: &Case) -> impl Iterator<Item = &Runs> {
    let again = case.servers.first().map(|first| format!("{} again", first.name));
    case.servers.iter().filter(move |runs| Some(&runs.name) != again.as_ref())
}

fn ratio(old: &Runs, new: &Runs, metric: Metric) -> Option<f64> {
    let ratio = median(&new.sound(metric))? / median(&old.sound(metric))?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

fn change(old: &Runs, new: &Runs, metric: Metric, drift: f64) -> Change {
    let (before, after) = (old.sound(metric), new.sound(metric));
    let (Some(was), Some(is)) = (median(&before), median(&after)) else { return Change::Unsound };
    if was <= 0.0 || is <= 0.0 {
        // Of nothing there is no multiple; from nothing to something is a change that no noise explains.
        return match is.total_cmp(&was) {
            std::cmp::Ordering::Equal => Change::NotShown(1.0),
            order => direction(metric, order.is_gt()),
        };
    }
    let Some(resolution) = unpaired_resolution(&before, &after) else { return Change::TooFew };
    let mut least = resolution.max(drift).max(1.0 / drift);
    if metric.has_lag() {
        least = least.max(1.0 + old.lag_ms().max(new.lag_ms()) / was.min(is));
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
            Self::Unsound => f.write_str("no sound run"),
        }
    }
}

impl fmt::Display for ComparedResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let header = ["case", "server", "figure", "old", "new", "ratio", ""].map(str::to_owned);
        let figure =
            |row: &Row, value: Option<f64>| value.map_or("–".to_owned(), |value| row.metric.format(value));
        let lines = self.rows.iter().map(|row| {
            [
                row.case.clone(),
                row.server.clone(),
                row.metric.label().to_owned(),
                figure(row, row.old),
                figure(row, row.new),
                row.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
                row.change.to_string(),
            ]
        });
        let lines: Vec<[String; 7]> = std::iter::once(header).chain(lines).collect();
        for line in &lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let width = lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
                text.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A result with one case, of `stentor` and of `ws8`, with these times of CPU per message, and one p99 for all.
    pub(in crate::scenario) fn kept(version: &str, stentor: &[f64], ws8: &[f64]) -> Kept {
        serde_json::from_value(raw(version, stentor, ws8)).unwrap()
    }

    pub(in crate::scenario) fn raw(version: &str, stentor: &[f64], ws8: &[f64]) -> Value {
        let runs = |name: &str, figures: &[f64]| {
            let trial = |cpu: &f64| {
                json!({ "figures": { "cpu_per_message": cpu, "latency_p99": 2.0, "of_the_future": 1 },
                    "context": { "p99 lag ms": 0.02 }, "curves": {}, "doubts": [], "unmeasured": null })
            };
            json!({ "name": name, "medians": {}, "trials": figures.iter().map(trial).collect::<Vec<_>>() })
        };
        json!({
            "schema": 1,
            "scenario": { "name": "fanout", "question": "?" },
            "effort": "quick", "began": "2026-11-21T19:12:14Z", "took_s": 1.0,
            "machine": { "cpu": "Z80", "cores": 2, "memory_bytes": 1, "kernel": "6.18" },
            "servers": [{ "name": "stentor", "versions": { "stentor": version } },
                { "name": "ws8", "versions": { "ws": "8" } }],
            "report": { "congestion": "cubic", "missing": [], "cases": [{
                "name": "1kB", "title": "1 kB", "metrics": ["cpu_per_message", "latency_p99", "of_the_future"],
                "servers": [runs("stentor", stentor), runs("ws8", ws8), runs("stentor again", stentor)],
            }] },
        })
    }

    #[test]
    fn changes_are_told_from_noise_and_from_the_machine() {
        let check = |new: &[f64], new_ws8: &[f64], expect: &str| {
            let old = kept("0.1.0", &[4.0, 4.1, 3.9], &[9.0, 9.1, 8.9]);
            let compared = compare(&old, &kept("0.2.0", new, new_ws8)).unwrap();
            assert_eq!(compared.rows.len(), 4, "{compared}");
            let row = &compared.rows[0];
            assert!(row.is_decisive && (row.case.as_str(), row.server.as_str()) == ("1kB", "stentor"));
            assert!(row.change.to_string().starts_with(expect), "{expect}: {compared}");
        };
        let same = [9.0, 9.1, 8.9];
        check(&[4.0, 4.1, 3.9], &same, "no difference shown");
        check(&[4.2, 4.1, 3.9], &same, "no difference shown");
        check(&[6.0, 6.1, 5.9], &same, "worse");
        check(&[3.0, 3.1, 2.9], &same, "better");
        // The other one, which is what it was, has become as much dearer: that is the machine.
        check(&[6.0, 6.1, 5.9], &[13.6, 13.7, 13.5], "no difference shown");
        check(&[6.0], &same, "too few");
        check(&[], &same, "no sound run");
    }

    #[test]
    fn what_is_not_comparable_is_told() {
        let old = kept("0.1.0", &[4.0, 4.1], &[9.0, 9.1]);
        let check = |change: &dyn Fn(&mut Value), expect: &str| {
            let mut new = raw("0.2.0", &[4.0, 4.1], &[9.0, 9.1]);
            change(&mut new);
            let told = match compare(&old, &serde_json::from_value(new).unwrap()) {
                Ok(compared) => compared.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(told.contains(expect), "{told}");
        };
        check(&|new| new["scenario"]["name"] = "idle".into(), "fanout and idle");
        check(
            &|new| new["machine"]["kernel"] = "6.19".into(),
            "warning: the machines differ: kernel: 6.18 / 6.19",
        );
        check(&|new| new["effort"] = "full".into(), "the effort differs: quick / full");
        check(&|new| new["report"]["congestion"] = "bbr".into(), "the congestion control differs");
        check(&|new| new["report"]["cases"][0]["name"] = "2kB".into(), "no case and server in common");
        check(
            &|new| new["report"]["cases"][0]["servers"][1]["name"] = "ws9".into(),
            "ws8 is only in the old one",
        );
        check(&|new| new["servers"][1]["versions"]["ws"] = "9".into(), "looks like a change of the server");
        // Neither is known to be the other.
        let (mut old, mut new) = (raw("0.1.0", &[4.0; 3], &[9.0; 3]), raw("0.2.0", &[4.0; 3], &[9.0; 3]));
        for result in [&mut old, &mut new] {
            result["servers"][1]["versions"]["ws"] = format!("{UNKNOWN}ws can't be run").into();
        }
        let parse = |result: &Value| Kept::parse(&result.to_string()).unwrap();
        let warnings = compare(&parse(&old), &parse(&new)).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains("looks like a change")), "{warnings:?}");
    }

    #[test]
    fn a_newer_format_is_refused() {
        let mut newer = raw("0.2.0", &[4.0], &[9.0]);
        newer["schema"] = 9.into();
        assert!(Kept::parse(&newer.to_string()).unwrap_err().contains("the number 9"));
        assert!(Kept::parse("{}").unwrap_err().contains("no result of a scenario"));
    }
}
