//! Server-Sent Events, as the WHATWG HTML standard section 9.2 has them, for both roles.
//!
//! [`write_event`] writes events, [`Decoder`] reads a stream of events. [`Positions`] is the content of our
//! event ids: the client's position in each feed of its stream, from which it continues when it reconnects
//! with `Last-Event-ID`.
//!
//! The id of a stream with one feed is part of the shared event. With several feeds the id differs per
//! client, so the shared event has no id, and [`write_position_id`] is sent right before it. The lines of an
//! event may come in any order and an id is valid until the next one, so both form one event.
//!
//! Deliberately absent: timeouts and reconnecting, which are the caller's task ([`Decoded::Retry`] has the
//! delay).

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
