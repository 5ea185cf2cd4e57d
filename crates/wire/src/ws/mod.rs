//! WebSocket, RFC 6455, with permessage-deflate, RFC 7692, for both roles.
//!
//! [`handshake`] opens a connection. [`Connection`] is one side of it: bytes in, events and bytes to transmit
//! out. [`encode`], [`encode_with`] and [`server_header`] make frames. A server's frame has no mask, so it serves
//! every connection.
//!
//! Decisions:
//! * A complete frame is delivered in place in the caller's buffer, unmasked in place: no allocation, no
//!   copy. Only a message that arrives in pieces is copied, to memory that grows with the received bytes.
//! * A server never keeps its deflate context, so compressed frames can be shared. One inflater per core
//!   ([`Shared`]) serves all connections. Only the connection of a client that insists on its context has a
//!   window, from its first compressed message on.
//! * Large messages are inflated or delivered in steps ([`StepLimits`]), between which the caller serves
//!   other connections. At most one message per core is partly inflated.
//! * Errors are reported as early as the bytes allow: reserved bits with a frame's second byte, a size with
//!   its length field, malformed UTF-8 with the first invalid byte.
//! * The encoder never sends fragments. The decoder accepts lengths in more bytes than necessary, as other
//!   implementations do.
//!
//! Deliberately absent: other extensions, sending in fragments, timeouts (the caller's task, see
//! [`Connection::is_mid_message`]), and masks that resist a hostile caller (see [`Connection::seed_masks`]).

mod connection;
pub mod deflate;
mod error;
pub mod frame;
pub mod handshake;
mod mask;
mod outcome;
mod partial;
mod step;
mod types;
mod utf8;

pub use connection::Connection;
pub use deflate::{DeflateOptions, Deflater, Inflater, Negotiated};
pub use error::Error;
pub(crate) use frame::short_header;
pub use frame::{Header, HeaderBuf, Kind, Message, Opcode, encode, encode_with, server_header};
pub use mask::apply as apply_mask;
pub use types::{Event, Limits, Received, Role, Shared, StepLimits};

#[cfg(test)]
mod tests;
