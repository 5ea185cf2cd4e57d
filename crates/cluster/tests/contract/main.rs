//! The contract of `Engine`, checked for each implementation. To add one, implement [`Fixture`] and list it in a module.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // Tests may panic; clippy knows only functions marked as such.

mod bridge_cluster;
mod feeds;
mod harness;
mod messages;
mod nats;
mod nats_cluster;
mod nats_security;
mod nats_server;
mod proxy;
mod redis;
mod redis_acl;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod redis_tls;
mod registry;
mod rooms;
mod servers;

use harness::*;
