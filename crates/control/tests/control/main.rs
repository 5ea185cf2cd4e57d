//! Tests of the control plane over loopback sockets, with a fake data plane.

// Tests may panic; clippy only recognizes functions with the test attribute.
#![allow(clippy::unwrap_used)]

mod admin;
mod auth;
mod commands;
mod common;
mod feeds;
mod fetch;
mod push;
mod tls;
