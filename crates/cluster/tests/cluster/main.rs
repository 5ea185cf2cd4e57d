//! Several nodes on an engine in memory, and the codecs between them. Engines on real servers are in `contract`. Tests
//! that measure the memory of the process are programs of their own.

// Tests may panic; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used)]

#[path = "../contract/feeds.rs"]
mod feeds;
mod fixture;
mod growth;
#[path = "../contract/harness.rs"]
#[allow(dead_code)] // Engines that share servers use more of it.
mod harness;
mod memory;
#[path = "../contract/messages.rs"]
mod messages;
mod nodes;
#[path = "../contract/registry.rs"]
mod registry;
mod relay;
#[path = "../contract/rooms.rs"]
mod rooms;
mod socketio;
mod sockets;

use harness::*;
