//! Tests of the drivers: a suite for all of them, and tests of single drivers. The test that lowers the
//! process's limit of file descriptors is a separate program.

// Tests may panic; clippy only recognizes functions with the test attribute.
#![allow(clippy::unwrap_used)]

mod pairs;
mod simulation;
mod suite;
mod uring;
