//! A bar chart of one figure of all servers of a case, for the top of a page of results. Rows are in ascending order of
//! the figure, in the colours of the page's lines. The names of the baseline, over every protocol, are bold. The A/A
//! row is left out. The chart is narrow enough for a phone.

use std::fmt::Write;

use super::style::Style;
use super::{escaped, opened};
use crate::bench::{CaseReport, Metric, ServerReport};

/// In pixels: the whole chart, the column of names, the longest bar, and the height of a row.
const WIDTH: u32 = 540;
const NAMES: u32 = 190;
const BAR_MAX: f64 = 240.0;
const ROW: usize = 24;
/// Pixels above the first row.
const HEADING: usize = 34;

/// The server's name without its protocol.
fn program(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// A bar chart of a case: a figure of each server with a valid run. The default for `metric` is the decisive one.
pub(crate) fn bars(case: &CaseReport, metric: Option<Metric>) -> Result<String, String> {
    let metric = metric.or(case.metrics.first().copied()).ok_or("the result has no figure")?;
    let baseline = case.servers.first().map(|server| server.name.as_str()).unwrap_or_default();
    let figure = |server: &ServerReport| server.medians.get(&metric).copied();
    let bar = |(nth, server)| Some((nth, server, figure(server)?));
    let mut bars: Vec<(usize, &ServerReport, f64)> = case.named().enumerate().filter_map(bar).collect();
    bars.sort_by(|one, other| one.2.total_cmp(&other.2));
    let largest = bars.iter().map(|(.., value)| *value).fold(0.0, f64::max);
    if largest <= 0.0 {
        return Err(format!("case {} has no figures of {}", case.name, metric.name()));
    }
    let better = if metric.larger_is_better() { "Longer" } else { "Shorter" };
    let (title, label) = (escaped(&case.title), metric.label());
    // If more is better, the wording has no unit.
    let name = if metric.larger_is_better() { label } else { metric.phrase().trim_end_matches(',') };
    let height = HEADING + bars.len() * ROW + 10;
    let mut out = opened(&format!("{label} of each server: {title}"), WIDTH, height);
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "<text x=\"12\" y=\"22\"><tspan font-size=\"15\" font-weight=\"bold\">{name}.</tspan> {better} is better.</text>"
    );
    for (nth, (number, server, value)) in bars.iter().enumerate() {
        let (name, top) = (server.name.as_str(), HEADING + nth * ROW);
        let colour = Style::of(*number).colour;
        let weight = if program(name) == program(baseline) { "bold" } else { "normal" };
        let width = (value.max(0.0) / largest * BAR_MAX).max(1.0);
        let (name, figure, text) = (escaped(name), metric.format(*value), top + 16);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\" font-weight=\"{weight}\">{name}</text>\
             <rect x=\"{NAMES}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{text}\" font-weight=\"{weight}\">{figure}</text>",
            NAMES - 8,
            top + 3,
            ROW - 6,
            f64::from(NAMES) + width + 6.0,
        );
    }
    out.push_str("</svg>\n");
    Ok(out)
}
