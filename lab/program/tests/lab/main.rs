//! The generator, its scenarios and its reports. A test that reads this process's CPU clock has a program of its own.

// Tests may fail loudly, and say what they skip; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod bad_input;
mod bare;
mod bench;
mod ceiling;
mod counts;
mod fakes;
mod gate;
mod generator;
mod known_answers;
mod protocols;
mod report;
mod scenarios;
#[path = "../server/mod.rs"]
mod server;
