//! WebSocket, RFC 6455, with permessage-deflate, RFC 7692, for both roles.
//!
//! [`handshake`] opens a connection, [`Connection`] is one side of it: bytes in, events and bytes to transmit out.
//! [`encode`] and [`server_header`] make frames; a server's frame has no mask, so one serves every connection.
//!
//! Decisions:
//! * A whole frame is delivered where it lies in the caller's buffer, unmasked in place: no allocation, no copy. Only
//!   a message that comes in pieces is gathered, in memory that grows with what has arrived.
//! * A server never keeps its deflate context, so compressed frames can be shared. One inflater per core ([`Shared`])
//!   does for all connections. Only the connection of a client that doesn't offer to do without its context has a window,
//!   from its first compressed message on.
//! * Large messages are inflated or delivered in steps ([`StepLimits`]), between which the caller serves other
//!   connections. At most one message per core is half inflated.
//! * Errors are found as early as the bytes allow: reserved bits with a frame's second byte, a size with its length
//!   field, bad UTF-8 with the byte that makes it bad.
//! * We never send fragments; a length in more bytes than it needs is accepted, as everywhere.
//!
//! Deliberately absent: other extensions, sending in fragments, time-outs (the caller's, see
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
pub use frame::{Header, HeaderBuf, Kind, Message, Opcode, encode, server_header};
pub use mask::apply as apply_mask;
pub use types::{Event, Limits, Received, Role, Shared, StepLimits};

#[cfg(test)]
mod tests;
