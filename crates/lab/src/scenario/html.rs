//! Results as one page that needs nothing else: the warnings and the answer first, then a chart, a table and curves of each case,
//! what was published, and, folded, how it was measured. No script, nothing to be loaded. It is made of what is in the files, so
//! that one made again is the same.

use super::drawn::{overviews, plots};
use super::record::{About, Record, listed};
use crate::bench::{CaseReport, Effort, warnings};
use crate::plot::{self, Plot};
use crate::table::{Table, escaped};

const STYLE: &str = ":root{color-scheme:light dark;--text:light-dark(#1b1f24,#e6e9ed);--page:light-dark(#fff,#14171a);\
--faint:light-dark(#4d5661,#a9b2bc);--rule:light-dark(#d5dae0,#3a414a);--link:light-dark(#0b5394,#8ec5ff);\
--answer:light-dark(#f2f6fb,#1a2430);--warning:light-dark(#fff4e5,#33240f);--focus:light-dark(#0072b2,#56b4e9)}\
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:var(--text);background:var(--page)}\
h1,h2,h3{line-height:1.2}h2{margin-top:3rem;border-bottom:2px solid var(--rule)}a{color:var(--link)}\
body,dd{overflow-wrap:anywhere}table{border-collapse:collapse;font-size:.9rem;overflow-wrap:normal}.scroll{overflow-x:auto;margin:1rem 0}\
th,td{padding:.3rem .6rem;text-align:left;border-bottom:1px solid var(--rule);vertical-align:top}\
.figure{font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}th[scope=row]{white-space:nowrap}\
.answer,.warning{padding:.6rem 1rem;margin:1rem 0;border-left:4px solid var(--focus);background:var(--answer)}\
.warning{border-color:#9a3b00;background:var(--warning)}.answer p,.warning p{margin:.3rem 0}\
dt{font-weight:600}dd{margin:0 0 .6rem}small,.meta{color:var(--faint)}summary{cursor:pointer;font-weight:600;padding:.4rem 0}\
svg{max-width:100%;height:auto;display:block}:focus-visible{outline:3px solid var(--focus);outline-offset:2px}\
@media(max-width:30rem){body{margin:.5rem auto;padding:0 .6rem}th,td{padding:.3rem .4rem}h1{font-size:1.4rem}svg{min-width:34rem}}\
@media print{:root{color-scheme:light}@page{margin:12mm}body{max-width:none;margin:0;padding:0}h2,h3{break-after:avoid}\
details::details-content{content-visibility:visible;block-size:auto}.answer,.warning,svg,tr{break-inside:avoid}\
svg{min-width:0}.scroll{overflow:visible}table{font-size:7pt}th,td{padding:1pt 3pt}.figure,th[scope=row]{white-space:normal}}";

/// A page of these results: of several the answers first, then each at length.
pub(crate) fn page(results: &[Record]) -> String {
    if let [record] = results {
        let (at, answer, figures) = (measured_on(record), answer(record), at_length(record));
        let body = format!("{at}{answer}<h2>Figures</h2>{figures}");
        return page_of(&record.scenario.question, &body);
    }
    let links = (0..results.len()).map(|nth| format!("#r{nth}"));
    let mut body = gallery(links.zip(results));
    for (nth, record) in results.iter().enumerate() {
        let (name, began) = (escaped(&record.scenario.name), moment(record));
        body += &format!("<h2 id=\"r{nth}\">{name}, {began}</h2>{}", at_length(record));
    }
    page_of(&format!("{} results", results.len()), &body)
}

/// Of each result the answer and a chart of its first case, with a link to the rest.
fn gallery<'a>(results: impl Iterator<Item = (String, &'a Record)>) -> String {
    let entry = |(link, record): (String, &Record)| {
        let (name, question) = (escaped(&record.scenario.name), escaped(&record.scenario.question));
        // On the page itself it comes below.
        let first = record.report.cases.first().filter(|_| !link.starts_with('#'));
        let chart = first.and_then(|case| plot::bars(case, None).ok());
        format!(
            "<h2><a href=\"{}\">{name}</a>: {question}</h2>{}{}{}",
            escaped(&link),
            measured_on(record),
            answer(record),
            inline(&chart.unwrap_or_default())
        )
    };
    results.map(entry).collect()
}

