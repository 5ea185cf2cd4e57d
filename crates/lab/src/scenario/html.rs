//! Results as one page that needs nothing else: what is to be said first, then the tables, the plots, what was published, and
//! where it was measured. No script, nothing to be loaded. It is made of what is in the files, so that one made again is the same.

use std::fmt::Write;

use super::drawn::{overviews, plots};
use super::kept::{Case, Kept, Runs};
use crate::bench::Metric;
use crate::plot::{self, Plot};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:98rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;\
background:#fff}h1,h2,h3{line-height:1.2}h2{margin-top:3rem;border-bottom:2px solid #d5dae0}h3{margin-top:2rem}\
p,dl,.say{max-width:60rem}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}\
th,td{padding:.3rem .8rem;text-align:left;border-bottom:1px solid #e5e8ec}td{font-variant-numeric:tabular-nums}\
.say{background:#f2f6fb;border-left:4px solid #2f6fb3;padding:.6rem 1rem;margin:1rem 0}.say p{margin:.3rem 0}\
.say .then{margin-left:1.5rem}.doubt{color:#9a3b00}dt{font-weight:600}dd{margin:0 0 .6rem}small{color:#59636e;white-space:nowrap}\
.plots{display:flex;flex-wrap:wrap;gap:.5rem 1rem}svg{max-width:100%;height:auto}";

/// A page of these results, in this order: of each what may be claimed, then each at length.
pub fn page(results: &[Kept]) -> String {
    let title = match results {
        [one] => one.scenario.question.clone(),
        several => format!("{} results", several.len()),
    };
    write_page_of(&title, |out| {
        let several = results.len() > 1;
        for (nth, kept) in results.iter().enumerate() {
            if several {
                let (name, question) = (escaped(&kept.scenario.name), escaped(&kept.scenario.question));
                write!(out, "<h3><a href=\"#r{nth}\">{name}</a>: {question}</h3>")?;
            }
            write_say(out, kept)?;
        }
        for (nth, kept) in results.iter().enumerate() {
            if several {
                let (name, began) = (escaped(&kept.scenario.name), escaped(&kept.began));
                write!(out, "<h2 id=\"r{nth}\">{name}, {began}</h2>")?;
            }
            write_result(out, kept)?;
        }
        Ok(())
    })
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

/// What is to be known first.
fn write_say(out: &mut String, kept: &Kept) -> std::fmt::Result {
    write!(out, "<div class=\"say\">")?;
    if kept.effort == "smoke" {
        write!(out, "<p>A look whether it works: one short run of each, from which nothing follows.</p>")?;
    }
    for case in &kept.report.cases {
        for (nth, line) in said(case).iter().enumerate() {
            let class = if nth == 0 { "" } else { " class=\"then\"" };
            write!(out, "<p{class}>{}</p>", escaped(line))?;
        }
    }
    for missing in &kept.report.missing {
        write!(out, "<p class=\"doubt\">{} couldn't be installed.</p>", escaped(missing))?;
    }
    write!(out, "</div>")
}

fn write_result(out: &mut String, kept: &Kept) -> std::fmt::Result {
    let scenario = &kept.scenario;
    let overviews = overviews(kept);
    if !overviews.is_empty() {
        write!(out, "<h3>All sizes</h3>")?;
        write_plots(out, overviews)?;
    }
    for case in &kept.report.cases {
        write_case(out, &scenario.name, case)?;
    }
    write!(out, "<h3>What was published</h3><p>{}</p>", escaped(&scenario.source))?;
    if !scenario.published.is_empty() {
        write!(out, "<table>")?;
        for published in &scenario.published {
            write!(out, "<tr><td>{}<td>{}", escaped(&published.who), escaped(&published.figure))?;
        }
        write!(out, "</table>")?;
    }
    write!(out, "<h3>What this is</h3><dl>")?;
    let what =
        [("Load", &scenario.load), ("Measured", &scenario.metric), ("Done otherwise", &scenario.repaired)];
    for (term, text) in what {
        write!(out, "<dt>{term}<dd>{}", escaped(text))?;
    }
    write!(out, "</dl><h3>Who, where and when</h3><table><tr><th>server<th>what<th>versions<th>settings")?;
    let listed = |map: &std::collections::BTreeMap<String, String>| {
        let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key} {value}")).collect();
        escaped(&pairs.join(", "))
    };
    for server in &kept.servers {
        let (name, about) = (escaped(&server.name), escaped(&server.about));
        let (versions, settings) = (listed(&server.versions), listed(&server.settings));
        write!(out, "<tr><td>{name}<td>{about}<td>{versions}<td>{settings}")?;
    }
    let machine = &kept.machine;
    let is_virtual = if machine.is_virtual { ", a virtual machine" } else { "" };
    write!(
        out,
        "</table><p>{}, {} cores, {:.1} GB{is_virtual}, Linux {}; congestion control {}. Began {}, took {:.0} s ({}). The server \
         on one core, the generator on another; a fresh process for each run, in alternating order. The format of the file \
         beside this one has the number {}.</p>",
        escaped(&machine.cpu),
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        escaped(&machine.kernel),
        escaped(&kept.report.congestion),
        escaped(&kept.began),
        kept.took_s,
        escaped(&kept.effort),
        kept.schema,
    )
}

/// In words, what may be claimed of the first server against each other one by the decisive figure, and whether it reached what
/// it was to reach.
fn said(case: &Case) -> Vec<String> {
    let (Some(metric), Some(first)) = (case.known_metrics().next(), case.servers.first()) else {
        return Vec::new();
    };
    let Some(own) = first.median(metric) else {
        return vec![format!("{}: no sound run of {}.", case.title, first.name)];
    };
    let mut lines =
        vec![format!("{}. {}: {} {}.", case.title, first.name, metric.label(), metric.format(own))];
    for verdict in &case.verdicts {
        if let (Some(metric), Some(_)) = (Metric::of_name(&verdict.metric), verdict.measured) {
            let most = if metric.larger_is_better() { "at least" } else { "at most" };
            let reached = if verdict.reached { "reached" } else { "missed" };
            let bound = metric.format(verdict.bound);
            lines.push(format!("{reached}: {} of {most} {bound}.", metric.label()));
        }
    }
    lines.extend(case.servers[1..].iter().map(|server| said_of(server, metric, &first.name)));
    lines
}

fn said_of(server: &Runs, metric: Metric, first: &str) -> String {
    let name = &server.name;
    let Some(figure) = server.median(metric) else { return format!("{name}: no sound run.") };
    let figure = metric.format(figure);
    match server.comparison(metric) {
        Some(comparison) if comparison.differs => {
            let ratio = comparison.ratio.median.unwrap_or(f64::NAN);
            let better = (ratio > 1.0) == metric.larger_is_better();
            let word = if better { "better" } else { "worse" };
            format!("{name}: {figure}; {first} has {ratio:.2} of that, which is {word}.")
        }
        Some(comparison) => match comparison.resolution {
            Some(least) if least < 10.0 => {
                let percent = ((least - 1.0) * 100.0).ceil();
                format!("{name}: {figure}; no difference shown. One of {percent:.0} % would have been.")
            }
            _ => format!("{name}: {figure}; no difference shown, with so few runs."),
        },
        None => format!("{name}: {figure}; no pair of sound runs to compare."),
    }
}

fn write_case(out: &mut String, scenario: &str, case: &Case) -> std::fmt::Result {
    let metrics: Vec<Metric> = case.known_metrics().collect();
    write!(out, "<h3>{}</h3><table><tr><th>server", escaped(&case.title))?;
    for metric in &metrics {
        write!(out, "<th>{}<th><small>ratio</small>", metric.label())?;
    }
    write!(out, "<th>sound")?;
    for server in &case.servers {
        write!(out, "<tr><td>{}", escaped(&server.name))?;
        for metric in &metrics {
            let figure = server.median(*metric).map_or("–".to_owned(), |value| metric.format(value));
            write!(out, "<td>{figure}<td>")?;
            if let Some(comparison) = server.comparison(*metric) {
                let ratio = comparison.ratio;
                let [median, low, high] =
                    [ratio.median, ratio.low, ratio.high].map(|value| value.unwrap_or(f64::NAN));
                let mark = if comparison.differs { "*" } else { "" };
                write!(out, "<small>{median:.2} [{low:.2}, {high:.2}]{mark}</small>")?;
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
    write_plots(out, plots(scenario, case))?;
    for server in &case.servers {
        for (nth, trial) in server.trials.iter().enumerate() {
            let (name, nth) = (escaped(&server.name), nth + 1);
            for doubt in &trial.doubts {
                let what = if doubt.latency_only { "times invalid" } else { "invalid" };
                write!(out, "<p class=\"doubt\">{name}, run {nth}: {what}: {}</p>", escaped(&doubt.what))?;
            }
            if let Some(why) = &trial.unmeasured {
                write!(out, "<p><small>{name}, run {nth}: {}</small></p>", escaped(why))?;
            }
        }
    }
    Ok(())
}

/// Plots side by side, as far as there is room.
pub(super) fn write_plots(out: &mut String, plots: Vec<Plot>) -> std::fmt::Result {
    write!(out, "<div class=\"plots\">")?;
    for plot in plots {
        // Within a page nobody has to be told what an SVG is.
        out.push_str(&plot::svg("", &[plot]).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1));
    }
    write!(out, "</div>")
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
