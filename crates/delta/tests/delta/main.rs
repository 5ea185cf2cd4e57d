//! Deltas: which operations come, that they are right, what they cost, and what hostile documents can't do.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test, and it says what it skips and found; clippy knows only functions marked so"
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

/// The delta of two texts, and the steps it took.
fn diff(differ: &Differ, old: &str, new: &str) -> (Delta, u64) {
    let (old, new) = (differ.parse(old.as_bytes()).unwrap(), differ.parse(new.as_bytes()).unwrap());
    let diff = differ.diff(&old, &new);
    (diff.delta, diff.steps)
}
