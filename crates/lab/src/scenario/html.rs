//! Results as one page that needs nothing else: the warnings and the answer first, then a chart, a table and curves of each case,
//! what was published, and, folded, how it was measured. No script, nothing to be loaded. It is made of what is in the files, so
//! that one made again is the same.

use super::drawn::{overviews, plots};
use super::record::{Record, listed};
use crate::bench::{CaseReport, Effort, warnings};
use crate::plot::{self, Plot};
use crate::table::{Table, escaped};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;\
background:#fff}h1,h2,h3{line-height:1.2}h2{margin-top:3rem;border-bottom:2px solid #d5dae0}a{color:#0b5394}\
table{border-collapse:collapse}.scroll{overflow-x:auto;margin:1rem 0}th,td{padding:.3rem .8rem;text-align:left;\
border-bottom:1px solid #e5e8ec;vertical-align:top}.figure{font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}th[scope=row]{white-space:nowrap}\
.answer{background:#f2f6fb;border-left:4px solid #0072b2;padding:.6rem 1rem;margin:1rem 0}.answer p{margin:.3rem 0}\
.warning{background:#fff4e5;border-left:4px solid #9a3b00;padding:.6rem 1rem;margin:1rem 0}.warning p{margin:.3rem 0}\
dt{font-weight:600}dd{margin:0 0 .6rem}small,.meta{color:#4d5661}summary{cursor:pointer;font-weight:600;padding:.4rem 0}\
svg{max-width:100%;height:auto;display:block;margin:.5rem 0}:focus-visible{outline:3px solid #0072b2;outline-offset:2px}\
@media(max-width:30rem){body{margin:.5rem auto;padding:0 .6rem}th,td{padding:.3rem .4rem}h1{font-size:1.4rem}svg{min-width:34rem}}\
@media print{body{max-width:none;margin:0}details>*{display:block}h2,h3,svg,tr{break-inside:avoid}.scroll{overflow:visible}}";

/// A page of these results: of each the answer, then each at length.
pub fn page(results: &[Record]) -> String {
    let [record] = results else {
        let mut body = String::new();
        for (nth, record) in results.iter().enumerate() {
            let (name, question) = (escaped(&record.scenario.name), escaped(&record.scenario.question));
            body += &format!("<h3><a href=\"#r{nth}\">{name}</a>: {question}</h3>{}", answer(record));
        }
        for (nth, record) in results.iter().enumerate() {
            let (name, began) = (escaped(&record.scenario.name), escaped(&record.began));
            body += &format!("<h2 id=\"r{nth}\">{name}, {began}</h2>{}", at_length(record));
        }
        return page_of(&format!("{} results", results.len()), &body);
    };
    let body = format!("{}{}{}", measured_on(record), answer(record), at_length(record));
    page_of(&record.scenario.question, &body)
}

/// A page with this title and heading.
pub(super) fn page_of(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style><main><h1>{title}</h1>{body}</main></html>"
    )
}

/// Paragraphs in a box of this class; nothing where there are none.
pub(super) fn boxed(class: &str, lines: &[String]) -> String {
    let paragraphs: String = lines.iter().map(|line| format!("<p>{}</p>", escaped(line))).collect();
    if lines.is_empty() { String::new() } else { format!("<div class=\"{class}\">{paragraphs}</div>") }
}

/// Where and when, in one line.
fn measured_on(record: &Record) -> String {
    let machine = &record.machine;
    let kind = if machine.is_virtual { "virtual machine" } else { "machine" };
    let effort = match record.effort {
        Effort::Smoke => "a smoke run",
        Effort::Quick => "a quick run",
        Effort::Full => "a full run",
    };
    format!(
        "<p class=\"meta\">{}, {effort} of {:.0} s on a {kind} with {} cores ({}).</p>",
        escaped(&record.began),
        record.took_s,
        machine.cores,
        escaped(&machine.cpu)
    )
}

/// What disturbed the runs, and what they show.
fn answer(record: &Record) -> String {
    let mut warnings = warnings(&record.report);
    if record.effort == Effort::Smoke {
        warnings.insert(
            0,
            "A smoke run shows that everything works. Nothing follows from its figures.".to_owned(),
        );
    }
    warnings.extend(record.report.missing.iter().map(|name| format!("{name} couldn't be installed.")));
    let of_case = |case: &CaseReport| {
        let lines: Vec<String> = case.sentences().into_iter().chain(case.goals()).collect();
        format!("<p><b>{}</b></p>{}", escaped(&case.title), boxed("answer", &lines))
    };
    let answers: String = record.report.cases.iter().map(of_case).collect();
    boxed("warning", &warnings) + &answers
}

fn at_length(record: &Record) -> String {
    let mut out = String::new();
    let overviews = overviews(record);
    if !overviews.is_empty() {
        out += &format!("<h3>All sizes</h3>{}", drawn(overviews));
    }
    for case in &record.report.cases {
        out += &of_case(&record.scenario.name, case);
    }
    let scenario = &record.scenario;
    if !scenario.published.is_empty() {
        let mut table = Table::new(["published for", "figure"]);
        scenario.published.iter().for_each(|one| table.push([&one.who, &one.figure]));
        out += &format!("<h3>What was published</h3><p>{}</p>{}", escaped(&scenario.source), table.html());
    }
    out + &how(record)
}

fn of_case(scenario: &str, case: &CaseReport) -> String {
    let remarks: String = case.remarks().iter().map(|line| format!("<li>{}", escaped(line))).collect();
    let remarks = match case.remarks().len() {
        0 => String::new(),
        count => {
            format!("<details><summary>{count} remarks on single runs</summary><ul>{remarks}</ul></details>")
        }
    };
    format!(
        "<h3>{}</h3>{}{}<p><small>Ratio: the first server's figure divided by this one's, the median of pairs of runs, with its \
         interval. * marks a difference.</small></p>{}{remarks}",
        escaped(&case.title),
        inline(&plot::bars(case, None).unwrap_or_default()),
        case.table().html(),
        drawn(plots(scenario, case)),
    )
}

/// How it was measured, folded.
fn how(record: &Record) -> String {
    let (scenario, machine) = (&record.scenario, &record.machine);
    let mut servers = Table::new(["server", "what", "versions", "settings"]);
    for server in &record.servers {
        servers.push([&server.name, &server.about, &listed(&server.versions), &listed(&server.settings)]);
    }
    let terms: String = [
        ("Load", &scenario.load),
        ("Figures", &scenario.metric),
        ("Differences to the original", &scenario.repaired),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .map(|(term, text)| format!("<dt>{term}<dd>{}", escaped(text)))
    .collect();
    format!(
        "<details><summary>How this was measured</summary><dl>{terms}<dt>Order<dd>Fresh processes in alternating order, the server on \
         one core and the generator on another. The first server ran a second time (“again”): the A/A test.<dt>Machine<dd>{}, {} \
         cores, {:.1} GB, Linux {}, congestion control {}. Began {}, took {:.0} s. Schema {}.</dl>{}</details>",
        escaped(&machine.cpu),
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        escaped(&machine.kernel),
        escaped(&record.report.congestion),
        escaped(&record.began),
        record.took_s,
        record.schema,
        servers.html(),
    )
}

/// Plots one below the other.
pub(super) fn drawn(plots: Vec<Plot>) -> String {
    plots.iter().map(|plot| inline(&plot::svg(plot))).collect()
}

/// Within a page an SVG needs no namespace.
fn inline(svg: &str) -> String {
    let svg = svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    if svg.is_empty() { svg } else { format!("<div class=\"scroll\" tabindex=\"0\">{svg}</div>") }
}

#[cfg(test)]
mod tests;