/// The files of a folder of results, by name: a page and a chart of each, a list of them, and the same as Markdown.
pub(crate) fn folder_pages(results: &[(String, Record)]) -> Vec<(String, String)> {
    let stem = |file: &str| file.trim_end_matches(".json").to_owned();
    let links = results.iter().map(|(file, record)| (format!("{}.html", stem(file)), record));
    let mut files = vec![("index.html".to_owned(), page_of("Results", &gallery(links)))];
    let mut list = "# Results\n\nMade by `stentor lab report` from the JSON files.\n".to_owned();
    for (file, record) in results {
        let About { name, question, load, .. } = &record.scenario;
        let Record { took_s, machine, .. } = record;
        list += &format!(
            "\n## {name}: {question}\n\n{}, {took_s:.0} s, {}. {load}\n",
            moment(record),
            machine.line()
        );
        disturbances(record).iter().for_each(|line| list += &format!("\n> {line}\n"));
        for (nth, case) in record.report.cases.iter().enumerate() {
            let lines: String =
                case.sentences().iter().chain(&case.goals()).map(|line| format!("- {line}\n")).collect();
            list += &format!("\n### {}\n\n{lines}\n", case.title);
            if let (0, Ok(chart)) = (nth, plot::bars(case, None)) {
                let chart_file = format!("{}.svg", stem(file));
                list += &format!("![{}]({chart_file})\n\n", case.title);
                files.push((chart_file, chart));
            }
            list += &case.table().markdown();
        }
        files.push((format!("{}.html", stem(file)), page(std::slice::from_ref(record))));
    }
    files.push(("README.md".to_owned(), list));
    files
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

fn moment(record: &Record) -> String {
    escaped(&record.began.replace('T', " ").replace('Z', " UTC"))
}

/// Where and when, and under what load.
fn measured_on(record: &Record) -> String {
    let effort = record.effort_name();
    format!(
        "<p class=\"meta\">{}, a {effort} run of {:.0} s on a {}.<br>Load: {}</p>",
        moment(record),
        record.took_s,
        escaped(&record.machine.line()),
        escaped(&record.scenario.load)
    )
}

fn disturbances(record: &Record) -> Vec<String> {
    let mut warnings = warnings(&record.report);
    if record.effort == Effort::Smoke {
        warnings.insert(
            0,
            "A smoke run shows that everything works. Nothing follows from its figures.".to_owned(),
        );
    }
    warnings.extend(record.report.missing.iter().map(|name| format!("{name} couldn't be installed.")));
    warnings
}

/// What disturbed the runs, and what they show.
fn answer(record: &Record) -> String {
    let of_case = |case: &CaseReport| {
        let lines: Vec<String> = case.sentences().into_iter().chain(case.goals()).collect();
        format!("<p><b>{}</b></p>{}", escaped(&case.title), boxed("answer", &lines))
    };
    let answers: String = record.report.cases.iter().map(of_case).collect();
    format!(
        "{}{answers}<p><small>A range in brackets holds the ratio with 99 % certainty. Inconclusive: the runs scatter too \
         much to show a difference of that size; it doesn't mean equal.</small></p>",
        boxed("warning", &disturbances(record))
    )
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

pub(super) fn drawn(plots: Vec<Plot>) -> String {
    plots.iter().map(|plot| inline(&plot::svg(plot))).collect()
}

/// Within a page an SVG needs no namespace.
fn inline(svg: &str) -> String {
    let svg = svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    if svg.is_empty() {
        svg
    } else {
        format!("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"chart\">{svg}</div>")
    }
}

#[cfg(test)]
mod tests;
