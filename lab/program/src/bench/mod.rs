//! Compares servers by alternating runs.
//!
//! In each case every server runs in a fresh process, in the order A B C, C B A, A B C …, so that drift of the machine affects all
//! alike. The result is the median of the ratios of runs with the same number, with an interval. The first server, the baseline,
//! also runs under a second name: this A/A test shows how much two runs of the same server differ. A disturbed run is repeated
//! (`disturbance`).

mod case;
mod curve;
mod delivery;
mod disturbance;
mod engine;
mod metric;
mod overload;
mod progress;
mod proxy;
mod report;
mod running;
mod sampler;
mod search;
mod sentence;
mod servers;
mod setup;
mod source;
mod stats;
mod trial;

pub use case::Effort;
pub(crate) use case::{Case, Course, Goal};
pub(crate) use curve::Curve;
pub(crate) use disturbance::warnings;
pub use metric::Metric;
pub(crate) use metric::{grouped, separated};
pub use progress::Bar;
pub(crate) use report::lag_ms;
pub use report::{CaseReport, Report, ServerReport, Verdict};
pub use servers::{Application, Contestant};
pub(crate) use stats::{Interval, Rule, detectable, is_beyond, median, unpaired_resolution};
pub(crate) use trial::LAG;
pub use trial::Trial;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};

use self::disturbance::Repeats;
use self::progress::Progress;
use crate::Error;
use crate::catalogue::{Catalogue, Running};
use crate::generator::{LoadSpec, Outcome};
use crate::measure::{congestion_control, cores, enter_namespace, is_over, left_out, take_priority};

/// Placement of servers and generators.
#[derive(Clone, Debug, Default, Args)]
pub struct Placing {
    /// The `stentor` binary [default: the one beside this program].
    #[arg(long)]
    pub stentor: Option<PathBuf>,
    /// The folder of the peers.
    #[arg(long, default_value = "lab/peers")]
    pub peers_dir: PathBuf,
    /// The congestion control of loopback, in a network namespace; `system` for the system's default.
    #[arg(long, default_value = "cubic")]
    pub congestion: String,
    /// The core of the server.
    #[arg(long, default_value_t = 0)]
    pub server_core: usize,
    /// The core of the generator.
    #[arg(long, default_value_t = 1)]
    pub generator_core: usize,
    /// Scheduling priority of servers and generators, -20 to 19; below 0 keeps a busy machine out of the result.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_parser = value_parser!(i32).range(-20..=19))]
    pub nice: i32,
}

/// Value of `--congestion` that means no network namespace.
const SYSTEM: &str = "system";

impl Placing {
    /// Moves this process to the network namespace and priority of servers and generators, and sets `congestion` to the congestion control
    /// there. The new process gets the names in `left_out`. No namespace is used `beside` a server that runs outside.
    pub(crate) fn enter(
        &mut self,
        left_out: &[String],
        beside: bool,
        progress: &mut dyn Write,
    ) -> Result<(), Error> {
        self.congestion = match self.congestion.as_str() {
            wanted if beside || wanted == SYSTEM => congestion_control(),
            wanted => enter_namespace(wanted, left_out).unwrap_or_else(|why| {
                let system = congestion_control();
                let _ =
                    writeln!(progress, "no network namespace ({why}); congestion control {system} for all");
                system
            }),
        };
        match self.nice {
            0 => Ok(()),
            nice => take_priority(nice).map_err(Error::io("setting the priority (--nice)")),
        }
    }
}

/// Selection of cases and servers, and the way in which they run.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Servers that take part, Stentor's own first; NAME:PROTOCOL for a server that speaks several [default: those of the scenario].
    #[arg(long = "peers", value_delimiter = ',', alias = "servers")]
    pub servers: Vec<String>,
    /// The cases to run [default: all].
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Runs of each server [default: smoke 1, quick up to 6 as needed for the interval, full 6; fewer for long cases].
    #[arg(long, value_parser = at_least_one)]
    pub pairs: Option<usize>,
    /// Messages per second of an open-loop echo, instead of 60 % of the slowest server's rate.
    #[arg(long = "echo-rate")]
    pub echo_rate_hz: Option<f64>,
    /// The cores on which servers and generators run.
    #[command(flatten)]
    pub placing: Placing,
    /// The effort of the run.
    #[arg(skip)]
    pub effort: Effort,
    /// The lab's program, which is started again for its generators.
    #[arg(skip)]
    pub program: PathBuf,
    /// Shows the progress of a run on a terminal.
    #[arg(skip)]
    pub live: Option<Bar>,
    /// A running server that isn't started by the lab: `catalogue::TARGET`.
    #[arg(skip)]
    pub target: Option<Running>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "it has to be a number from 1".to_owned())
}

