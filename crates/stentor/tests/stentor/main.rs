//! The binary and the project's documents. What needs minutes, other programs or real time is in `slow`.

// Tests may panic; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod cli;
mod dependencies;
mod documents;
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
