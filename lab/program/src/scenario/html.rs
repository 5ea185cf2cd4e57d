//! A result as one page without scripts or external files: first the warnings and the answer, then for each case a chart, a table
//! and curves, then the published figures, and, folded, how it was measured. It depends only on the result's file, so a page written
//! again is the same.

use super::Scenario;
use super::drawn::{overviews, plots};
use super::record::{Record, Server, listed};
use crate::bench::{CaseReport, Effort, warnings};
use crate::plot::{self, Plot};
use crate::table::{Table, escaped};

const STYLE: &str = include_str!("page.css");

/// The page of a result.
pub(crate) fn page(record: &Record) -> String {
    let (at, answer, figures) = (measured_on(record), answer(record), at_length(record));
    page_of(&record.scenario.question, &format!("{at}{answer}<h2>Figures</h2>{figures}"))
}

/// The files for a folder of results, by name: a page and a chart for each result, a list of them, and the list as Markdown.
pub(crate) fn folder_pages(results: &[(String, Record)]) -> Vec<(String, String)> {
    let stem = |file: &str| file.trim_end_matches(".json").to_owned();
    let (mut files, mut gallery) = (Vec::new(), String::new());
    let mut list = "# Results\n\nMade by `stentor lab report` from the JSON files.\n".to_owned();
    for (file, record) in results {
        let Scenario { name, question, load, .. } = &record.scenario;
        let Record { took_s, machine, .. } = record;
        let chart = record.report.cases.first().and_then(|case| plot::bars(case, None).ok());
        gallery += &format!(
            "<h2><a href=\"{}.html\">{}</a>: {}</h2>{}{}{}",
            escaped(&stem(file)),
            escaped(name),
            escaped(question),
            measured_on(record),
            answer(record),
            inline(chart.as_deref().unwrap_or_default())
        );
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
            if let (0, Some(chart)) = (nth, &chart) {
                let chart_file = format!("{}.svg", stem(file));
                list += &format!("![{}]({chart_file})\n\n", case.title);
                files.push((chart_file, chart.clone()));
            }
            list += &case.table().markdown();
        }
        files.push((format!("{}.html", stem(file)), page(record)));
    }
    files.extend([("index.html".to_owned(), page_of("Results", &gallery)), ("README.md".to_owned(), list)]);
    files
}

/// A page with this title, which is also the heading.
pub(super) fn page_of(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style><main><h1>{title}</h1>{body}</main></html>"
    )
}

/// Paragraphs in a box of this class; empty if there are none.
pub(super) fn boxed(class: &str, lines: &[String]) -> String {
    // A number stays on the line of its unit.
    let line = |line: &String| format!("<p>{}</p>", escaped(line).replace(" %", "\u{a0}%"));
    let paragraphs: String = lines.iter().map(line).collect();
    if lines.is_empty() { String::new() } else { format!("<div class=\"{class}\">{paragraphs}</div>") }
}

fn moment(record: &Record) -> String {
    escaped(&record.began.replace('T', " ").replace('Z', " UTC"))
}

/// Place, time and load.
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

/// Disturbances of the runs, and the verdicts.
fn answer(record: &Record) -> String {
    let of_case = |case: &CaseReport| {
        let lines: Vec<String> = case.sentences().into_iter().chain(case.goals()).collect();
        format!("<p><b>{}</b></p>{}", heading(case), boxed("answer", &lines))
    };
    let answers: String = record.report.cases.iter().map(of_case).collect();
    format!(
        "{}{}{answers}<p><small>2× means twice as much. The range in brackets is the 99 % interval of the ratio. Inconclusive doesn't \
         mean equal: the sentence says why nothing is shown, or how large a difference would have to be.</small></p>",
        boxed("warning", &disturbances(record)),
        servers(record)
    )
}

/// The servers, in words.
fn servers(record: &Record) -> String {
    let one = |server: &Server| match server.about.as_str() {
        "" => format!("<b>{}</b>", escaped(&server.name)),
        about => format!("<b>{}</b> ({})", escaped(&server.name), escaped(about)),
    };
    let all: Vec<String> = record.servers.iter().map(one).collect();
    format!("<p class=\"meta\">Servers: {}.</p>", all.join(", "))
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
    let first = case.servers.first().map(|server| escaped(&server.name)).unwrap_or_default();
    let again = match case.named().count() < case.servers.len() {
        true => format!(" “{first} again” is the same server measured a second time, which shows the noise."),
        false => String::new(),
    };
    let lines: Vec<String> = case.remarks().iter().map(|line| format!("<li>{}", escaped(line))).collect();
    let remarks = match lines.len() {
        0 => String::new(),
        count => format!(
            "<details><summary>{count} remarks: why runs or figures are invalid</summary><ul>{}</ul></details>",
            lines.concat()
        ),
    };
    format!(
        "<h3>{}</h3>{}{}<p><small>Figures are medians of the valid runs. Below them: {first}'s figure divided by this server's, with the \
         99 % interval; “better” and “worse” mark differences larger than the noise.{again}</small></p>{}{remarks}",
        heading(case),
        inline(&plot::bars(case, None).unwrap_or_default()),
        case.table().html(),
        drawn(plots(scenario, case)),
    )
}

/// The title of a case as a section heading.
fn heading(case: &CaseReport) -> String {
    let mut rest = case.title.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    escaped(&first.chain(rest.as_str().chars()).collect::<String>())
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

/// An SVG within a page needs no namespace.
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
