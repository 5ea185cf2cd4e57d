//! Servers against each other: alternating runs, and the table that comes of them.
//!
//! For each case every server runs as often as `pairs` says, a fresh process each time, in the order A B C C
//! B A A B C …, so that drift of the machine hits all alike. What is reported is the median of the ratios of
//! the runs with the same number, with a bootstrap interval; the first server is run under a second name as
//! well, which shows how much two runs of the same thing differ.

mod cases;
mod metric;
mod report;
mod sampler;
mod servers;
mod source;
mod stats;
mod table;
mod trial;

pub use cases::{Case, CaseKind, Target, cases};
pub use metric::Metric;
pub use report::{CaseReport, Comparison, Report};
pub use servers::{Application, Contestant, KNOWN, Known};
pub use stats::{Interval, median, ratio_interval};
pub use trial::Trial;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Error;
use crate::generator::{DriverKind, Invocation, Outcome};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// How this program is run as a worker.
    pub invocation: Invocation,
    /// The servers; the first is the one that is judged. Empty: each case's usual ones.
    pub servers: Vec<String>,
    /// Names of the cases. Empty: all.
    pub cases: Vec<String>,
    /// The `stentor` binary.
    pub stentor: Option<PathBuf>,
    /// The folder of the peers.
    pub peers: PathBuf,
    /// Runs of each server in each case; `None`: the case's usual number, 2 of quick ones.
    pub pairs: Option<usize>,
    /// Short runs and few connections: for looking whether it works.
    pub quick: bool,
    /// The server's core.
    pub server_core: usize,
    /// The generator's core.
    pub generator_core: usize,
    /// The generator's driver.
    pub generator_driver: DriverKind,
    /// The congestion control, as it is to be printed.
    pub congestion: String,
    /// Messages a second of the open-loop echo, instead of 60 % of the reference's saturation.
    pub echo_rate_hz: Option<f64>,
    /// Seed of the bootstrap.
    pub seed: u64,
}

/// The server whose saturation sets the rate of the open-loop echo, where it takes part.
const REFERENCE: &str = "uws-cpp";
/// The share of that saturation that is offered to all.
const OFFERED_SHARE: f64 = 0.6;
/// The share of its core that the generator may need for the reference, so that it stays below its own limit
/// with the others.
const GENERATOR_SHARE: f64 = 0.65;

/// Runs everything; progress goes to `progress`, line by line.
pub fn run(options: &Options, progress: &mut dyn Write) -> Result<Report, Error> {
    let begin = Instant::now();
    let mut say = |line: String| {
        let at = begin.elapsed().as_secs();
        // Nobody may be listening; the run goes on.
        let _ = writeln!(progress, "{:02}:{:02} {line}", at / 60, at % 60);
    };
    let chosen = choose(&cases(options.quick), &options.cases)?;
    let contestants = gather(&chosen, options, &mut say)?;
    let mut reports = Vec::new();
    for mut case in chosen {
        let fits = |server: &str| match options.servers.is_empty() {
            true => case.usual.contains(&server),
            false => case.admits(server),
        };
        let mut fit: Vec<Contestant> =
            contestants.iter().filter(|contestant| fits(contestant.name())).cloned().collect();
        if options.servers.is_empty() {
            fit.sort_by_key(|contestant| case.usual.iter().position(|name| *name == contestant.name()));
        }
        if fit.is_empty() {
            let takes = if case.only.is_empty() { case.usual } else { case.only };
            say(format!("{}: none of the servers is there; it takes {}", case.name, takes.join(" or ")));
            continue;
        }
        if matches!(case.kind, CaseKind::Echo { .. }) {
            let offered = match options.echo_rate_hz {
                Some(rate_hz) => rate_hz,
                None => offered_rate(&case, &fit, options, &mut say)?,
            };
            if let CaseKind::Echo { rate_hz, .. } = &mut case.kind {
                *rate_hz = offered;
            }
        }
        reports.push(run_case(&case, &fit, options, &mut say)?);
    }
    Ok(Report { congestion: options.congestion.clone(), quick: options.quick, cases: reports })
}

/// The cases of these names.
fn choose(known: &[Case], names: &[String]) -> Result<Vec<Case>, Error> {
    let find = |name: &String| {
        known.iter().find(|case| case.name == *name).cloned().ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(|case| case.name).collect();
            Error::Usage(format!("there is no case `{name}`; there are {}", known.join(", ")))
        })
    };
    if names.is_empty() { Ok(known.to_vec()) } else { names.iter().map(find).collect() }
}

