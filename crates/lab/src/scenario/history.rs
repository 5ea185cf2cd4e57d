//! One server over its versions: which results have it, and what they say of it.
//!
//! The results of a folder, in the order in which they were made. A figure is the median of that result's sound runs; beside
//! another server (`--against`) it is the ratio to that one's in the same result, which takes out what the machine was like at
//! that time. Differences between two results are [`super::compare`]'s to judge, so none is claimed here.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use super::html::{escaped, write_page_of, write_plots};
use super::kept::{Case, Kept};
use crate::Error;
use crate::bench::{Metric, median};
use crate::plot::{Axis, Line, Plot, Scale};

/// What to look for.
#[derive(Clone, Debug)]
pub struct Question {
    /// The server, as in the tables.
    pub server: String,
    /// The scenario; `None`: all.
    pub scenario: Option<String>,
    /// The figure; `None`: each case's decisive one.
    pub metric: Option<Metric>,
    /// The server whose figure it is divided by.
    pub against: Option<String>,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct History {
    server: String,
    against: Option<String>,
    /// Case by case.
    cases: Vec<Series>,
    /// Files that are no results.
    pub unread: Vec<String>,
}

/// One case over time.
#[derive(Clone, Debug)]
struct Series {
    scenario: String,
    case: String,
    title: String,
    metric: Metric,
    points: Vec<Point>,
}

/// What one result says.
#[derive(Clone, Debug)]
struct Point {
    began: String,
    file: String,
    version: String,
    effort: String,
    machine: String,
    figure: Option<f64>,
    sound: usize,
    runs: usize,
}

impl History {
    /// Reads the results in `folder`. Files of other kinds are passed over, and named in `unread` where they look like results.
    ///
    /// # Errors
    /// If the folder can't be read, or nothing in it answers the question.
    pub fn read(folder: &Path, question: &Question) -> Result<Self, Error> {
        let unreadable =
            |error: std::io::Error| Error::Usage(format!("{}: {error} (--results)", folder.display()));
        let mut kept = Vec::new();
        let mut unread = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match Kept::read(&path) {
                Ok(found) => {
                    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    kept.push((file, found));
                }
                Err(error) => unread.push(error.to_string()),
            }
        }
        kept.sort_by(|(_, one), (_, other)| one.began.cmp(&other.began));
        let mut history = Self {
            server: question.server.clone(),
            against: question.against.clone(),
            cases: Vec::new(),
            unread,
        };
        for (file, kept) in &kept {
            if question.scenario.as_ref().is_some_and(|wanted| *wanted != kept.scenario.name) {
                continue;
            }
            for case in &kept.report.cases {
                history.take(file, kept, case, question);
            }
        }
        if history.cases.is_empty() {
            return Err(Error::Usage(history.nothing(folder, &kept, question)));
        }
        if let Some(other) = &question.against
            && !kept.iter().any(|(_, kept)| kept.report.cases.iter().any(|case| case.runs(other).is_some()))
        {
            return Err(Error::Usage(format!("no result in {} has {other} (--against)", folder.display())));
        }
        Ok(history)
    }

    /// Why nothing answers the question: what there is instead.
    fn nothing(&self, folder: &Path, kept: &[(String, Kept)], question: &Question) -> String {
        let mut told = match kept.is_empty() {
            true => format!("there are no results in {} (--results)", folder.display()),
            false => {
                let what =
                    question.metric.map(|metric| format!(" with {}", metric.name())).unwrap_or_default();
                let of = question.scenario.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
                let scenarios: BTreeSet<&str> = kept.iter().map(|(_, kept)| kept.scenario_name()).collect();
                let servers: BTreeSet<String> =
                    kept.iter().flat_map(|(_, kept)| kept.server_names()).collect();
                format!(
                    "no result{of} in {} has {}{what}; there are {} of {}",
                    folder.display(),
                    question.server,
                    Vec::from_iter(servers).join(", "),
                    Vec::from_iter(scenarios).join(", ")
                )
            }
        };
        for unread in &self.unread {
            told += &format!("\nnot read: {unread}");
        }
        told
    }

