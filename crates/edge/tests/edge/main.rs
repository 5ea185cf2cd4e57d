//! The data plane from its clients' side, on the virtual clock; and over real sockets, if the kernel is involved. Tests that
//! measure the memory or the processor time of their process have programs of their own.

// Tests may panic, and say what they found; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)]

mod app;
mod backpressure;
mod broker;
mod budget;
mod calls;
mod chat;
mod client_limits;
mod commands;
mod compatibility;
mod custom_protocol;
mod decisions;
mod deltas;
mod drain;
mod drivers;
mod encoding;
mod engineio;
mod events;
mod feed;
mod files;
#[path = "../harness/mod.rs"]
mod harness;
mod http;
mod identity;
mod interest;
mod intermediaries;
mod keys;
mod last_messages;
mod leaving;
mod limits;
mod link;
mod ndjson;
mod origin;
mod overload;
mod presence;
mod primus;
mod protocol;
mod recovery;
mod replicas;
mod rooms;
mod settings;
mod simulation;
mod socketio;
mod sockjs;
mod sse;
mod stage;
mod threats;
mod threats_io;
mod timelines;
mod tls;
mod turns;
mod websocket;
