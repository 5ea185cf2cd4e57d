//! Servers against each other: alternating runs, and the table that comes of them.
//!
//! For each case every server runs as often as `pairs` says, a fresh process each time, in the order A B C C
//! B A A B C …, so that drift of the machine hits all alike. What is reported is the median of the ratios of
//! the runs with the same number, with a bootstrap interval; the first server is run under a second name as
//! well, which shows how much two runs of the same thing differ.

mod cases;
mod curve;
mod delivery;
mod metric;
mod progress;
mod proxy;
mod report;
mod running;
mod sampler;
mod search;
mod servers;
mod source;
mod stats;
mod table;
mod trial;

pub(crate) use cases::bound;
pub use cases::{Case, CaseKind, Pace, Target, cases};
pub use curve::Curve;
pub use metric::Metric;
pub use report::{CaseReport, Comparison, Report, ServerReport};
pub use servers::{Application, Contestant};
pub use stats::{Interval, median, ratio_interval};
pub(crate) use stats::{is_beyond, unpaired_resolution};
pub(crate) use trial::LAG;
pub use trial::Trial;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::proxy::Proxy;
pub use progress::Bar;
use progress::Progress;

use crate::Error;
use crate::catalogue::Catalogue;
use crate::generator::{DriverKind, Invocation, Outcome};
use crate::measure::is_over;

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
    /// Runs of each server in each case; `None`: the case's usual number.
    pub pairs: Option<usize>,
    /// How much time it may take.
    pub pace: Pace,
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
    /// Servers that [`install`] couldn't make ready, and told of; `None`: it hasn't tried.
    pub left_out: Option<Vec<String>>,
    /// Where it is told how a run goes while it goes: on a terminal.
    pub live: Option<Bar>,
}

impl Options {
    /// Runs of each server in this case.
    fn pairs_of(&self, case: &Case) -> usize {
        self.pairs.unwrap_or(case.pairs).max(1)
    }
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
    run_cases(cases(options.pace), options, &Before::new(), progress, &mut |_| Ok(()))
}

/// Makes the servers ready that [`run`] takes with these options: in a network namespace it can't fetch anything. Returns who
/// can't be, for [`Options::left_out`]; why is told.
///
/// # Errors
/// If a server or case that was named is unknown.
pub fn install(options: &Options, progress: &mut dyn Write) -> Result<Vec<String>, Error> {
    install_for(&cases(options.pace), options, progress)
}

/// As [`install`], for those of these cases that `options` name.
pub(crate) fn install_for(
    known: &[Case],
    options: &Options,
    progress: &mut dyn Write,
) -> Result<Vec<String>, Error> {
    let mut say = |line: String| drop(writeln!(progress, "{line}"));
    gather(&choose(known, &options.cases)?, options, &mut say).map(|gathered| gathered.left_out)
}

/// What was measured before a run was broken off, by the case's name.
pub(crate) type Before = BTreeMap<String, CaseBefore>;

/// Of one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseBefore {
    /// What an open loop offered.
    pub(crate) rate_hz: Option<f64>,
    /// The runs of each server, in order.
    pub(crate) trials: BTreeMap<String, Vec<Trial>>,
}

