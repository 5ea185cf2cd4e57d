//! The drivers: one suite for all of them, and what each has alone. A test that lowers the process's limit of descriptors has a
//! program of its own.

// Tests may panic; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod pairs;
mod simulation;
mod suite;
mod uring;
