//! The data plane over real sockets, in one binary because linking is what takes the time. Tests that measure the memory or the
//! processor time of their process have binaries of their own.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod app;
mod authorizer;
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
mod engineio;
mod events;
mod feed;
#[path = "../harness/mod.rs"]
mod harness;
mod http;
mod identity;
mod interest;
mod last_messages;
mod leaving;
mod limits;
mod origin;
mod overload;
mod presence;
mod primus;
mod protocol;
mod recovery;
mod rooms;
mod settings;
mod socketio;
mod sockjs;
mod sse;
mod threats;
mod threats_attachments;
mod threats_io;
mod tls;
mod turns;
mod websocket;
