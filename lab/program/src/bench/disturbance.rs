//! Disturbances: a hypervisor that takes CPU (steal), other processes, a generator at its limit, and a changing CPU frequency. Each
//! run measures them. A disturbed run is repeated, at most twice, and in a case at most as often as it has rounds. Disturbances that
//! remain are warnings at the top of the report, with advice.

use std::collections::BTreeSet;

use super::{Effort, Report, Trial};
use crate::generator::{Cause, Doubt, OWN_CPU_MAX};

/// Names of context values in a run.
pub(super) const STEAL: &str = "CPU steal";
pub(super) const OTHERS: &str = "other processes' share of a core";
pub(super) const GENERATOR: &str = "generator share";
pub(super) const FREQUENCY: &str = "CPU MHz";
const REPEATED: &str = "repeated";

/// CPU steal above this share of the requested CPU time invalidates times.
const STEAL_MAX: f64 = 0.1;
/// CPU use of other processes above this share of one core invalidates times.
const OTHERS_MAX: f64 = 0.3;
/// Shares below this get no warning: they are below the resolution of the clock.
const WORTH_A_WARNING: f64 = 0.05;
/// The maximum difference in core frequency between runs.
const FREQUENCY_CHANGE_MAX: f64 = 0.05;
/// Maximum number of repetitions of one run.
const REPEATS_OF_RUN: u32 = 2;

/// The doubt about times if a hypervisor took `share` of the requested CPU time.
pub(super) fn steal_doubt(share: f64) -> Option<Doubt> {
    let what =
        || format!("the hypervisor took {:.0} % of the CPU that the cores requested (steal)", share * 100.0);
    (share > STEAL_MAX).then(|| Doubt::about_times(Cause::Steal, what()))
}

/// The doubt about times if other processes used this share of a core.
pub(super) fn others_doubt(share: f64) -> Option<Doubt> {
    let what = || format!("other processes used {:.0} % of a core", share * 100.0);
    (share > OTHERS_MAX).then(|| Doubt::about_times(Cause::OtherProcesses, what()))
}

/// Decides which runs of a case are repeated.
pub(super) struct Repeats {
    left: usize,
    /// Number of repetitions of the current run.
    tries: u32,
    /// Servers for which repetitions didn't help.
    hopeless: BTreeSet<String>,
}

impl Repeats {
    pub(super) fn new(effort: Effort, rounds: usize) -> Self {
        let left = if effort == Effort::Smoke { 0 } else { rounds };
        Self { left, tries: 0, hopeless: BTreeSet::new() }
    }

    /// Returns `true` if this run of `server` should be repeated.
    pub(super) fn wants(&mut self, server: &str, trial: &Trial) -> bool {
        let wants = trial.is_measured()
            && trial.doubts.iter().any(|doubt| doubt.latency_only)
            && self.left > 0
            && self.tries < REPEATS_OF_RUN
            && !self.hopeless.contains(server);
        match wants {
            true => (self.left, self.tries) = (self.left - 1, self.tries + 1),
            false => self.tries = 0,
        }
        wants
    }

    /// Returns the run or its repetition, whichever has fewer doubts.
    pub(super) fn better(&mut self, server: &str, first: Trial, second: Trial) -> Trial {
        let is_better = second.is_measured() && second.doubts.len() < first.doubts.len();
        if !is_better && self.tries == REPEATS_OF_RUN {
            self.hopeless.insert(server.to_owned());
        }
        let mut kept = if is_better { second } else { first };
        *kept.context.entry(REPEATED.to_owned()).or_default() += 1.0;
        kept
    }
}

/// Disturbances of these runs, with advice.
pub(crate) fn warnings(report: &Report) -> Vec<String> {
    let runs = || report.cases.iter().flat_map(|case| &case.servers).flat_map(|server| &server.trials);
    let total = runs().count();
    let mut warnings = Vec::new();
    let mut warn = |name: &str, least: f64, [what, of, todo]: [&str; 3]| {
        let shares = runs().filter_map(|run| run.context.get(name).copied());
        let shares: Vec<f64> = shares.filter(|share| *share > least).collect();
        let most = shares.iter().copied().fold(0.0, f64::max) * 100.0;
        if !shares.is_empty() {
            let count = shares.len();
            warnings.push(format!("{what} up to {most:.0} % of {of} in {count} of {total} runs. {todo}"));
        }
    };
    let steal = [
        "The hypervisor took",
        "the CPU that the cores requested (steal)",
        "Use a machine with dedicated cores, or measure at another time.",
    ];
    warn(STEAL, WORTH_A_WARNING, steal);
    let others = ["Other processes used", "a core", "Stop them, or raise the priority with --nice -10."];
    warn(OTHERS, WORTH_A_WARNING * 2.0, others);
    let generator = [
        "The generator used",
        "its core",
        "Those servers could do more: their rates are lower bounds. Use fewer connections, a lower rate (--echo-rate) or a faster core (--generator-core).",
    ];
    warn(GENERATOR, OWN_CPU_MAX, generator);
    let mhz: Vec<f64> = runs().filter_map(|run| run.context.get(FREQUENCY).copied()).collect();
    let (least, most) =
        mhz.iter().fold((f64::MAX, 0.0f64), |(least, most), mhz| (least.min(*mhz), most.max(*mhz)));
    if most > least * (1.0 + FREQUENCY_CHANGE_MAX) {
        warnings.push(format!(
            "The CPU frequency changed between runs, from {least:.0} to {most:.0} MHz. Set the governor `performance`."
        ));
    }
    let repeated: f64 = runs().filter_map(|run| run.context.get(REPEATED)).sum();
    if repeated > 0.0 {
        warnings.push(format!("Disturbed runs were repeated {repeated:.0} times."));
    }
    warnings
}

#[cfg(test)]
mod tests;