/// The servers that take part, installed. One that was named must be there; of the usual ones those that can't
/// be installed are left out, and that is said.
fn gather(
    chosen: &[Case],
    options: &Options,
    say: &mut impl FnMut(String),
) -> Result<Vec<Contestant>, Error> {
    let named = !options.servers.is_empty();
    let mut names: Vec<&str> = options.servers.iter().map(String::as_str).collect();
    if !named {
        for name in chosen.iter().flat_map(|case| case.usual) {
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    let mut contestants = Vec::new();
    for name in names {
        let found = Contestant::find(name, options).and_then(|contestant| {
            if let Some(install) = contestant.install() {
                say(format!("installing {name}"));
                install()?;
            }
            Ok(contestant)
        });
        match found {
            Ok(contestant) => contestants.push(contestant),
            Err(error) if named => return Err(error),
            Err(error) => say(format!("without {name}: {error}")),
        }
    }
    Ok(contestants)
}

/// The rate at which the reference is at 60 % of its saturation. A closed loop tells the order of magnitude,
/// but it batches more than an open loop does, and so takes less CPU per message; so a look at an open loop at
/// 60 % of that rate follows, and the rate is reduced until the reference's core is busy for 60 % of the time,
/// and the generator's for what the generator can be trusted with.
fn offered_rate(
    case: &Case,
    contestants: &[Contestant],
    options: &Options,
    say: &mut impl FnMut(String),
) -> Result<f64, Error> {
    let reference =
        contestants.iter().find(|contestant| contestant.name() == REFERENCE).unwrap_or(&contestants[0]);
    let closed = trial::saturate(case, reference, options)?;
    let rate_hz = closed.messages as f64 / closed.load.wall.as_secs_f64().max(1e-9);
    let mut offered = rate_hz * OFFERED_SHARE;
    let describe = |outcome: &Outcome| {
        format!(
            "server {:.0} %, generator {:.0} % of a core, {:.2} µs each",
            outcome.load.server_share() * 100.0,
            outcome.load.own_share() * 100.0,
            outcome.server_cpu_per_message().unwrap_or_default().as_secs_f64() * 1e6,
        )
    };
    let name = reference.name();
    say(format!("{}: {name} in a closed loop: {rate_hz:.0} echoes/s ({})", case.name, describe(&closed)));
    let open = trial::look(case, reference, offered, options)?;
    say(format!("{}: {name} in an open loop: {offered:.0} echoes/s ({})", case.name, describe(&open)));
    let server = OFFERED_SHARE / open.load.server_share().max(1e-9);
    let generator = GENERATOR_SHARE / open.load.own_share().max(1e-9);
    offered = (offered * server.min(generator).min(1.0)).round();
    say(format!("{}: {offered:.0} a second are offered to all", case.name));
    Ok(offered)
}

fn run_case(
    case: &Case,
    contestants: &[Contestant],
    options: &Options,
    say: &mut impl FnMut(String),
) -> Result<CaseReport, Error> {
    // The first one again, under another name: A against A.
    let mut names: Vec<String> = contestants.iter().map(|contestant| contestant.name().to_owned()).collect();
    names.push(format!("{} again", names[0]));
    let mut trials: BTreeMap<usize, Vec<Trial>> = BTreeMap::new();
    let pairs = options.pairs.unwrap_or(if options.quick { case.pairs.min(2) } else { case.pairs }).max(1);
    let total = names.len() * pairs;
    let mut done = 0;
    for round in 0..pairs {
        let order: Vec<usize> =
            if round % 2 == 0 { (0..names.len()).collect() } else { (0..names.len()).rev().collect() };
        for index in order {
            let contestant = &contestants[index % contestants.len()];
            let trial = match trial::run(case, contestant, round == 0, options) {
                // One server's failure doesn't throw away what the others gave.
                Err(error @ Error::Server { .. }) => Trial::failed(&error),
                other => other?,
            };
            done += 1;
            say(format!("{} {done}/{total} {}: {}", case.name, names[index], trial.summary()));
            trials.entry(index).or_default().push(trial);
            // The last server's sockets are being taken down still.
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let trials = trials.into_iter().map(|(index, trials)| (names[index].clone(), trials)).collect();
    Ok(CaseReport::new(case, trials, options.seed))
}
