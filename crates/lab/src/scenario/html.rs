//! A record as one page that needs nothing else: what is to be said first, then the tables, the curves, what was published,
//! and where it was measured. No script, nothing to be loaded.

use std::fmt::Write;

use super::marks::{Mark, marks};
use super::{Effort, Record};
use crate::bench::{CaseReport, Curve, ServerReport};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;\
background:#fff}h1{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid #d5dae0}table{border-collapse:collapse;\
margin:1rem 0;display:block;overflow-x:auto}th,td{padding:.3rem .8rem;text-align:left;border-bottom:1px solid #e5e8ec}\
td{font-variant-numeric:tabular-nums}.say{background:#f2f6fb;border-left:4px solid #2f6fb3;padding:.6rem 1rem}\
.doubt{color:#9a3b00}dt{font-weight:600}dd{margin:0 0 .6rem}small{color:#59636e;white-space:nowrap}svg{max-width:100%;height:auto}";

/// Of the servers in turn, told apart also without colours by their labels.
const COLOURS: [&str; 8] =
    ["#1f6fb4", "#c8501e", "#2b8a3e", "#8a3ea8", "#b08a00", "#007c85", "#b3305f", "#5b6670"];

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 45.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 12.0;
/// Of published figures in turn.
const MARKS: [&str; 4] = ["◆", "▲", "■", "●"];
/// Labels across.
const TICKS_MAX: usize = 9;
/// Points up to which each is drawn.
const DOTS_MAX: usize = 30;

/// See the module's documentation.
pub(super) fn page(record: &Record) -> String {
    write_page_of(record.scenario.question, |out| write_record(out, record))
}

/// A page with this title and heading.
pub(super) fn write_page_of(title: &str, body: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
    );
    // Writing to a string doesn't fail.
    let _ = body(&mut page);
    page.push_str("</html>");
    page
}

fn write_record(out: &mut String, record: &Record) -> std::fmt::Result {
    let scenario = &record.scenario;
    write!(out, "<div class=\"say\">")?;
    if record.effort == Effort::Smoke {
        write!(out, "<p>A look whether it works: one short run of each, from which nothing follows.</p>")?;
    }
    for case in &record.report.cases {
        for line in said(case) {
            write!(out, "<p>{}</p>", escaped(&line))?;
        }
    }
    for missing in &record.report.missing {
        write!(out, "<p class=\"doubt\">{} couldn't be installed.</p>", escaped(missing))?;
    }
    write!(out, "</div>")?;
    for case in &record.report.cases {
        write_case(out, scenario.name, case)?;
    }
    write!(out, "<h2>What was published</h2><p>{}</p>", escaped(scenario.source))?;
    if !scenario.published.is_empty() {
        write!(out, "<table>")?;
        for published in scenario.published {
            write!(out, "<tr><td>{}<td>{}", escaped(published.who), escaped(published.figure))?;
        }
        write!(out, "</table>")?;
    }
    write!(out, "<h2>What this is</h2><dl>")?;
    let what =
        [("Load", scenario.load), ("Measured", scenario.metric), ("Done otherwise", scenario.repaired)];
    for (term, text) in what {
        write!(out, "<dt>{term}<dd>{}", escaped(text))?;
    }
    write!(out, "</dl><h2>Who, where and when</h2><table><tr><th>server<th>what<th>versions<th>settings")?;
    let listed = |map: &std::collections::BTreeMap<String, String>| {
        let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key} {value}")).collect();
        escaped(&pairs.join(", "))
    };
    for server in &record.servers {
        let (name, about) = (escaped(&server.name), escaped(&server.about));
        write!(
            out,
            "<tr><td>{name}<td>{about}<td>{}<td>{}",
            listed(&server.versions),
            listed(&server.settings)
        )?;
    }
    let machine = &record.machine;
    write!(
        out,
        "</table><p>{}, {} cores, {:.1} GB, Linux {}; congestion control {}. Began {}, took {:.0} s ({:?}). The server on one \
         core, the generator on another; a fresh process for each run, in alternating order. The format of the file beside \
         this one has the number {}.</p>",
        escaped(&machine.cpu),
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        escaped(&machine.kernel),
        escaped(&record.report.congestion),
        record.began,
        record.took_s,
        record.effort,
        record.schema,
    )
}

/// In words, what may be claimed of the first server against each other one by the decisive figure.
fn said(case: &CaseReport) -> Vec<String> {
    let (Some(metric), Some(first)) = (case.metrics.first(), case.servers.first()) else { return Vec::new() };
    let Some(own) = first.medians.get(metric) else {
        return vec![format!("{}: no sound run of {}.", case.title, first.name)];
    };
    let mut lines =
        vec![format!("{}. {}: {} {}.", case.title, first.name, metric.label(), metric.format(*own))];
    for server in &case.servers[1..] {
        let name = &server.name;
        let Some(figure) = server.medians.get(metric) else {
            lines.push(format!("{name}: no sound run."));
            continue;
        };
        let figure = metric.format(*figure);
        lines.push(match server.comparisons.get(metric) {
            Some(comparison) if comparison.differs => {
                let ratio = comparison.ratio.median;
                let better = (ratio > 1.0) == metric.larger_is_better();
                let word = if better { "better" } else { "worse" };
                let name_of_first = &first.name;
                format!("{name}: {figure}; {name_of_first} has {ratio:.2} of that, which is {word}.")
            }
            Some(comparison) => match comparison.resolution {
                Some(least) if least < 10.0 => {
                    let percent = ((least - 1.0) * 100.0).ceil();
                    format!("{name}: {figure}; no difference shown. One of {percent:.0} % would have been.")
                }
                _ => format!("{name}: {figure}; no difference shown, with so few runs."),
            },
            None => format!("{name}: {figure}; no pair of sound runs to compare."),
        });
    }
    lines
}

fn write_case(out: &mut String, scenario: &str, case: &CaseReport) -> std::fmt::Result {
    write!(out, "<h2>{}</h2><table><tr><th>server", escaped(&case.title))?;
    for metric in &case.metrics {
        write!(out, "<th>{}<th><small>ratio</small>", metric.label())?;
    }
    write!(out, "<th>sound")?;
    for server in &case.servers {
        write!(out, "<tr><td>{}", escaped(&server.name))?;
        for metric in &case.metrics {
            let figure = server.medians.get(metric).map_or("–".to_owned(), |value| metric.format(*value));
            write!(out, "<td>{figure}<td>")?;
            if let Some(comparison) = server.comparisons.get(metric) {
                let ratio = comparison.ratio;
                let mark = if comparison.differs { "*" } else { "" };
                write!(
                    out,
                    "<small>{:.2} [{:.2}, {:.2}]{mark}</small>",
                    ratio.median, ratio.low, ratio.high
                )?;
            }
        }
        let sound = server.trials.iter().filter(|trial| trial.doubts.is_empty()).count();
        write!(out, "<td>{sound}/{}", server.trials.len())?;
    }
    write!(
        out,
        "</table><p><small>Ratio: the first server's figure divided by this one's, the median of pairs of runs with its \
         interval; * a difference that may be claimed.</small></p>"
    )?;
    for curve in Curve::ALL {
        write_plot(out, curve, &case.servers, &marks(scenario, case.name, curve))?;
    }
    for server in &case.servers {
        for (nth, trial) in server.trials.iter().enumerate() {
            for doubt in &trial.doubts {
                let what = if doubt.latency_only { "times invalid" } else { "invalid" };
                let (name, nth, why) = (escaped(&server.name), nth + 1, escaped(&doubt.what));
                write!(out, "<p class=\"doubt\">{name}, run {nth}: {what}: {why}</p>")?;
            }
        }
    }
    Ok(())
}

/// What is drawn of one server.
pub(super) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// One curve of every server: that of its sound run in the middle.
fn write_plot(out: &mut String, curve: Curve, servers: &[ServerReport], marks: &[Mark]) -> std::fmt::Result {
    let mut lines: Vec<Line> = Vec::new();
    for server in servers {
        let sound = server.trials.iter().filter(|trial| curve.stands(&trial.doubts));
        let runs: Vec<&Vec<(f64, f64)>> = sound.filter_map(|trial| trial.curves.get(&curve)).collect();
        if let Some(points) = runs.get(runs.len() / 2) {
            lines.push(Line { name: server.name.clone(), points: (*points).clone() });
        }
    }
    // Percentiles stand side by side: between them there is no scale.
    let mut ticks: Vec<(f64, String)> = Vec::new();
    if curve == Curve::Latency
        && let Some(first) = lines.first()
    {
        let percents = first.points.iter().enumerate();
        ticks = percents.map(|(nth, (percent, _))| (nth as f64, format!("{percent}"))).collect();
        for line in &mut lines {
            for (nth, point) in line.points.iter_mut().enumerate() {
                point.0 = nth as f64;
            }
        }
    }
    write_plot_of(out, curve.axes(), &lines, &ticks, curve.limit(), marks)
}

/// Lines over each other, with `ticks` across, or even ones where there are none, and a line across at `limit`.
pub(super) fn write_plot_of(
    out: &mut String,
    axes: (&str, &str),
    lines: &[Line],
    ticks: &[(f64, String)],
    limit: Option<f64>,
    marks: &[Mark],
) -> std::fmt::Result {
    if lines.iter().all(|line| line.points.is_empty()) {
        return Ok(());
    }
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    // What is far above all that was measured (with a smaller budget than was published) would leave nothing to be seen of it.
    let marks: Vec<Mark> =
        marks.iter().filter(|mark| limit.is_some() || mark.at.1 <= highest * 1.5).copied().collect();
    let greatest = |of: fn(&(f64, f64)) -> f64| {
        let measured = lines.iter().flat_map(|line| line.points.iter().map(of));
        measured.chain(marks.iter().map(|mark| of(&mark.at))).fold(0.0, f64::max).max(1e-9)
    };
    let across_max = greatest(|point| point.0);
    let across_max = if ticks.is_empty() { rounded_up(across_max) } else { across_max };
    // Beyond the line that decides, it doesn't matter how far.
    let up_max = limit.map_or(rounded_up(greatest(|point| point.1)), |limit| limit * 2.0);
    let x = |across: f64| LEFT + across / across_max * (WIDTH - LEFT - RIGHT);
    let y = |up: f64| HEIGHT - BOTTOM - (up / up_max).min(1.0) * (HEIGHT - BOTTOM - TOP);
    let (across, up) = axes;
    write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{up} over {across}\" font-size=\"12\" \
         fill=\"#444\">"
    )?;
    for tenth in 0..=4 {
        let value = up_max * f64::from(tenth) / 4.0;
        let at = y(value);
        write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e0e4e8\"/><text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            short(value)
        )?;
    }
    let even = (0..=4).map(|nth| {
        let value = across_max * f64::from(nth) / 4.0;
        (value, short(value))
    });
    let even: Vec<(f64, String)> = if ticks.is_empty() { even.collect() } else { Vec::new() };
    // As many labels as there is room for.
    let every = ticks.len().div_ceil(TICKS_MAX).max(1);
    for (at, label) in ticks.iter().step_by(every).chain(&even) {
        let (at, down) = (x(*at), HEIGHT - BOTTOM + 16.0);
        write!(out, "<text x=\"{at:.1}\" y=\"{down:.1}\" text-anchor=\"middle\">{}</text>", escaped(label))?;
    }
    write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{across}</text><text x=\"14\" y=\"{:.1}\" \
         text-anchor=\"middle\" transform=\"rotate(-90 14 {:.1})\">{up}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0
    )?;
    if let Some(limit) = limit {
        let at = y(limit);
        let end = WIDTH - RIGHT;
        write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#c00\" stroke-dasharray=\"5 4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#c00\">{}</text>",
            end - 4.0,
            at - 4.0,
            short(limit)
        )?;
    }
    for (nth, line) in lines.iter().enumerate() {
        let colour = COLOURS[nth % COLOURS.len()];
        let at = |(across, up): &(f64, f64)| (x(*across), y(*up));
        let drawn: Vec<String> = line.points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let label = TOP + 14.0 + 18.0 * nth as f64;
        write!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/><text x=\"{:.1}\" \
             y=\"{label:.1}\" fill=\"{colour}\">{}</text>",
            drawn.join(" "),
            WIDTH - RIGHT + 10.0,
            escaped(&line.name)
        )?;
        // Few points are seen as such; so is one alone, which is no line.
        if line.points.len() <= DOTS_MAX {
            for (x, y) in line.points.iter().map(at) {
                write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>")?;
            }
        }
    }
    for (nth, Mark { who, at: (across, up) }) in marks.iter().enumerate() {
        let (x, y) = (x(*across), y(*up));
        let label = TOP + 14.0 + 18.0 * (lines.len() + nth) as f64;
        let sign = MARKS[nth % MARKS.len()];
        write!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#111\">{sign}</text><text x=\"{:.1}\" \
             y=\"{label:.1}\" fill=\"#111\">{sign} {}</text>",
            y + 4.0,
            WIDTH - RIGHT + 10.0,
            escaped(who)
        )?;
    }
    write!(out, "</svg>")
}

/// The end of an axis whose quarters are easily read.
fn rounded_up(value: f64) -> f64 {
    let ten = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0]
        .into_iter()
        .map(|digit| digit * ten)
        .find(|end| *end >= value)
        .unwrap_or(10.0 * ten)
}

/// A figure at an axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        value if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_figures() {
        let check =
            |value: f64, expect: f64| assert!((rounded_up(value) / expect - 1.0).abs() < 1e-9, "{value}");
        check(171_000.0, 200_000.0);
        check(41.0, 60.0);
        check(0.75, 0.8);
        check(9.0, 10.0);
        check(1000.0, 1000.0);
    }

    #[test]
    fn published_points_are_drawn_where_they_belong() {
        let draw = |highest: f64| {
            let line = Line { name: "<one>".into(), points: vec![(0.0, 0.0), (10.0, highest)] };
            let mark = Mark { who: "then", at: (5.0, 100.0) };
            let mut out = String::new();
            write_plot_of(&mut out, ("across", "up"), &[line], &[], None, &[mark]).unwrap();
            assert!(out.contains("&lt;one&gt;") && !out.contains("<one>"), "{out}");
            out.contains("then")
        };
        assert!(draw(90.0));
        assert!(!draw(1.0));
    }
}
