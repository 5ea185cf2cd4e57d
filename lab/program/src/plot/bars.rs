//! A bar chart of one figure of all servers of a case, for the top of a page of results. Rows are in ascending order of
//! the figure, in the colours of the page's lines. The names of the baseline, over every protocol, are bold. The A/A
//! row is left out. The chart is narrow enough for a phone.

use minijinja::{Value, context};

use super::style::Style;
use crate::bench::{CaseReport, Metric, ServerReport};
use crate::templates::render;

/// The server's name without its protocol.
fn program(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// A bar chart of a case: a figure of each server with a valid run. The default for `metric` is the decisive one.
pub(crate) fn bars(case: &CaseReport, metric: Option<Metric>) -> Result<String, String> {
    let metric = metric.or(case.metrics.first().copied()).ok_or("the result has no figure")?;
    let baseline = case.servers.first().map(|server| program(&server.name)).unwrap_or_default();
    let bar = |(nth, server): (usize, &'_ ServerReport)| {
        Some((nth, server.name.clone(), *server.medians.get(&metric)?))
    };
    let mut bars: Vec<(usize, String, f64)> = case.named().enumerate().filter_map(bar).collect();
    bars.sort_by(|one, other| one.2.total_cmp(&other.2));
    let largest = bars.last().map_or(0.0, |(.., value)| *value);
    if largest <= 0.0 {
        return Err(format!("case {} has no figures of {}", case.name, metric.name()));
    }
    let bar = |(nth, name, value): (usize, String, f64)| {
        let (weight, colour) =
            (if program(&name) == baseline { "bold" } else { "normal" }, Style::of(nth).colour);
        context! { name, weight, colour, figure => metric.format(value), share => value.max(0.0) / largest }
    };
    let bars: Vec<Value> = bars.into_iter().map(bar).collect();
    let label = metric.label();
    // If more is better, the wording has no unit.
    let (name, better) = match metric.larger_is_better() {
        true => (label, "Longer"),
        false => (metric.phrase().trim_end_matches(','), "Shorter"),
    };
    Ok(render("bars.xml", &context! { bars, label, name, better, title => case.title }) + "\n")
}
