//! Checks whether this machine is suitable for measurements, and how precise its figures are: its properties, and the
//! variation of identical work on it.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::bench::{detectable, median};
use crate::measure::{MachineTime, cores, is_fit_for_namespaces, pin_current};
use crate::payload;
use crate::scenario::Machine;
use crate::table::Table;

/// Time for which the idle machine is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// Number of pieces of identical work whose times are compared, and the approximate work of each.
const PIECES: usize = 60;
const PIECE_BYTES: usize = 1 << 20;
const ROUNDS: usize = 40;
/// File descriptors that the published cases need, besides the server's own.
const DESCRIPTORS: u64 = 20_000;
/// Runs of each server in a full run.
const RUNS: usize = 6;

#[derive(Debug)]
pub(crate) struct Findings {
    rows: Vec<(&'static str, String, Result<(), String>)>,
    /// The smallest difference that a full run can show (%).
    detectable_percent: f64,
}

/// Examines this machine for a server and a generator on these cores. Takes five seconds.
pub(crate) fn examine(server_core: usize, generator_core: usize, congestion: &str) -> Findings {
    let machine = Machine::here();
    let mut rows: Vec<(&'static str, String, Result<(), String>)> = Vec::new();
    let mut check = |what, found: String, fit: bool, advice: &str| {
        rows.push((what, found, if fit { Ok(()) } else { Err(advice.to_owned()) }));
    };
    let sys = |path: String| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
    let count = cores();
    check(
        "cores",
        count.to_string(),
        count >= 2 && server_core != generator_core,
        "server and generator share a core: throughput is meaningless, CPU per message is an upper bound",
    );
    let siblings = sys(format!("/sys/devices/system/cpu/cpu{server_core}/topology/thread_siblings_list"));
    let shares = siblings.as_deref().is_some_and(|list| are_siblings(list, generator_core));
    check(
        "hyperthreads",
        siblings.map_or("unknown".to_owned(), |list| format!("core {server_core} with {list}")),
        !shares,
        "server and generator share a physical core: choose others (--server-core, --generator-core)",
    );
    let governor = sys(format!("/sys/devices/system/cpu/cpu{server_core}/cpufreq/scaling_governor"));
    check(
        "CPU governor",
        governor.clone().unwrap_or_else(|| "not reported".to_owned()),
        governor.is_none_or(|governor| governor == "performance"),
        "the frequency changes during runs: set `performance` (cpupower frequency-set -g performance)",
    );
    let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    check(
        "file descriptors",
        descriptors.to_string(),
        descriptors >= DESCRIPTORS,
        "servers hold fewer connections than the cases need: raise the limit (ulimit -Hn)",
    );
    let namespace = is_fit_for_namespaces();
    check(
        "congestion control",
        match &namespace {
            Ok(()) => format!("{congestion} in a network namespace"),
            Err(why) => format!("the system's ({why})"),
        },
        namespace.is_ok(),
        "network namespaces aren't allowed: all servers get the system's congestion control",
    );
    let (steal, others) = watch();
    check(
        "CPU steal",
        format!("{:.1} %", steal * 100.0),
        steal < 0.02,
        "the hypervisor takes CPU: times vary, some runs will be repeated",
    );
    check(
        "other processes",
        format!("{:.0} % of a core", others * 100.0),
        others < 0.1,
        "stop them, or raise the priority (--nice -10)",
    );
    let noise = noise(generator_core);
    check(
        "noise of the same work",
        format!("{:.1} %", noise * 100.0),
        noise < 0.05,
        "the machine is busy, throttled or shared: differences have to be large",
    );
    if machine.is_virtual {
        check("machine", format!("virtual, {}", machine.cpu), true, "");
    }
    Findings { rows, detectable_percent: (detectable(noise.max(MESSAGING_NOISE), RUNS) - 1.0) * 100.0 }
}

/// Noise of a server's CPU per message on a quiet machine, in addition to the machine's.
const MESSAGING_NOISE: f64 = 0.02;

/// Returns `true` if a list such as `0-1,4` contains this core.
fn are_siblings(list: &str, core: usize) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&core))
    })
}

/// CPU steal, and the CPU of other processes as a share of a core, while this process is idle.
fn watch() -> (f64, f64) {
    let Ok(before) = MachineTime::now() else { return (0.0, 0.0) };
    std::thread::sleep(WATCHED);
    MachineTime::now().map_or((0.0, 0.0), |after| {
        (after.steal_since(&before), after.ran_since(&before).as_secs_f64() / WATCHED.as_secs_f64())
    })
}

/// The variation of the time of identical work: the median deviation from the median.
fn noise(core: usize) -> f64 {
    let _pinned = pin_current(core).ok();
    let bytes = vec![payload::PADDING; PIECE_BYTES];
    let piece = || {
        let begin = Instant::now();
        let sum = (0..ROUNDS).fold(0, |sum, _| payload::append(sum, &bytes));
        // Keeps the work from being optimised away.
        std::hint::black_box(sum);
        begin.elapsed().as_secs_f64()
    };
    let times: Vec<f64> = (0..PIECES).map(|_| piece()).collect();
    let middle = median(&times).unwrap_or(1.0);
    let deviations: Vec<f64> = times.iter().map(|time| (time / middle - 1.0).abs()).collect();
    median(&deviations).unwrap_or(0.0)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["", "found", ""]);
        for (what, found, fit) in &self.rows {
            table.push([*what, found, fit.as_ref().err().map_or("ok", String::as_str)]);
        }
        write!(f, "{table}")?;
        let percent = self.detectable_percent;
        writeln!(
            f,
            "\nA full run of six pairs shows a difference in CPU per message of about {percent:.0} % and more. Latency varies more, \
             throughput most."
        )
    }
}

#[cfg(test)]
mod tests;
