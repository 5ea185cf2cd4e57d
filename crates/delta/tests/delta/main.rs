//! Deltas: their operations, correctness and cost, and resistance to hostile documents.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "tests that print skipped cases and results; clippy only recognizes functions marked as tests"
)]

mod counts;
mod generate;
mod hostile;
mod ignored;
mod operations;
mod random;
mod recorded;
mod update;

use stentor_delta::{Delta, Differ, Options, Seed};

fn differ() -> Differ {
    Differ::new(Options::default(), Seed([1, 2]))
}

/// Returns the delta of two texts, and the steps that it took.
fn diff(differ: &Differ, old: &str, new: &str) -> (Delta, u64) {
    let (old, new) = (differ.parse(old.as_bytes()).unwrap(), differ.parse(new.as_bytes()).unwrap());
    let diff = differ.diff(&old, &new);
    (diff.delta, diff.steps)
}
