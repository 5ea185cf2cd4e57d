//! Plots of a result: the curves of each case, and the figures of cases that differ only in the number of connections, over that
//! number. Published figures ([`super::marks`]) are added if the axes are the same.

use super::declared::Over;
use super::marks::marks;
use super::record::Record;
use crate::bench::{CaseReport, Curve, ServerReport};
use crate::plot::{Line, Plot, Scale};

/// Maximum number of figures drawn over connections for a family of cases, the decisive one first.
const OVERVIEWS_MAX: usize = 6;

/// The plots of one case.
pub(super) fn plots(scenario: &str, case: &CaseReport) -> Vec<Plot> {
    let plot_of = |curve: Curve| {
        let (across, up) = curve.axes();
        let (of_across, of_up) = scales(curve);
        let lines = lines(&case.servers, |runs| runs.curve(curve).map(<[_]>::to_vec).unwrap_or_default());
        let mut plot =
            Plot::new(curve.title(), (across.to_owned(), of_across), (up.to_owned(), of_up), lines);
        plot.marks = marks(scenario, &case.name, Over::Curve(curve));
        plot.limit = curve.limit();
        plot
    };
    Curve::ALL.iter().copied().map(plot_of).collect()
}

/// The scales of a curve's axes.
fn scales(curve: Curve) -> (Scale, Scale) {
    match curve {
        Curve::Latency => (Scale::Percentile, Scale::Log),
        Curve::AgeOverTime => (Scale::Linear, Scale::Log),
        Curve::AgeOverClients => (Scale::Log, Scale::Log),
        _ => (Scale::Linear, Scale::Linear),
    }
}

/// The figures of families of cases over their connections.
pub(super) fn overviews(kept: &Record) -> Vec<Plot> {
    let mut families: Vec<(String, Vec<&CaseReport>)> = Vec::new();
    for case in kept.report.cases.iter().filter(|case| case.connections.is_some()) {
        let name = family(&case.name);
        match families.iter_mut().find(|(known, first)| *known == name && first[0].metrics == case.metrics) {
            Some((_, cases)) => cases.push(case),
            None => families.push((name, vec![case])),
        }
    }
    let mut plots = Vec::new();
    for (name, cases) in families.iter().filter(|(_, cases)| cases.len() > 1) {
        for metric in cases[0].metrics.iter().copied().take(OVERVIEWS_MAX) {
            let lines = lines(&cases[0].servers, |runs| {
                let figure = |case: &&CaseReport| {
                    Some((case.connections? as f64, *case.runs(&runs.name)?.medians.get(&metric)?))
                };
                cases.iter().filter_map(figure).collect()
            });
            let across = ("connections".to_owned(), Scale::Linear);
            let up = (metric.label_with_unit(), Scale::Linear);
            let mut plot = Plot::new(format!("{} ({name})", metric.label()), across, up, lines);
            plot.marks = marks(&kept.scenario.name, name, Over::Connections(metric));
            plots.push(plot);
        }
    }
    plots
}

/// Common name of cases that differ in size: `room-1300-nginx` belongs to `room-nginx`.
fn family(case: &str) -> String {
    let is_size = |part: &&str| !part.starts_with(|first: char| first.is_ascii_digit());
    case.split('-').filter(is_size).collect::<Vec<&str>>().join("-")
}

/// One line per server, without the baseline's second name.
fn lines(servers: &[ServerReport], points: impl Fn(&ServerReport) -> Vec<(f64, f64)>) -> Vec<Line> {
    let first = servers.first().map(|first| format!("{} again", first.name));
    let drawn = servers.iter().enumerate().filter(|(_, runs)| Some(&runs.name) != first.as_ref());
    drawn.map(|(number, runs)| Line { name: runs.name.clone(), number, points: points(runs) }).collect()
}

#[cfg(test)]
mod tests;