impl Options {
    /// The default options for this program, without a network namespace.
    pub fn new(program: PathBuf, peers_dir: PathBuf) -> Self {
        let generator_core = usize::from(cores() > 1);
        let congestion = SYSTEM.to_owned();
        let placing = Placing { peers_dir, generator_core, congestion, ..Placing::default() };
        Self { placing, ..Self::default() }.started_by(program)
    }

    /// Completes these options for this program. Without a named `stentor` binary, they use the one beside the program,
    /// if there is one.
    pub(crate) fn started_by(mut self, program: PathBuf) -> Self {
        let beside = program.with_file_name("stentor");
        self.placing.stentor = self.placing.stentor.or(beside.exists().then_some(beside));
        Self { program, ..self }
    }

    /// Number of runs of each server in this case, and the rule for ending early. A number given by the user is fixed.
    fn pairs_of(&self, case: &Case) -> (usize, Rule) {
        match self.pairs {
            Some(pairs) => (pairs.max(1), Rule::Fixed),
            None => (case.pairs, self.effort.rule()),
        }
    }

    /// Returns `true` if the baseline has an A/A test in this case, with this many servers.
    fn has_again(&self, case: &Case, servers: usize) -> bool {
        case.pairs > 1 || (self.pairs_of(case).0 > 1 && servers > 1)
    }
}

/// The share of the slowest server's saturation that an open loop sends to all servers.
const OFFERED_SHARE: f64 = 0.6;
/// The maximum share of its core that the generator may use with the slowest server, so that it stays below its own limit with the
/// others.
const GENERATOR_SHARE: f64 = 0.65;
/// Pause between two runs, while the last server's sockets are closed.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs these cases with the servers of `gathered`. Runs in `before` aren't repeated. `keep` receives the report after each run.
pub(crate) fn run_cases(
    chosen: Vec<Case>,
    (contestants, left_out): Gathered,
    options: &Options,
    before: &Report,
    progress: &mut dyn Write,
    keep: &mut dyn FnMut(&Report) -> Result<(), Error>,
) -> Result<Report, Error> {
    let progress = &mut Progress::new(progress);
    let options = &Options { live: progress.live(), ..options.clone() };
    let missing = if options.servers.is_empty() { Vec::new() } else { left_out };
    let servers = contestants.len();
    let with_again = |case: &Case| servers + usize::from(options.has_again(case, servers));
    let runs_of = |case: &Case| options.pairs_of(case).0 * with_again(case);
    let longest = options.effort == Effort::Quick && options.pairs.is_none();
    let longest = longest.then(|| chosen.iter().map(|case| stats::quick_time(with_again(case))).sum());
    // If each case has its own servers, the total isn't known yet.
    let runs = if options.servers.is_empty() { 0 } else { chosen.iter().map(runs_of).sum() };
    progress.expect(runs, longest);
    let mut report = Report { congestion: options.placing.congestion.clone(), missing, cases: Vec::new() };
    for mut case in chosen {
        if case.proxied && !proxy::is_installed() {
            progress.say(&format!("{}: skipped, nginx isn't installed", case.name));
            progress.skip(runs_of(&case));
            continue;
        }
        let fit = fitting(&case, &contestants, options, progress);
        if fit.is_empty() {
            let takes = if case.only.is_empty() { &case.servers } else { &case.only };
            progress.say(&format!("{}: none of its servers is there: {}", case.name, takes.join(", ")));
            progress.skip(runs_of(&case));
            continue;
        }
        if !options.servers.is_empty() {
            // Removes goals about other servers.
            case.goals.retain(|goal| {
                goal.against.as_ref().is_none_or(|against| fit.iter().any(|one| one.name() == against))
            });
        }
        let before = before.cases.iter().find(|before| before.name == case.name);
        if case.offered_hz().is_some() {
            let offered = match options.echo_rate_hz.or(before.and_then(|before| before.rate_hz)) {
                Some(rate_hz) => rate_hz,
                None => offered_rate(&case, &fit, options, progress)?,
            };
            if let LoadSpec::EchoOpen { rate_hz, .. } = &mut case.load {
                *rate_hz = offered;
            }
        }
        let nth = report.cases.len();
        progress.skip((servers - fit.len()) * options.pairs_of(&case).0);
        run_case(&case, &fit, options, before, progress, &mut |found| {
            report.cases.truncate(nth);
            report.cases.push(found);
            // After a signal, its handler writes the last output.
            if is_over() { Ok(()) } else { keep(&report) }
        })?;
    }
    Ok(report)
}

