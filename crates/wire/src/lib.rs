//! Sans-I/O parsers and encoders for HTTP/1.1, WebSocket and the protocols above them, in client and server
//! roles.
//!
//! The crate owns no socket, reads no clock, starts no thread and draws no random number: bytes come in,
//! events and bytes to transmit come out. Therefore every parser can be tested on a table, split at every
//! byte, and fuzzed.
//!
//! * [`engineio`]: Engine.IO 4 and 3: packets, payloads, requests.
//! * [`http1`]: request and response heads, body framing (RFC 9110, RFC 9112).
//! * [`socketio`]: Socket.IO 5 and 4: packets with their attachments.
//! * [`proxy`]: the header in which a proxy states its client's address (PROXY protocol 1 and 2).
//! * [`sockjs`]: paths, responses, frames and payloads (SockJS 0.3).
//! * [`sse`]: events, and ids that encode a client's position (WHATWG HTML, Server-Sent Events).
//! * [`primus`]: the messages of Primus 8.
//! * [`ws`]: the opening handshake, frames, messages and permessage-deflate (RFC 6455, RFC 7692).
//!
//! Invariants of the crate: input from a peer never causes a panic, never allocates by a size that the peer
//! merely declares, and costs time linear in the bytes received, however they are split. Splitting the same
//! bytes differently gives the same events.
#![forbid(unsafe_code)]

/// Declares the errors that a peer can make in a protocol: a variant each, with the status or close code that
/// answers it, and the description for logs.
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
            /// All variants, for documents and tests.
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
