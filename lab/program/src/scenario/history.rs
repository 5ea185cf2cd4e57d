//! One server over its versions: the results that have it, and its figures.
//!
//! The results of a folder by time. A figure is the median of the valid runs of that result. With another server
//! (`--against`), it is the ratio to the figure of that server in the same result, which removes the influence of the
//! machine at that time. [`super::compare`] judges differences, so none is claimed here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use clap::Args;
use minijinja::{Value, context};

use super::html::drawn;
use super::record::Record;
use crate::Error;
use crate::bench::{CaseReport, Metric, median};
use crate::plot::{Line, Plot, Scale};
use crate::table::Table;
use crate::templates::render;

#[derive(Clone, Debug, Args)]
pub(crate) struct Question {
    /// The server, by its name in results.
    #[arg(default_value = "stentor")]
    server: String,
    /// Only this scenario.
    #[arg(long)]
    scenario: Option<String>,
    /// The figure, by its name in results (such as latency_p99) [default: the decisive one of each case].
    #[arg(long, value_parser = Metric::of_name)]
    metric: Option<Metric>,
    /// Divide by the same figure of this server, to remove the influence of the machine.
    #[arg(long)]
    against: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    question: Question,
    /// The series by scenario, case and figure.
    series: BTreeMap<(String, String, Metric), Series>,
    pub unread: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Series {
    title: String,
    points: Vec<Point>,
}

#[derive(Clone, Debug)]
struct Point {
    figure: Option<f64>,
    /// The row of the table, which starts with the time.
    row: [String; 7],
}

impl History {
    /// Reads the results in `folder`. Other files are skipped. Those that look like results are listed in `unread`.
    pub(crate) fn read(folder: &Path, question: &Question) -> Result<Self, Error> {
        let (kept, unread) =
            Record::read_folder(folder).map_err(|error| Error::Usage(format!("{error} (--results)")))?;
        let mut history = Self { question: question.clone(), series: BTreeMap::new(), unread };
        for (file, kept) in &kept {
            let is_wanted = question.scenario.as_ref().is_none_or(|wanted| *wanted == kept.scenario.name);
            kept.report.cases.iter().filter(|_| is_wanted).for_each(|case| history.take(file, kept, case));
        }
        if history.series.is_empty() {
            return Err(Error::Usage(history.nothing(folder, &kept)));
        }
        if let Some(other) = &question.against
            && !kept.iter().any(|(_, kept)| kept.report.cases.iter().any(|case| case.runs(other).is_some()))
        {
            return Err(Error::Usage(format!("no result in {} has {other} (--against)", folder.display())));
        }
        Ok(history)
    }

    /// An explanation if no result matches: the results that the folder has instead.
    fn nothing(&self, folder: &Path, kept: &[(String, Record)]) -> String {
        let question = &self.question;
        let what = question.metric.map(|metric| format!(" with {}", metric.name())).unwrap_or_default();
        let of = question.scenario.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        let servers = BTreeSet::from_iter(kept.iter().flat_map(|(_, kept)| kept.server_names()));
        let scenarios = BTreeSet::from_iter(kept.iter().map(|(_, kept)| kept.scenario.name.clone()));
        let [servers, scenarios] = [servers, scenarios].map(|names| Vec::from_iter(names).join(", "));
        let (server, folder) = (&question.server, folder.display());
        let mut told = match kept {
            [] => format!("there are no results in {folder} (--results)"),
            _ => format!("no result{of} in {folder} has {server}{what}; there are {servers} of {scenarios}"),
        };
        for unread in &self.unread {
            told += &format!("\nnot read: {unread}");
        }
        told
    }

    fn take(&mut self, file: &str, kept: &Record, case: &CaseReport) {
        let question = &self.question;
        let Some(runs) = case.runs(&question.server) else { return };
        let metric = match question.metric {
            Some(metric) => case.metrics.iter().find(|known| **known == metric).copied(),
            None => case.metrics.first().copied(),
        };
        let Some(metric) = metric else { return };
        let valid = runs.valid(metric);
        let figure = median(&valid).and_then(|figure| match &question.against {
            None => Some(figure),
            Some(other) => {
                Some(figure / median(&case.runs(other)?.valid(metric)).filter(|theirs| *theirs > 0.0)?)
            }
        });
        let machine = &kept.machine;
        let row = [
            kept.began.clone(),
            kept.version(&question.server).unwrap_or_default(),
            self.format(metric, figure),
            format!("{}/{}", valid.len(), runs.trials.len()),
            kept.effort.name().to_owned(),
            format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.kernel),
            file.to_owned(),
        ];
        let key = (kept.scenario.name.clone(), case.name.clone(), metric);
        let series = self.series.entry(key).or_default();
        series.title.clone_from(&case.title);
        series.points.push(Point { figure, row });
    }

    fn format(&self, metric: Metric, figure: Option<f64>) -> String {
        match (figure, &self.question.against) {
            (None, _) => "–".to_owned(),
            (Some(ratio), Some(_)) => format!("{ratio:.2}"),
            (Some(figure), None) => metric.format(figure),
        }
    }

    fn heading(&self, metric: Metric) -> String {
        match &self.question.against {
            Some(against) => format!("{} / {against}", metric.label()),
            None => metric.label().to_owned(),
        }
    }

    fn table(&self, metric: Metric, series: &Series) -> Table {
        let heading = self.heading(metric);
        let mut table =
            Table::new(["result", "version", &heading, "valid runs", "effort", "machine", "file"]);
        series.points.iter().for_each(|point| table.push(point.row.clone()));
        table
    }

    /// A page with a plot and a table of each case, without external files.
    pub(crate) fn page(&self) -> String {
        let section = |((scenario, _, metric), series): (&(String, String, Metric), &Series)| {
            let points = series.points.iter().enumerate();
            let points = points.filter_map(|(nth, point)| Some((nth as f64, point.figure?))).collect();
            let begun = series.points.iter().map(|point| point.row[0].get(..10).unwrap_or_default());
            let across = ("result".to_owned(), Scale::Named(begun.map(str::to_owned).collect()));
            let up = (self.heading(*metric), Scale::Linear);
            let line = Line { name: self.question.server.clone(), number: 0, points };
            let plot = Plot::new(self.heading(*metric), across, up, vec![line]);
            let heading = format!("{scenario}: {}", series.title);
            context! { heading, plots => drawn(&[plot]), table => self.table(*metric, series) }
        };
        let sections: Vec<Value> = self.series.iter().map(section).collect();
        let title = format!("{} over its versions", self.question.server);
        render("sections.html", &context! { title, sections })
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for unread in &self.unread {
            writeln!(f, "skipped: {unread}")?;
        }
        for ((scenario, case, metric), series) in &self.series {
            writeln!(f, "{scenario}, {case}: {}", self.heading(*metric))?;
            self.table(*metric, series).fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
