//! The drivers: one suite for all of them, and tests of each one. The test that lowers the process's limit of file descriptors is a
//! program of its own.

// Tests may panic; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod pairs;
mod simulation;
mod suite;
mod uring;
