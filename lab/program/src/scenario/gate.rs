//! Judges whether a change made the first server worse, by a new result and a baseline, for programs that decide by exit codes.
//!
//! Only the figures of the first server count; the others show the influence of the machine ([`super::compare`]). A figure that is
//! worse by more than noise but less than the tolerance is accepted.

use std::fmt;

use super::compare::{Change, ComparedResults, Row, compare};
use super::record::Record;
use crate::Error;

/// Verdict of a gate; the worst one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Held,
    Slower,
    /// The first server has no valid run of a decisive figure, in the baseline or now, or too few runs to show a
    /// difference: no verdict.
    Invalid,
    /// A server that should have taken part has no result.
    Failed,
}

impl Gate {
    /// The exit code. 2 is used by the command line.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Failed => 1,
            Self::Slower => 3,
            Self::Invalid => 4,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub gate: Gate,
    pub reasons: Vec<String>,
    pub compared: ComparedResults,
}

/// Judges `new` by `old`. `tolerance` is the share by which a figure may be worse.
pub(crate) fn judge(old: &Record, new: &Record, tolerance: f64) -> Result<Judgement, Error> {
    let compared = compare(old, new)?;
    let judged = new.report.cases.iter().find_map(|case| case.servers.first());
    let judged = judged.map(|server| server.name.clone()).unwrap_or_default();
    let mut gate = Gate::Held;
    let mut reasons = Vec::new();
    let mut say = |found: Gate, reason: String| {
        gate = gate.max(found);
        reasons.push(reason);
    };
    for missing in &new.report.missing {
        say(Gate::Failed, format!("{missing} couldn't be installed"));
    }
    for case in &new.report.cases {
        for server in &case.servers {
            if let Some(trial) = server.trials.iter().find(|trial| trial.figures.is_empty()) {
                let why = trial.doubts.first().map_or("no reason known", |doubt| doubt.what.as_str());
                say(Gate::Failed, format!("{}: {} gave nothing: {why}", case.name, server.name));
            }
        }
    }
    let of_judged = |row: &&Row| row.server == judged;
    for row in compared.rows.iter().filter(of_judged) {
        let name = format!("{}: {}: {}", row.case, row.server, row.metric.label());
        match row.change {
            Change::Worse if is_within(row, tolerance) => {}
            Change::Worse => {
                say(Gate::Slower, format!("{name}: {} → {}", row.figure(row.old), row.figure(row.new)));
            }
            Change::Invalid if row.is_decisive => {
                say(Gate::Invalid, format!("{name}: {}", why_invalid(new, row)))
            }
            Change::TooFew if row.is_decisive => {
                say(Gate::Invalid, format!("{name}: one run says nothing (--pairs)"));
            }
            Change::Better | Change::NotShown(_) | Change::TooFew | Change::Invalid => {}
        }
    }
    let was_judged = |case: &str| compared.rows.iter().any(|row| row.case == case && row.server == judged);
    for case in old.report.cases.iter().filter(|case| !was_judged(&case.name)) {
        say(Gate::Invalid, format!("{}: {judged} isn't in both results", case.name));
    }
    Ok(Judgement { gate, reasons, compared })
}

fn is_within(row: &Row, tolerance: f64) -> bool {
    row.ratio().is_some_and(|ratio| ratio.ln().abs() <= (1.0 + tolerance).ln())
}

/// The first doubt about the new runs, if the new runs are invalid.
fn why_invalid(new: &Record, row: &Row) -> String {
    match new.case(&row.case).and_then(|case| case.runs(&row.server)) {
        Some(runs) if row.new.is_none() => {
            let doubt = runs.trials.iter().flat_map(|trial| &trial.doubts).next();
            format!("no valid run: {}", doubt.map_or("no reason known", |doubt| doubt.what.as_str()))
        }
        _ => "no valid run in the baseline".to_owned(),
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.compared.fmt(f)?;
        for reason in &self.reasons {
            writeln!(f, "{reason}")?;
        }
        let verdict = match self.gate {
            Gate::Held => "held",
            Gate::Slower => "SLOWER than the baseline",
            Gate::Invalid => "INVALID, nothing follows",
            Gate::Failed => "FAILED, not everybody could be measured",
        };
        writeln!(f, "gate: {verdict} (exit code {})", self.gate.exit_code())
    }
}

#[cfg(test)]
mod tests;
