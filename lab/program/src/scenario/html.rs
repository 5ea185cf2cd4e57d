//! A result as one page without scripts or external files: first the warnings and the answer, then for each case a
//! chart, a table and curves, then the published figures, and, folded, the method. It depends only on the result's
//! file, so a page written again is the same.
//!
//! The templates have the words and their order; this module has the values.

use minijinja::{Value, context};

use super::drawn::{overviews, plots};
use super::record::{Record, listed};
use crate::bench::{CaseReport, Effort, warnings};
use crate::plot::{self, Plot};
use crate::table::Table;
use crate::templates::render;

/// The page of a result.
pub(crate) fn page(record: &Record) -> String {
    page_of(&values(record))
}

fn page_of(result: &Value) -> String {
    render("result.html", &context! { title => result.get_attr("title").unwrap_or_default(), result })
}

/// The files for a folder of results, by name: a page and a chart for each result, a list of them, and the list as Markdown.
pub(crate) fn folder_pages(results: &[(String, Record)]) -> Vec<(String, String)> {
    let (mut files, mut all) = (Vec::new(), Vec::new());
    for (file, record) in results {
        let (stem, result) = (file.trim_end_matches(".json"), values(record));
        let chart = record.report.cases.first().map(chart).unwrap_or_default();
        files.push((format!("{stem}.html"), page_of(&result)));
        all.push(context! { stem, chart, ..result });
        if !chart.is_empty() {
            files.push((format!("{stem}.svg"), chart));
        }
    }
    let values = context! { title => "Results", results => all };
    files.push(("index.html".to_owned(), render("index.html", &values)));
    files.push(("README.md".to_owned(), render("list.md", &values) + "\n"));
    files
}

/// The values of a result in the templates.
fn values(record: &Record) -> Value {
    let Record { scenario, machine, report, .. } = record;
    let mut servers = Table::new(["server", "what", "versions", "settings"]);
    for server in &record.servers {
        servers.push([&server.name, &server.about, &listed(&server.versions), &listed(&server.settings)]);
    }
    let mut published = Table::new(["published for", "figure"]);
    scenario.published.iter().for_each(|one| published.push([&one.who, &one.figure]));
    let cases: Vec<Value> = report.cases.iter().map(|case| values_of_case(&scenario.name, case)).collect();
    context! {
        scenario, machine, published, cases,
        title => scenario.question,
        schema => record.schema,
        effort => record.effort.name(),
        began => record.began.replace('T', " ").replace('Z', " UTC"),
        took => format!("{:.0}", record.took_s),
        machine_line => machine.line(),
        memory => format!("{:.1} GB", machine.memory_bytes as f64 / 1e9),
        congestion => report.congestion,
        disturbances => disturbances(record),
        servers => record.servers,
        server_table => servers,
        overviews => drawn(&overviews(record)),
    }
}

fn values_of_case(scenario: &str, case: &CaseReport) -> Value {
    context! {
        title => case.title,
        answers => [case.sentences(), case.goals()].concat(),
        chart => chart(case),
        table => case.table(),
        plots => drawn(&plots(scenario, case)),
        baseline => case.servers.first().map(|server| &server.name),
        has_again => case.named().count() < case.servers.len(),
        remarks => case.remarks(),
    }
}

fn disturbances(record: &Record) -> Vec<String> {
    let mut warnings = warnings(&record.report);
    if record.effort == Effort::Smoke {
        let smoke = "A smoke run shows that everything works. Nothing follows from its figures.";
        warnings.insert(0, smoke.to_owned());
    }
    warnings.extend(record.report.missing.iter().map(|name| format!("{name} couldn't be installed.")));
    warnings
}

/// The bar chart of a case. Empty if there is nothing to draw.
fn chart(case: &CaseReport) -> String {
    plot::bars(case, None).unwrap_or_default()
}

pub(super) fn drawn(plots: &[Plot]) -> Vec<String> {
    plots.iter().map(plot::svg).collect()
}

#[cfg(test)]
mod tests;
