//! SockJS 0.3, as in its runnable specification (sockjs-protocol, `main`) and in sockjs-node 0.3.24, for both
//! roles.
//!
//! [`Route`] parses paths, [`answer`] has the fixed parts of responses, [`Frame`]s are written in one of five
//! [`Wrapping`]s, and [`Messages`] parses bodies and WebSocket messages. For clients there are
//! [`ServerFrame`] and [`FrameDecoder`]. The caller keeps the sessions.
//!
//! Decisions:
//! * A message is text. Array elements other than strings are refused; sockjs-node would deliver them.
//! * An unpaired surrogate in a received string becomes U+FFFD, because our strings are UTF-8. sockjs-node
//!   keeps it, and sends it back escaped. Characters outside the BMP are sent unescaped.
//! * The encoding of a message in a frame depends neither on other messages nor on the receiver. Therefore
//!   the bytes between [`Wrapping::head`] and [`Wrapping::tail`] of encoded frames can be joined with commas
//!   into one frame of several messages. A JSONP frame is encoded without its callback, the only part that
//!   differs.
//! * In an HTML page every `<` of a message is escaped; sockjs-node sends `</script>` unescaped.
//!
//! Deliberately absent: hixie-76 (one test of the specification requires it; no browser since 2012 uses it,
//! and its key arithmetic needs eight bytes after the head), `/chunking_test`, `base_url` in `/info`.

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
