//! Simulations from seeds. A failing run is repeated with fewer steps, until all remaining ones are needed, and
//! printed.

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// Maximum number of repetitions of a failing run.
const ATTEMPTS_MAX: usize = 2_000;

thread_local! {
    /// `true` while panics of this thread are expected: they aren't printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A run of a simulation.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    /// The numbers of its steps.
    pub(crate) steps: Vec<u64>,
    /// Notes about the steps so far.
    trace: Vec<String>,
}

impl Run {
    /// The random numbers of a step. They don't depend on the other steps.
    pub(crate) fn random(&self, step: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step)
    }

    /// Adds a note about a step to the trace, which is printed if the run fails.
    pub(crate) fn note(&mut self, step: u64, what: impl Into<String>) {
        self.trace.push(format!("step {step}: {}", what.into()));
    }

    /// Runs the simulation. Returns the notes of the run if it fails.
    fn fails(&self, simulation: &mut impl FnMut(&mut Self)) -> Option<Vec<String>> {
        let mut run = Self { trace: Vec::new(), ..self.clone() };
        let was_quiet = IS_QUIET.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| simulation(&mut run)));
        IS_QUIET.set(was_quiet);
        let panic = result.err()?;
        let message = panic.downcast_ref::<String>().map(String::as_str);
        run.trace.push(message.or(panic.downcast_ref().copied()).unwrap_or("a panic").into());
        Some(run.trace)
    }

    /// Removes steps from this failing run as long as it still fails. Without any one of the remaining steps, it passes.
    fn shrunk(mut self, simulation: &mut impl FnMut(&mut Self)) -> Self {
        let mut attempts = 0;
        let mut still_fails = |run: &Self| {
            attempts += 1;
            attempts <= ATTEMPTS_MAX && run.fails(simulation).is_some()
        };
        let mut chunk = self.steps.len().div_ceil(2);
        loop {
            let before = self.steps.len();
            let mut at = 0;
            while at < self.steps.len() {
                let mut shorter = self.clone();
                shorter.steps.drain(at..(at + chunk).min(self.steps.len()));
                if still_fails(&shorter) {
                    self = shorter;
                } else {
                    at += chunk;
                }
            }
            if chunk == 1 && self.steps.len() == before {
                return self;
            }
            chunk = (chunk / 2).max(1);
        }
    }
}

/// Runs a simulation with each of the seeds. `STENTOR_SEED` is the first of as many seeds instead. `simulation` panics
/// if something is wrong.
pub(crate) fn simulate(seeds: Range<u64>, steps: u64, mut simulation: impl FnMut(&mut Run)) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                hook(info);
            }
        }));
    });
    let first = std::env::var("STENTOR_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let first = first.unwrap_or(seeds.start);
    for seed in first..first + (seeds.end - seeds.start) {
        let run = Run { seed, steps: (0..steps).collect(), trace: Vec::new() };
        let Some(whole) = run.fails(&mut simulation) else { continue };
        let mut run = run.shrunk(&mut simulation);
        // A failure that depends on the order of a map may not happen again.
        let trace = run.fails(&mut simulation).unwrap_or(whole).join("\n");
        println!("seed {seed} fails with these steps:\n{trace}");
        run.trace.clear();
        simulation(&mut run);
        panic!("seed {seed} failed before, and doesn't now");
    }
}

#[test]
fn a_run_that_fails_is_made_as_short_as_possible() {
    let mut simulation = |run: &mut Run| assert!(!run.steps.contains(&3) || !run.steps.contains(&77));
    let run = Run { seed: 1, steps: (0..100).collect(), trace: Vec::new() };
    assert_eq!(run.shrunk(&mut simulation).steps, [3, 77]);
}