/// The cases with these names.
pub(crate) fn choose(known: &[Case], names: &[String]) -> Result<Vec<Case>, Error> {
    let find = |name: &String| crate::named("case", name, known, |case| &case.name).cloned();
    if names.is_empty() { Ok(known.to_vec()) } else { names.iter().map(find).collect() }
}

/// The servers that take part in this case.
fn fitting(
    case: &Case,
    contestants: &[Contestant],
    options: &Options,
    progress: &mut Progress<'_>,
) -> Vec<Contestant> {
    if options.servers.is_empty() {
        let named = |name: &String| contestants.iter().find(|contestant| contestant.name() == name);
        return case.servers.iter().filter_map(named).cloned().collect();
    }
    let mut fit = Vec::new();
    for contestant in contestants {
        let why = if !case.admits(&contestant.known) {
            "it doesn't speak a protocol of this case".to_owned()
        } else if contestant.holds() < case.held() {
            format!("a process of it holds {} connections", contestant.holds())
        } else {
            fit.push(contestant.clone());
            continue;
        };
        progress.say(&format!("{}: without {}: {why}", case.name, contestant.name()));
    }
    fit
}

/// The servers that take part, and the names of those that can't.
pub(crate) type Gathered = (Vec<Contestant>, Vec<String>);

/// Finds the servers that these options select for these cases, and installs them: nothing can be downloaded in a network namespace.
/// Servers that can't be installed are reported and left out.
pub(crate) fn gather(cases: &[Case], options: &Options, progress: &mut dyn Write) -> Result<Gathered, Error> {
    let progress = &mut Progress::new(progress);
    let named = !options.servers.is_empty();
    let mut names = options.servers.clone();
    for name in cases.iter().flat_map(|case| &case.servers).filter(|_| !named) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    if let Some(twice) = names.iter().enumerate().find(|(nth, name)| names[..*nth].contains(name)) {
        return Err(Error::Usage(format!("{} is named twice", twice.1)));
    }
    let catalogue = Catalogue::read(&options.placing.peers_dir)?;
    let outside = left_out();
    let (mut contestants, mut left_out) = (Vec::new(), Vec::new());
    for name in names {
        if outside.as_ref().is_some_and(|left_out| left_out.contains(&name)) {
            left_out.push(name);
            continue;
        }
        let found = Contestant::find(&name, &catalogue, options).and_then(|contestant| {
            if let (Some(peer), None) = (&contestant.known.peer, &outside) {
                if !peer.is_installed() {
                    progress.say(&format!("installing {name}"));
                }
                peer.install()?;
            }
            Ok(contestant)
        });
        match found {
            Ok(contestant) => contestants.push(contestant),
            Err(error @ Error::Usage(_)) if named => return Err(error),
            Err(error) => {
                progress.say(&format!("without {name}: {error}"));
                left_out.push(name);
            }
        }
    }
    Ok((contestants, left_out))
}