    fn take(&mut self, file: &str, kept: &Kept, case: &Case, question: &Question) {
        let Some(runs) = case.runs(&question.server) else { return };
        let metric = match question.metric {
            Some(metric) => case.known_metrics().find(|known| *known == metric),
            None => case.known_metrics().next(),
        };
        let Some(metric) = metric else { return };
        let sound = runs.sound(metric);
        let figure = median(&sound).and_then(|figure| match &question.against {
            None => Some(figure),
            Some(other) => {
                Some(figure / median(&case.runs(other)?.sound(metric)).filter(|theirs| *theirs > 0.0)?)
            }
        });
        let point = Point {
            began: kept.began.clone(),
            file: file.to_owned(),
            version: kept.version(&question.server).unwrap_or_default(),
            effort: kept.effort.clone(),
            machine: format!("{}, {} cores, {}", kept.machine.cpu, kept.machine.cores, kept.machine.kernel),
            figure,
            sound: sound.len(),
            runs: runs.trials.len(),
        };
        let scenario = &kept.scenario.name;
        let there = self
            .cases
            .iter_mut()
            .find(|series| (&series.scenario, &series.case, series.metric) == (scenario, &case.name, metric));
        match there {
            Some(series) => series.points.push(point),
            None => self.cases.push(Series {
                scenario: scenario.clone(),
                case: case.name.clone(),
                title: case.title.clone(),
                metric,
                points: vec![point],
            }),
        }
    }

    /// The figure with its unit, or the ratio.
    fn format(&self, metric: Metric, figure: Option<f64>) -> String {
        match (figure, &self.against) {
            (None, _) => "–".to_owned(),
            (Some(ratio), Some(_)) => format!("{ratio:.2}"),
            (Some(figure), None) => metric.format(figure),
        }
    }

    fn heading(&self, metric: Metric) -> String {
        match &self.against {
            Some(against) => format!("{} / {against}", metric.label()),
            None => metric.label().to_owned(),
        }
    }

    /// A page with a table and a plot of each case; it needs nothing else.
    pub fn page(&self) -> String {
        write_page_of(&format!("{} over its versions", self.server), |out| {
            for series in &self.cases {
                let heading = escaped(&self.heading(series.metric));
                write!(
                    out,
                    "<h2>{}: {}</h2><table><tr><th>result<th>version<th>{heading}<th>sound<th>effort<th>machine",
                    escaped(&series.scenario),
                    escaped(&series.title)
                )?;
                for point in &series.points {
                    write!(
                        out,
                        "<tr><td>{}<td>{}<td>{}<td>{}/{}<td>{}<td>{}",
                        escaped(&point.began),
                        escaped(&point.version),
                        self.format(series.metric, point.figure),
                        point.sound,
                        point.runs,
                        escaped(&point.effort),
                        escaped(&point.machine)
                    )?;
                }
                write!(out, "</table>")?;
                let points: Vec<(f64, f64)> = (series.points.iter().enumerate())
                    .filter_map(|(nth, point)| Some((nth as f64, point.figure?)))
                    .collect();
                let begun = series.points.iter().map(|point| point.began.get(..10).unwrap_or_default());
                let across = Axis::new("result", Scale::Named(begun.map(str::to_owned).collect()));
                let up = Axis::new(self.heading(series.metric), Scale::Linear);
                let line = Line { name: self.server.clone(), number: 0, points };
                write_plots(out, vec![Plot::new("", across, up, vec![line])])?;
            }
            Ok(())
        })
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for unread in &self.unread {
            writeln!(f, "passed over: {unread}")?;
        }
        for series in &self.cases {
            writeln!(f, "{}, {}: {}", series.scenario, series.case, self.heading(series.metric))?;
            let width = series.points.iter().map(|point| point.version.chars().count()).max().unwrap_or(0);
            for point in &series.points {
                let figure = self.format(series.metric, point.figure);
                let (sound, runs) = (point.sound, point.runs);
                writeln!(
                    f,
                    "  {}  {:<width$}  {figure:>12}  {sound}/{runs} sound  {:5}  {}",
                    point.began, point.version, point.effort, point.file
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
