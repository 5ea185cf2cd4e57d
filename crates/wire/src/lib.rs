//! Bytes to typed events and back: HTTP/1.1, WebSocket and what is spoken over them, client and server roles, no I/O.
//!
//! Nothing here owns a socket, reads a clock, starts a thread or draws a random number: bytes come in, events and
//! bytes to transmit come out. So every parser can be tested on a table, split at every byte, and fuzzed.
//!
//! * [`engineio`]: Engine.IO 4 and 3: packets, payloads, requests.
//! * [`http1`]: request and response heads, body framing (RFC 9110, RFC 9112).
//! * [`socketio`]: Socket.IO 5 and 4: packets with their attachments.
//! * [`sockjs`]: paths, answers, frames and payloads (SockJS 0.3).
//! * [`sse`]: events, and ids that say where a client is (WHATWG HTML, Server-Sent Events).
//! * [`primus`]: the messages of Primus 8.
//! * [`ws`]: the opening handshake, frames, messages and permessage-deflate (RFC 6455, RFC 7692).
//!
//! Invariants of the crate: what a peer sends never panics, never allocates by a size the peer merely declares, and
//! costs time linear in the bytes received, however they are cut into pieces. Cutting the same bytes differently gives
//! the same events.
#![forbid(unsafe_code)]

pub mod engineio;
pub mod http1;
pub mod primus;
pub mod socketio;
pub mod sockjs;
pub mod sse;
pub mod ws;
