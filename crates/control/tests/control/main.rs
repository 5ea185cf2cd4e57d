//! The control plane over loopback, in front of a fake data plane.

// Tests may panic; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used)]

#[macro_use]
#[path = "../../../edge/tests/harness/ignore.rs"]
mod ignore;
mod admin;
mod auth;
mod commands;
mod common;
mod feeds;
mod fetch;
mod push;
mod tls;
