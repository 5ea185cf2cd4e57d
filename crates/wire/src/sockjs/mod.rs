//! SockJS 0.3, as its runnable specification (sockjs-protocol, `main`) and sockjs-node 0.3.24 have it, for both roles.
//!
//! Paths become [`Route`]s, the answers' fixed parts come from [`answer`], [`Frame`]s are written in one of five
//! [`Wrapping`]s, bodies and WebSocket messages become [`Messages`]; for clients, [`ServerFrame`] and
//! [`FrameDecoder`]. Sessions are the caller's.
//!
//! Decisions:
//! * A message is text. Elements of an array that are no strings are refused; sockjs-node would hand them over.
//! * Half of a surrogate pair in a received string becomes U+FFFD: our strings are UTF-8. sockjs-node keeps it, and
//!   sends it back escaped. Characters outside the BMP are sent as they are.
//! * A message's place in a frame does not depend on its neighbours, nor on the receiver: the bytes between
//!   [`Wrapping::head`] and [`Wrapping::tail`] of encoded frames can be joined by commas to one frame of several
//!   messages, and a JSONP frame comes without its callback, which is the only thing that differs.
//! * In an HTML page every `<` of a message is escaped; sockjs-node lets `</script>` through.
//!
//! Deliberately absent: hixie-76 (one test of the specification wants it; no browser since 2012 speaks it, and its key
//! arithmetic needs eight bytes beyond the head), `/chunking_test`, `base_url` in `/info`.

pub mod answer;
mod client;
mod error;
mod frame;
mod incoming;
mod route;

pub use client::{FrameDecoder, Received, ServerFrame, write_messages};
pub use error::Error;
pub use frame::{Close, Frame, ResponseLimit, Wrapping, write_jsonp_callback};
pub use incoming::{Limits, Messages, jsonp_payload, parse_body, parse_websocket};
pub use route::{PART_BYTES_MAX, Resource, Route, Transport, parse_path};

#[cfg(test)]
mod tests;
