//! The commands that judge: `report`, `compare`, `history` and `gate` read results; `ceiling` measures the generator itself.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::{RunOptions, print};
use crate::Error;
use crate::bench::{Effort, Metric, Options, Placing};
use crate::ceiling::{self, Plan};
use crate::generator::this_program;
use crate::measure::end_children_on_signal;
use crate::plot::bars;
use crate::scenario::compare::compare;
use crate::scenario::gate::judge;
use crate::scenario::history::{History, Question};
use crate::scenario::{Record, folder_pages, page};

/// Runs of each server in a gate if no number is given. Fewer runs hardly show a difference from noise.
const PAIRS_OF_GATE: usize = 3;

#[derive(Args)]
pub(super) struct CompareArguments {
    /// The older result, a JSON file.
    old: PathBuf,
    /// The newer one.
    new: PathBuf,
    /// Also write a page to this file.
    #[arg(long)]
    page: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct ReportArguments {
    /// A result (a JSON file) or a folder. For a folder, each result gets a page and a chart, and `index.html` and `README.md` list
    /// them.
    result: PathBuf,
    /// The file of the page [default: beside the result].
    #[arg(long)]
    page: Option<PathBuf>,
    /// Instead of a page, write a bar chart of the first case of one result to this SVG file.
    #[arg(long, value_name = "FILE", conflicts_with = "page")]
    chart: Option<PathBuf>,
    /// The figure of the chart, by its name in results (such as cpu_per_message) [default: the decisive one].
    #[arg(long, requires = "chart", value_parser = Metric::of_name)]
    metric: Option<Metric>,
}

#[derive(Args)]
pub(super) struct HistoryArguments {
    #[command(flatten)]
    question: Question,
    /// The folder of the results.
    #[arg(long, default_value = "results")]
    results: PathBuf,
    /// Also write a page with plots to this file.
    #[arg(long)]
    page: Option<PathBuf>,
}

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 held, 1 something failed or couldn't be measured, 2 wrong arguments, 3 slower than the \
                        baseline, 4 invalid (no valid runs, or too few, so nothing follows)."
)]
pub(super) struct GateArguments {
    /// The result of an earlier run, a JSON file.
    baseline: PathBuf,
    /// Percentage by which a figure may be worse.
    #[arg(long, default_value_t = 5.0, value_parser = percentage)]
    tolerance: f64,
    #[command(flatten)]
    run: RunOptions,
}

/// Parses a percentage of at least 0, for clap.
fn percentage(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|percent| *percent >= 0.0)
        .ok_or_else(|| "it has to be a percentage from 0".to_owned())
}

#[derive(Args)]
pub(super) struct CeilingArguments {
    #[command(flatten)]
    plan: Plan,
    #[command(flatten)]
    placing: Placing,
}

pub(super) fn run_ceiling(
    arguments: CeilingArguments,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<(), Error> {
    let options = Options { placing: arguments.placing, ..Options::default() };
    let mut options = options.started_by(this_program()?);
    options.placing.enter(&[], false, progress)?;
    end_children_on_signal(|| ());
    let ceiling = ceiling::run(&arguments.plan, &options, progress)?;
    print(out, &ceiling)
}

pub(super) fn run_compare(arguments: &CompareArguments, out: &mut dyn Write) -> Result<(), Error> {
    let compared = compare(&Record::read(&arguments.old)?, &Record::read(&arguments.new)?)?;
    print(out, &compared)?;
    if let Some(page) = &arguments.page {
        fs::write(page, compared.page()).map_err(Error::io("writing --page"))?;
    }
    Ok(())
}

pub(super) fn run_report(arguments: &ReportArguments, out: &mut dyn Write) -> Result<(), Error> {
    if arguments.result.is_dir() {
        return report_folder(&arguments.result, out);
    }
    let kept = Record::read(&arguments.result)?;
    if let Some(path) = &arguments.chart {
        let case = kept.report.cases.first().ok_or_else(|| Error::Usage("the result has no case".into()))?;
        let svg = bars(case, arguments.metric).map_err(Error::Usage)?;
        fs::write(path, svg).map_err(Error::io("writing --chart"))?;
        return print(out, format_args!("{}\n", path.display()));
    }
    let path = arguments.page.clone().unwrap_or_else(|| arguments.result.with_extension("html"));
    fs::write(&path, page(&kept)).map_err(|error| {
        Error::Usage(format!("{}: {error} (--page says where the page goes)", path.display()))
    })?;
    print(out, format_args!("{}\n", path.display()))
}

fn report_folder(folder: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let (found, unread) = Record::read_folder(folder)?;
    unread.iter().try_for_each(|why| print(out, format_args!("skipped: {why}\n")))?;
    if found.is_empty() {
        return Err(Error::Usage(format!("there are no results in {}", folder.display())));
    }
    for (name, text) in folder_pages(&found) {
        fs::write(folder.join(name), text).map_err(Error::io("writing the pages"))?;
    }
    print(out, format_args!("{}\n", folder.join("index.html").display()))
}

pub(super) fn run_history(arguments: &HistoryArguments, out: &mut dyn Write) -> Result<(), Error> {
    let history = History::read(&arguments.results, &arguments.question)?;
    print(out, &history)?;
    if let Some(page) = &arguments.page {
        fs::write(page, history.page()).map_err(Error::io("writing --page"))?;
    }
    Ok(())
}

pub(super) fn run_gate(
    mut arguments: GateArguments,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<ExitCode, Error> {
    let baseline = Record::read(&arguments.baseline)?;
    let scenario = super::scenario_called(&baseline.scenario.name)?;
    let run = &mut arguments.run;
    let options = &mut run.options;
    if options.servers.is_empty() {
        options.servers = baseline.server_names();
    }
    if options.cases.is_empty() {
        options.cases = baseline.case_names();
    }
    let effort = run.effort().unwrap_or(baseline.effort);
    if effort != Effort::Full {
        run.options.pairs = run.options.pairs.or(Some(PAIRS_OF_GATE));
    }
    let (record, page) = super::run_record(scenario, effort, run, progress)?;
    let judgement = judge(&baseline, &record, arguments.tolerance / 100.0)?;
    print(out, format_args!("{}\n{judgement}", page.display()))?;
    Ok(ExitCode::from(judgement.gate.exit_code()))
}
