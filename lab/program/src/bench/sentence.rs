//! Verdicts in sentences: "Better than ws8: stentor serves 2.1× its round trips (1.8–2.4×) at 0.45× its CPU per message; p99 latency
//! inconclusive: the generator was busy".

use std::fmt;

use super::report::{Bound, CaseReport, Comparison, Report, ServerReport, Verdict};
use super::{Interval, Metric};

impl CaseReport {
    /// A sentence for each server beside the first.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let (Some(first), Some(main)) = (self.servers.first(), self.metrics.first()) else {
            return Vec::new();
        };
        let Some(own) = first.medians.get(main) else {
            return vec![format!("{}: no valid run ({}).", first.name, reason(first, *main))];
        };
        let rivals: Vec<String> =
            self.named().skip(1).map(|server| format!("{}.", of_server(self, first, server))).collect();
        if rivals.is_empty() {
            vec![format!("{}: {} {}.", first.name, main.label(), main.format(*own))]
        } else {
            rivals
        }
    }

    pub(crate) fn goals(&self) -> Vec<String> {
        self.verdicts.iter().filter_map(of_goal).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Ratio: the first server's figure divided by this one's, and whether that is better or worse."
        )?;
        for case in &self.cases {
            writeln!(f, "\n{case}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.title)?;
        for line in self.sentences() {
            writeln!(f, "  {line}")?;
        }
        write!(f, "{}", self.table())?;
        for line in self.goals().into_iter().chain(self.remarks()) {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// Compares the first server with this one.
fn of_server(case: &CaseReport, first: &ServerReport, other: &ServerReport) -> String {
    if other.trials.iter().all(|trial| trial.figures.is_empty()) {
        let why = case.metrics.first().map(|main| reason(other, *main)).unwrap_or_default();
        return format!("{}: no valid run ({why})", other.name);
    }
    let (mut shown, mut open) = (Vec::new(), Vec::new());
    for (nth, metric) in case.metrics.iter().enumerate() {
        match other.comparisons.get(metric) {
            Some(comparison) if comparison.differs => shown.push((*metric, comparison)),
            // This is a policy, neither good nor bad.
            _ if *metric == Metric::CutOff => {}
            comparison if nth < 4 => open.push((*metric, comparison)),
            _ => {}
        }
    }
    let (ours, theirs) = (&first.name, &other.name);
    let mut sentence = match &shown[..] {
        [] => format!("No difference shown between {ours} and {theirs}"),
        [(main, comparison), rest @ ..] => {
            let verb = match main {
                Metric::Rate => "serves",
                Metric::Deliveries => "delivers",
                Metric::Clients | Metric::Connections => "holds",
                metric if metric.is_time() => "has",
                _ => "uses",
            };
            let what = match main {
                Metric::Deliveries => "messages",
                metric => metric.phrase(),
            };
            let mut sentence = match direction(&shown, case.metrics.first() == Some(main)) {
                Some(direction) => {
                    format!("{direction} {theirs}: {ours} {verb} {} its {what}", multiple(comparison))
                }
                None => format!("{ours} {verb} {} {theirs}'s {what}", multiple(comparison)),
            };
            let Interval { low, high, .. } = comparison.ratio;
            match comparison.bound {
                None => sentence += &format!(" ({}–{}×)", short(low), short(high)),
                Some(_) => sentence += " (the generator was at its limit)",
            }
            let rest: Vec<String> = rest
                .iter()
                .map(|(metric, comparison)| format!("{} its {}", multiple(comparison), metric.phrase()))
                .collect();
            if !rest.is_empty() {
                sentence += &format!(" at {}", enumerated(&rest));
            }
            sentence
        }
    };
    for open in undecided(case, &open, first, other) {
        sentence += &format!("; {open}");
    }
    sentence
}

/// The direction in which the first server differs by these metrics. `is_decisive` if the decisive metric is among
/// them. `None` if they have no better direction.
fn direction(shown: &[(Metric, &Comparison)], is_decisive: bool) -> Option<&'static str> {
    let has = |better: bool| shown.iter().any(|(metric, shown)| shown.is_better(*metric) == Some(better));
    match (has(true), has(false), is_decisive) {
        (true, false, true) => Some("Better than"),
        (true, false, false) => Some("Partly better than"),
        (false, true, true) => Some("Worse than"),
        (false, true, false) => Some("Partly worse than"),
        (true, true, _) => Some("Better and worse than"),
        (false, false, _) => None,
    }
}

/// Lists the metrics that differ little, and then the undecided ones by reason.
fn undecided(
    case: &CaseReport,
    open: &[(Metric, Option<&Comparison>)],
    first: &ServerReport,
    other: &ServerReport,
) -> Vec<String> {
    let mut alike = Vec::new();
    // The cause `None` is noise.
    let mut causes: Vec<(Option<String>, Vec<String>)> = Vec::new();
    let mut percents: Vec<f64> = Vec::new();
    for (metric, comparison) in open {
        let mut what = metric.phrase().to_owned();
        let why = match comparison {
            None => {
                let culprit = if first.valid(*metric).is_empty() { first } else { other };
                Some(reason(culprit, *metric))
            }
            Some(Comparison { bound: Some(_), .. }) => Some("the generator was at its limit".to_owned()),
            Some(Comparison { resolution: None, .. }) => Some(few(case, *metric, other)),
            Some(Comparison { resolution: Some(least), ratio, .. }) => {
                let (percent, ratio) = ((least - 1.0) * 100.0, ratio.median);
                if *least <= 1.1 {
                    alike.push(format!("{what} within {:.0} % ({ratio:.2}×)", percent.max(1.0)));
                    continue;
                }
                what += &format!(" ({ratio:.2}×)");
                percents.push(percent);
                None
            }
        };
        match causes.iter_mut().find(|(known, _)| *known == why) {
            Some((_, others)) => others.push(what),
            None => causes.push((why, vec![what])),
        }
    }
    percents.sort_by(f64::total_cmp);
    let noise = match &percents[..] {
        [least, .., most] => format!("minimum detectable difference {least:.0} to {most:.0} %"),
        _ => format!("minimum detectable difference {:.0} %", percents.iter().sum::<f64>()),
    };
    let said = |(why, metrics): &(Option<String>, Vec<String>)| {
        format!("{} inconclusive: {}", enumerated(metrics), why.as_ref().unwrap_or(&noise))
    };
    alike.extend(causes.iter().map(said));
    alike
}

/// The reason why there are too few runs to compare the first server, which was measured twice, with this one.
fn few(case: &CaseReport, metric: Metric, other: &ServerReport) -> String {
    let mut compared = case.servers.first().into_iter().chain([other]).chain(case.servers.last());
    match compared.find(|server| server.valid(metric).len() < server.trials.len()) {
        Some(server) => format!("too few valid runs ({}: {})", server.name, reason(server, metric)),
        None => "too few runs".to_owned(),
    }
}

/// "one, two and three".
fn enumerated(names: &[String]) -> String {
    match names.split_last() {
        Some((last, others @ [_, ..])) => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// The reason why a server has no valid figure.
fn reason(server: &ServerReport, metric: Metric) -> String {
    let Some(doubt) = server.trials.iter().flat_map(|trial| &trial.doubts).next() else {
        let unmeasured = server.trials.iter().find_map(|trial| trial.unmeasured.as_deref());
        return unmeasured.map_or(format!("{} wasn't measured", metric.phrase()), str::to_owned);
    };
    let own_words = || doubt.what.lines().next().unwrap_or_default().trim_end_matches(':');
    doubt.cause.phrase().unwrap_or_else(own_words).to_owned()
}

fn multiple(comparison: &Comparison) -> String {
    let bound = match comparison.bound {
        Some(Bound::AtLeast) => "at least ",
        Some(Bound::AtMost) => "at most ",
        _ => "",
    };
    format!("{bound}{}×", short(comparison.ratio.median))
}

/// A ratio with two significant digits.
fn short(ratio: f64) -> String {
    match ratio {
        ..1.0 => format!("{ratio:.2}"),
        1.0..10.0 => format!("{ratio:.1}"),
        _ => super::metric::grouped(ratio, 0),
    }
}

/// A sentence about a goal.
fn of_goal(verdict: &Verdict) -> Option<String> {
    let metric = verdict.metric?;
    let figure = |value: f64| match &verdict.against {
        Some(against) => format!("{:.2}× {against}'s", value),
        None => metric.format(value),
    };
    let most = if metric.larger_is_better() { "at least" } else { "at most" };
    let phrase = metric.phrase().trim_end_matches(',');
    let goal = format!("{phrase}, {most} {}", figure(verdict.bound));
    Some(match (verdict.measured, verdict.reached) {
        (None, _) => format!("Goal not measured: {goal}."),
        (Some(measured), true) => format!("Goal reached: {goal}. Result: {}.", figure(measured)),
        (Some(measured), false) => format!("Goal MISSED: {goal}. Result: {}.", figure(measured)),
    })
}

#[cfg(test)]
mod tests;