/// Rate of an open loop: 60 % of the slowest server's capacity. A closed loop gives the order of magnitude, but it batches more than
/// an open loop and so takes less CPU per message. An open loop at 60 % of that rate follows. The rate is then reduced until the
/// server's core is busy for 60 % of the time, and the generator's for at most its own limit.
fn offered_rate(
    case: &Case,
    contestants: &[Contestant],
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<f64, Error> {
    let mut slowest = None;
    for contestant in contestants {
        let closed = match trial::look(case, contestant, None, options) {
            Ok(closed) => closed,
            // Each run of this server reports the failure.
            Err(Error::Server { .. }) if contestants.len() > 1 => continue,
            Err(error) => return Err(error),
        };
        let rate_hz = closed.messages as f64 / closed.load.wall.as_secs_f64().max(1e-9);
        if slowest.as_ref().is_none_or(|(_, slowest_hz, _)| rate_hz < *slowest_hz) {
            slowest = Some((contestant, rate_hz, closed));
        }
    }
    let (slowest, rate_hz, closed) =
        slowest.ok_or_else(|| Error::Generator("none of the servers could be saturated".into()))?;
    let mut report = |what: &str, rate_hz: f64, outcome: &Outcome| {
        let (server, own) = (outcome.load.server_share() * 100.0, outcome.load.own_share() * 100.0);
        let name = slowest.name();
        progress.say(&format!(
            "{}: {name}, {what}: {rate_hz:.0} echoes/s (server {server:.0} %, generator {own:.0} % of a core)",
            case.name
        ));
    };
    report("closed loop", rate_hz, &closed);
    let offered = rate_hz * OFFERED_SHARE;
    let open = trial::look(case, slowest, Some(offered), options)?;
    report("open loop", offered, &open);
    let server = OFFERED_SHARE / open.load.server_share().max(1e-9);
    let generator = GENERATOR_SHARE / open.load.own_share().max(1e-9);
    let offered = (offered * server.min(generator).min(1.0)).round();
    progress.say(&format!("{}: all are offered {offered:.0} a second", case.name));
    Ok(offered)
}

/// Runs one case. `keep` receives the report after each run.
fn run_case(
    case: &Case,
    contestants: &[Contestant],
    options: &Options,
    before: Option<&CaseReport>,
    progress: &mut Progress<'_>,
    keep: &mut dyn FnMut(CaseReport) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut names: Vec<String> = contestants.iter().map(|contestant| contestant.name().to_owned()).collect();
    let (pairs, rule) = options.pairs_of(case);
    let again = options.has_again(case, contestants.len());
    if again {
        names.push(format!("{} again", names[0]));
    }
    // Earlier runs, and room for the others.
    let mut trials: Vec<(String, Vec<Trial>)> = Vec::new();
    for name in &names {
        let known = before.and_then(|before| before.runs(name)).map_or(&[][..], |runs| &runs.trials);
        trials.push((name.clone(), known.iter().take(pairs).cloned().collect()));
    }
    let report = |trials: &[(String, Vec<Trial>)]| CaseReport::new(case, trials.to_vec(), again, rule);
    let total = names.len() * pairs;
    let measured = trials.iter().flat_map(|(_, runs)| runs).filter(|trial| trial.is_measured()).count();
    if measured > 0 {
        progress.say(&format!("{}: {measured} of {total} runs were measured before", case.name));
        progress.skip(measured);
        keep(report(&trials))?;
    }
    let mut repeats = Repeats::new(options.effort, pairs);
    let mut done = measured;
    let (clock, mut rounds) = (Instant::now(), 0);
    for round in 0..pairs {
        let before = done;
        let order: Vec<usize> =
            if round % 2 == 0 { (0..names.len()).collect() } else { (0..names.len()).rev().collect() };
        for index in order {
            if trials[index].1.get(round).is_some_and(Trial::is_measured) {
                continue;
            }
            let contestant = &contestants[index % contestants.len()];
            let begin = Instant::now();
            let run = || match case.course {
                Course::Search { first, within } => search::run(case, contestant, (first, within), options),
                _ => trial::run(case, contestant, round == 0, options),
            };
            let attempt = || match run() {
                // The failure of one server keeps the results of the others.
                Err(error @ Error::Server { .. }) => Ok(Trial::failed(&error)),
                other => other,
            };
            let mut trial = attempt()?;
            while repeats.wants(&names[index], &trial) {
                std::thread::sleep(PAUSE);
                trial = repeats.better(&names[index], trial, attempt()?);
            }
            done += 1;
            let mut line = format!("{} {done}/{total} {}: {}", case.name, names[index], trial.summary());
            match trials[index].1.get_mut(round) {
                Some(place) => *place = trial,
                None => trials[index].1.push(trial),
            }
            let found = report(&trials);
            let comparison = |metric: &Metric| found.servers[index].comparisons.get(metric);
            if let Some(comparison) = case.metrics.first().and_then(comparison) {
                line += &format!("; ratio so far {:.2}", comparison.ratio.median);
            }
            progress.made(&line, begin.elapsed());
            keep(found)?;
            std::thread::sleep(PAUSE);
        }
        rounds += u32::from(done > before);
        if rule == Rule::Sequential && round + 1 < pairs {
            let why = if report(&trials).suffices() {
                "the intervals suffice"
            } else if stats::is_late(round + 1, clock.elapsed(), rounds, names.len()) {
                "the time is used up"
            } else {
                continue;
            };
            progress.say(&format!("{}: {why} after {} rounds", case.name, round + 1));
            progress.skip((pairs - round - 1) * names.len());
            break;
        }
    }
    Ok(())
}
