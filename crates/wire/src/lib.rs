//! Bytes to typed events and back: HTTP/1.1, WebSocket and what is spoken over them, client and server roles, no I/O.
//!
//! Nothing here owns a socket, reads a clock, starts a thread or draws a random number: bytes come in, events and
//! bytes to transmit come out. So every parser can be tested on a table, split at every byte, and fuzzed.
//!
//! * [`engineio`]: Engine.IO 4 and 3: packets, payloads, requests.
//! * [`http1`]: request and response heads, body framing (RFC 9110, RFC 9112).
//! * [`socketio`]: Socket.IO 5 and 4: packets with their attachments.
//! * [`proxy`]: the header by which a proxy tells who its client is (PROXY protocol 1 and 2).
//! * [`sockjs`]: paths, answers, frames and payloads (SockJS 0.3).
//! * [`sse`]: events, and ids that say where a client is (WHATWG HTML, Server-Sent Events).
//! * [`primus`]: the messages of Primus 8.
//! * [`ws`]: the opening handshake, frames, messages and permessage-deflate (RFC 6455, RFC 7692).
//!
//! Invariants of the crate: what a peer sends never panics, never allocates by a size the peer merely declares, and
//! costs time linear in the bytes received, however they are cut into pieces. Cutting the same bytes differently gives
//! the same events.
#![forbid(unsafe_code)]

/// Declares what a peer can do wrong in a protocol: a variant each, with what answers it and how a log describes it.
macro_rules! faults {
    ($(#[$doc:meta])* pub enum $name:ident; $($(#[$fault_doc:meta])* $fault:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$fault_doc])* $fault,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $($name::$fault => $text,)*
                })
            }
        }

        impl std::error::Error for $name {}
    };
    (
        $(#[$doc:meta])* pub enum $name:ident;
        $(#[$answer_doc:meta])* pub fn $answer:ident;
        $($(#[$fault_doc:meta])* $fault:ident = $value:literal, $text:literal,)*
    ) => {
        faults! { $(#[$doc])* pub enum $name; $($(#[$fault_doc])* $fault = $text,)* }

        impl $name {
            /// All of them, for documents and tests.
            pub const ALL: &[Self] = &[$(Self::$fault),*];

            $(#[$answer_doc])*
            pub fn $answer(&self) -> u16 {
                match self {
                    $(Self::$fault => $value,)*
                }
            }
        }
    };
}

pub mod engineio;
pub mod http1;
pub mod primus;
pub mod proxy;
pub mod socketio;
pub mod sockjs;
pub mod sse;
pub mod ws;
