//! Tests of the binary and of the project's documents. Tests that need minutes, other programs or real time
//! are in `slow`.

// Tests may panic; clippy only recognizes functions with the test attribute.
#![allow(clippy::unwrap_used)]

mod check;
mod cli;
mod dependencies;
mod documents;
mod links;
mod make;
mod metrics;
#[path = "../pages/mod.rs"]
mod pages;
#[path = "../process/mod.rs"]
mod process;
mod pushed;
mod secrets;
mod serve;
mod structure;