/// Runs those of these cases that `options` name. What was measured `before` isn't measured again. `keep` is given
/// what there is after each run.
pub(crate) fn run_cases(
    known: Vec<Case>,
    options: &Options,
    before: &Before,
    progress: &mut dyn Write,
    keep: &mut dyn FnMut(&Report) -> Result<(), Error>,
) -> Result<Report, Error> {
    let chosen = choose(&known, &options.cases)?;
    let mut progress = Progress::new(progress, 0);
    let options = &Options { live: progress.live(), ..options.clone() };
    let nothing = CaseBefore::default();
    let Gathered { contestants, missing, .. } =
        gather(&chosen, options, &mut |line: String| progress.say(&line))?;
    let servers = contestants.len();
    let runs_of = |case: &Case| {
        let again = case.again || (options.pairs_of(case) > 1 && servers > 1);
        options.pairs_of(case) * (servers + usize::from(again))
    };
    // Where each case has servers of its own, that isn't known before.
    progress.expect(if options.servers.is_empty() { 0 } else { chosen.iter().map(runs_of).sum() });
    let congestion = options.congestion.clone();
    let mut report = Report { congestion, pace: options.pace, missing, cases: Vec::new() };
    for mut case in chosen {
        if case.kind.is_proxied() && !Proxy::is_installed() {
            progress.say(&format!("{}: skipped, nginx isn't installed", case.name));
            progress.skip(runs_of(&case));
            continue;
        }
        let mut fit = Vec::new();
        for contestant in &contestants {
            let why_not = match options.servers.is_empty() {
                true if case.usual.contains(&contestant.name()) => None,
                true => continue,
                false if !case.admits(contestant.known()) => Some("that is none of this case's".to_owned()),
                false => (contestant.holds() < case.kind.held())
                    .then(|| format!("a process of it holds {} connections", contestant.holds())),
            };
            match why_not {
                None => fit.push(contestant.clone()),
                Some(why) => {
                    progress.say(&format!("{}: without {}: {why}", case.name, contestant.name()));
                }
            }
        }
        if options.servers.is_empty() {
            fit.sort_by_key(|contestant| case.usual.iter().position(|name| *name == contestant.name()));
        }
        if fit.is_empty() {
            let takes = if case.only.is_empty() { &case.usual[..] } else { case.only };
            progress.say(&format!(
                "{}: none of the servers is there; it takes {}",
                case.name,
                takes.join(" or ")
            ));
            progress.skip(runs_of(&case));
            continue;
        }
        let before = before.get(case.name).unwrap_or(&nothing);
        if matches!(case.kind, CaseKind::Echo { .. }) {
            let offered = match options.echo_rate_hz.or(before.rate_hz) {
                Some(rate_hz) => rate_hz,
                None => offered_rate(&case, &fit, options, &mut |line: String| progress.say(&line))?,
            };
            if let CaseKind::Echo { rate_hz, .. } = &mut case.kind {
                *rate_hz = offered;
            }
        }
        let nth = report.cases.len();
        progress.skip((servers - fit.len()) * options.pairs_of(&case));
        run_case(&case, &fit, options, before, &mut progress, &mut |found| {
            report.cases.truncate(nth);
            report.cases.push(found);
            // Whoever is ending this process has the last word.
            if is_over() { Ok(()) } else { keep(&report) }
        })?;
    }
    Ok(report)
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

/// Who takes part.
struct Gathered {
    contestants: Vec<Contestant>,
    /// Those that can't be installed.
    left_out: Vec<String>,
    /// Those of them that were named.
    missing: Vec<String>,
}

/// The servers that take part, installed, unless [`install`] has tried that before. Those that can't be are left out, and that is
/// said.
fn gather(chosen: &[Case], options: &Options, say: &mut impl FnMut(String)) -> Result<Gathered, Error> {
    let named = !options.servers.is_empty();
    let mut names: Vec<&str> = Vec::new();
    for name in &options.servers {
        if names.contains(&name.as_str()) {
            return Err(Error::Usage(format!("{name} is named twice")));
        }
        names.push(name);
    }
    if !named {
        for name in chosen.iter().flat_map(|case| &case.usual) {
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    let catalogue = Catalogue::read(&options.peers)?;
    let mut contestants = Vec::new();
    let mut left_out = Vec::new();
    for name in names {
        if options.left_out.as_ref().is_some_and(|told| told.iter().any(|told| told == name)) {
            left_out.push(name.to_owned());
            continue;
        }
        let found = Contestant::find(name, &catalogue, options).and_then(|contestant| {
            if let (Some(peer), None) = (&contestant.known().peer, &options.left_out) {
                if !peer.is_installed() {
                    say(format!("installing {name}"));
                }
                peer.install()?;
            }
            Ok(contestant)
        });
        match found {
            Ok(contestant) => contestants.push(contestant),
            Err(error @ Error::Usage(_)) if named => return Err(error),
            Err(error) => {
                say(format!("without {name}: {error}"));
                left_out.push(name.to_owned());
            }
        }
    }
    let missing = if named { left_out.clone() } else { Vec::new() };
    Ok(Gathered { contestants, left_out, missing })
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
    let reference = contestants.iter().find(|contestant| contestant.name() == REFERENCE);
    let reference = reference.unwrap_or(&contestants[0]);
    let candidates = if case.by_slowest { contestants } else { std::slice::from_ref(reference) };
    let mut slowest = None;
    for candidate in candidates {
        let closed = match trial::saturate(case, candidate, options) {
            Ok(closed) => closed,
            // It will be said of each of its runs.
            Err(Error::Server { .. }) if candidates.len() > 1 => continue,
            Err(error) => return Err(error),
        };
        let rate_hz = closed.messages as f64 / closed.load.wall.as_secs_f64().max(1e-9);
        if slowest.as_ref().is_none_or(|(_, slowest_hz, _)| rate_hz < *slowest_hz) {
            slowest = Some((candidate, rate_hz, closed));
        }
    }
    let nobody = || Error::Generator("none of the servers could be saturated".into());
    let (reference, rate_hz, closed) = slowest.ok_or_else(nobody)?;
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

/// The ratio of the decisive figure as far as it is known.
fn so_far(case: &Case, ours: &[Trial], theirs: &[Trial]) -> Option<f64> {
    let metric = *case.metrics.first()?;
    let figures = |runs: &[Trial]| runs.iter().map(|run| run.sound(metric)).collect::<Vec<_>>();
    median(&stats::ratios(&figures(ours), &figures(theirs)))
}

/// Runs one case; `keep` is given what there is after each run.
fn run_case(
    case: &Case,
    contestants: &[Contestant],
    options: &Options,
    before: &CaseBefore,
    progress: &mut Progress<'_>,
    keep: &mut dyn FnMut(CaseReport) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut names: Vec<String> = contestants.iter().map(|contestant| contestant.name().to_owned()).collect();
    let pairs = options.pairs_of(case);
    let again = case.again || (pairs > 1 && contestants.len() > 1);
    if again {
        // The first one under another name: A against A.
        names.push(format!("{} again", names[0]));
    }
    // Those that were measured before, and places for the others.
    let mut trials: Vec<(String, Vec<Trial>)> = Vec::new();
    for name in &names {
        let known = before.trials.get(name).map_or(&[][..], Vec::as_slice);
        trials.push((name.clone(), known.iter().take(pairs).cloned().collect()));
    }
    let total = names.len() * pairs;
    let measured = trials.iter().flat_map(|(_, runs)| runs).filter(|trial| trial.is_measured()).count();
    if measured > 0 {
        progress.say(&format!("{}: {measured} of {total} runs were measured before", case.name));
        progress.skip(measured);
        keep(CaseReport::new(case, trials.clone(), again, options.seed))?;
    }
    let mut done = measured;
    for round in 0..pairs {
        let order: Vec<usize> =
            if round % 2 == 0 { (0..names.len()).collect() } else { (0..names.len()).rev().collect() };
        for index in order {
            if trials[index].1.get(round).is_some_and(Trial::is_measured) {
                continue;
            }
            let contestant = &contestants[index % contestants.len()];
            let begin = Instant::now();
            let trial = match trial::run(case, contestant, round == 0, options) {
                // One server's failure doesn't throw away what the others gave.
                Err(error @ Error::Server { .. }) => Trial::failed(&error),
                other => other?,
            };
            done += 1;
            let summary = trial.summary();
            match trials[index].1.get_mut(round) {
                Some(place) => *place = trial,
                None => trials[index].1.push(trial),
            }
            let so_far = so_far(case, &trials[0].1, &trials[index].1).filter(|_| index > 0);
            let so_far = so_far.map(|ratio| format!("; {} has {ratio:.2} of it so far", names[0]));
            let line = format!(
                "{} {done}/{total} {}: {summary}{}",
                case.name,
                names[index],
                so_far.unwrap_or_default()
            );
            progress.made(&line, begin.elapsed());
            keep(CaseReport::new(case, trials.clone(), again, options.seed))?;
            // The last server's sockets are being taken down still.
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}
