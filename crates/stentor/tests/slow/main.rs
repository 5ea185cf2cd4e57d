//! Tests of the binary that need seconds of real time, many connections, or programs such as systemd, Redis, npm and Python.

// Tests may panic and print their findings; clippy only recognizes functions with the test attribute.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

mod cold_key;
mod commands;
mod descriptors;
mod engine_memory;
mod failing_upstreams;
mod fair_fetches;
#[path = "../pages/mod.rs"]
mod pages;
#[path = "../process/mod.rs"]
mod process;
#[path = "../../../cluster/tests/contract/redis_server.rs"]
#[allow(dead_code)] // the contract of engines uses more of it
mod redis_server;
mod systemd;
mod takeover;
