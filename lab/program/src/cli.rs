//! The lab's command line: `bench`, `run`, `scenarios`, `generate`, `size`, `peers`, `install`, the commands of `judge`, and the
//! internal `worker`.

mod generate;
mod judge;
mod size;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{BufReader, Write};
use std::iter::once;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::Error;
use crate::bench::{self, Effort, Placing};
use crate::catalogue::{Catalogue, Running};
use crate::doctor::examine;
use crate::generator::{Protocol, serve_worker, this_program};
use crate::measure::end_children_on_signal;
use crate::scenario::{self, Record, SCENARIOS, Scenario, tell};

const NAME: &str = "stentor-lab";
/// The scenario of `bench`.
const GOALS: &str = "goals";

/// Measures realtime servers: a load generator, and alternating comparisons.
#[derive(Parser)]
#[command(name = NAME, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure Stentor against the project's goals: `run goals --full`.
    Bench(RunOptions),
    /// Put a load on one server and print the result.
    Generate(generate::GenerateArguments),
    /// Run a scenario, and write its results and a page.
    Run(RunArguments),
    /// Write the page of a result, or one page of several results.
    Report(judge::ReportArguments),
    /// Compare two results of a scenario.
    Compare(judge::CompareArguments),
    /// Show the results of one server over its versions.
    History(judge::HistoryArguments),
    /// Run a scenario and compare it with an earlier result; the exit code is the verdict.
    Gate(judge::GateArguments),
    /// Compute the cores, memory and nodes for a load, from committed measurements.
    Size(size::SizeArguments),
    /// Check whether this machine is fit to measure on, and how precise its figures are.
    Doctor(Placing),
    /// List the scenarios.
    Scenarios,
    /// List the servers that can be measured.
    Peers(PeersFolder),
    /// Install peers.
    Install(InstallArguments),
    /// Measure the cost of the generator itself, beside a bare client.
    Ceiling(judge::CeilingArguments),
    /// Run as one of several generator processes; internal.
    #[command(hide = true)]
    Worker,
}

#[derive(Args)]
struct RunArguments {
    /// The scenario; `scenarios` lists them.
    scenario: String,
    #[command(flatten)]
    run: RunOptions,
}

/// How a scenario is run.
#[derive(Args)]
struct RunOptions {
    /// A check that everything works: at most 10 seconds for two servers.
    #[arg(long, group = "effort")]
    smoke: bool,
    /// At most 2 minutes for each case with two servers; the default of `run`.
    #[arg(long, group = "effort", alias = "fast")]
    quick: bool,
    /// As published, where possible; the default of `bench`.
    #[arg(long, group = "effort")]
    full: bool,
    #[command(flatten)]
    target: Option<Running>,
    /// The folder for results.
    #[arg(long, default_value = "results")]
    results: PathBuf,
    /// Continue an interrupted run: its file, or the newest one of the scenario.
    #[arg(long, num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    #[command(flatten)]
    options: bench::Options,
}

fn print(out: &mut dyn Write, what: impl Display) -> Result<(), Error> {
    write!(out, "{what}").map_err(Error::io("printing"))
}

impl RunOptions {
    fn effort(&self) -> Option<Effort> {
        let flags = [(self.smoke, Effort::Smoke), (self.quick, Effort::Quick), (self.full, Effort::Full)];
        flags.into_iter().find_map(|(is_set, effort)| is_set.then_some(effort))
    }
}

#[derive(Args)]
struct PeersFolder {
    /// The folder of the peers.
    #[arg(long, default_value = "lab/peers")]
    peers_dir: PathBuf,
}

#[derive(Args)]
struct InstallArguments {
    /// The peers to install.
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// Install all peers.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    #[command(flatten)]
    folder: PeersFolder,
}

