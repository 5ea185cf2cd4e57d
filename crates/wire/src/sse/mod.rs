//! Server-Sent Events, as the WHATWG HTML standard section 9.2 has them, for both roles.
//!
//! [`write_event`] makes events, [`Decoder`] reads a stream of them, [`Positions`] is what we put in their ids: where a
//! client is in each of the feeds of its stream, to go on from there when it comes back with `Last-Event-ID`.
//!
//! A stream of one feed can have the id in the shared event. A stream of several can't, as its id differs per client:
//! there the shared event has none, and [`write_position_id`] is sent right before it. The lines of an event may come
//! in any order, and the id holds until the next one, so both are one event.
//!
//! Deliberately absent: time-outs and reconnecting (the caller's; [`Decoded::Retry`] says how long to wait).

mod decode;
mod error;
mod position;
mod write;

pub use decode::{Decoded, Decoder, Received};
pub use error::Error;
pub use position::{ID_BYTES_MAX, KEY_BYTES_MAX, POSITIONS_MAX, Position, Positions, write_position_id};
pub use write::{Event, write_comment, write_event, write_retry};

/// The content type of a stream.
pub const CONTENT_TYPE: &str = "text/event-stream";

#[cfg(test)]
mod tests;
