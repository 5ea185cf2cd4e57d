//! The hub: one test per rule, and a random test against a model. The memory tests are separate programs.

// Tests may panic and print the failed seed; clippy only recognizes functions with the test attribute.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod attendance;
mod cluster;
mod concurrent_encoding;
mod feeds;
mod handover;
mod model;
mod node;
mod presence;
mod protocol;
mod reserved;
mod select;
mod sockets;