/// Runs the lab. `args` are the arguments after the program's name. The lab starts this program again for its generators.
pub fn main(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    out: &mut (dyn Write + Send),
    progress: &mut dyn Write,
) -> ExitCode {
    let parsed =
        Arguments::try_parse_from(once(OsString::from(NAME)).chain(args.into_iter().map(Into::into)));
    let command = match parsed {
        Ok(arguments) => arguments.command,
        Err(error) => {
            let _ = if error.use_stderr() { write!(progress, "{error}") } else { write!(out, "{error}") };
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let done = |result: Result<(), Error>| result.map(|()| ExitCode::SUCCESS);
    // Standard input isn't locked, because the generator reads and writes on another thread.
    let mut input = BufReader::new(std::io::stdin());
    let result = match command {
        Command::Bench(run) => done(run_scenario(GOALS, Effort::Full, &run, out, progress)),
        Command::Generate(arguments) => done(generate::generate(arguments, out)),
        Command::Run(RunArguments { scenario, run }) => {
            done(run_scenario(&scenario, Effort::Quick, &run, out, progress))
        }
        Command::Report(arguments) => done(judge::run_report(&arguments, out)),
        Command::Compare(arguments) => done(judge::run_compare(&arguments, out)),
        Command::History(arguments) => done(judge::run_history(&arguments, out)),
        Command::Gate(arguments) => judge::run_gate(arguments, out, progress),
        Command::Size(arguments) => done(size::size(&arguments, out, progress)),
        Command::Doctor(placing) => {
            done(print(out, examine(placing.server_core, placing.generator_core, &placing.congestion)))
        }
        Command::Scenarios => done(list_scenarios(out)),
        Command::Peers(folder) => done(list_peers(&folder, out, progress)),
        Command::Install(arguments) => done(install(&arguments, progress)),
        Command::Ceiling(arguments) => done(judge::run_ceiling(arguments, out, progress)),
        Command::Worker => done(serve_worker(&mut input, out)),
    };
    result.unwrap_or_else(|error| {
        let _ = writeln!(progress, "lab: {error}");
        ExitCode::FAILURE
    })
}

fn list_scenarios(out: &mut dyn Write) -> Result<(), Error> {
    for scenario in SCENARIOS.iter() {
        let (name, question) = (&scenario.name, &scenario.question);
        print(out, format_args!("{name:16}{question} [{}]\n", scenario.peers.join(" ")))?;
    }
    Ok(())
}

fn run_scenario(
    scenario: &str,
    usual: Effort,
    run: &RunOptions,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<(), Error> {
    let scenario = scenario_called(scenario)?;
    let (record, page) = run_record(scenario, run.effort().unwrap_or(usual), run, progress)?;
    for warning in bench::warnings(&record.report) {
        print(out, format_args!("warning: {warning}\n"))?;
    }
    if scenario.name == GOALS {
        print(
            out,
            format_args!("The goals of docs/benchmarks.md:\n{}\n", scenario::results(&record.report)),
        )?;
    }
    print(out, format_args!("{}\n{}\n", record.report, page.display()))?;
    match record.is_complete() {
        true => Ok(()),
        false => Err(Error::Usage("not everybody could be measured".into())),
    }
}

fn scenario_called(name: &str) -> Result<&'static Scenario, Error> {
    crate::named("scenario", name, &SCENARIOS, |scenario| &scenario.name)
}

/// Runs a scenario. Returns the record and the path of the page.
fn run_record(
    scenario: &Scenario,
    effort: Effort,
    run: &RunOptions,
    progress: &mut dyn Write,
) -> Result<(Record, PathBuf), Error> {
    let mut options = run.options.clone().started_by(this_program()?);
    (options.effort, options.target) = (effort, run.target.clone());
    end_children_on_signal(|| tell("interrupted; nothing was measured yet"));
    scenario::run(scenario, options, &run.results, run.resume.clone(), progress)
}

fn list_peers(folder: &PeersFolder, out: &mut dyn Write, progress: &mut dyn Write) -> Result<(), Error> {
    let catalogue = Catalogue::read(&folder.peers_dir)?;
    let width = catalogue.servers.iter().map(|known| known.name.len()).max().unwrap_or(0);
    for known in &catalogue.servers {
        let state = match &known.peer {
            Some(peer) if !peer.is_installed() => "not installed: ",
            _ => "",
        };
        let speaks: Vec<&str> = known.speaks().map(Protocol::name).collect();
        let (name, about) = (&known.name, &known.about);
        print(out, format_args!("{name:width$}  {state}{about} [{}]\n", speaks.join(" ")))?;
    }
    if let Some(lacks) = catalogue.lacks() {
        let _ = writeln!(progress, "lab: {lacks}");
    }
    let whys: Vec<&str> = catalogue.unusable.iter().map(|unusable| unusable.why.as_str()).collect();
    if whys.is_empty() { Ok(()) } else { Err(Error::Usage(format!("not usable: {}", whys.join("\n")))) }
}

/// Installs the named peers. If one can't be installed, the others still are. An unknown name stops everything.
fn install(arguments: &InstallArguments, progress: &mut dyn Write) -> Result<(), Error> {
    let catalogue = Catalogue::read(&arguments.folder.peers_dir)?;
    if let Some(lacks) = catalogue.lacks() {
        return Err(Error::Usage(lacks));
    }
    let mut peers = catalogue.peers(&arguments.names);
    if let Some(unknown) = peers.iter().position(|(_, found)| matches!(found, Err(Error::Usage(_)))) {
        return peers.swap_remove(unknown).1.map(drop);
    }
    end_children_on_signal(|| tell("interrupted; what was under way isn't installed"));
    let mut failed = Vec::new();
    for (name, peer) in peers {
        let installed = peer.and_then(|peer| {
            if !peer.is_installed() {
                let _ = writeln!(progress, "installing {name}");
            }
            peer.install()
        });
        let told = match installed {
            Ok(()) => format!("{name}: ready"),
            Err(error) => {
                failed.push(name);
                error.to_string()
            }
        };
        let _ = writeln!(progress, "{told}");
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::Usage(format!("not installed: {}", failed.join(", ")))),
    }
}

#[cfg(test)]
mod tests;
