//! Encodes data for clients: publications, once per format and node, and messages to one session.
//!
//! | module | contents |
//! |---|---|
//! | `encoding` | encodings and their numbers |
//! | `publication` | encodes a publication |
//! | `content` | the content of publications for plain sessions, before framing |
//! | `events` | publications as Server-Sent Events |
//! | `session` | messages, events and acknowledgements to one session |
//! | `frame` | shared frames, chunks, and records that wait for a poll |
//! | `json` | JSON strings and values |
//!
//! This module knows neither connections nor cores nor the driver's sockets.

mod content;
mod encoding;
mod events;
mod frame;
mod json;
mod publication;
mod session;

pub(crate) use content::{content, raw, v1};
pub use encoding::CUSTOM_PROTOCOLS_MAX;
pub use encoding::Encoding;
pub(crate) use encoding::{ENCODINGS_MAX, EngineFraming, Own, OwnWire, Wire};
pub(crate) use frame::{
    BINARY, RECORD_HEAD_BYTES, SharedFrames, TEXT, record, records, unchunked, unchunked_bytes,
};
pub use json::json_error_text;
pub(crate) use json::{ERROR_BYTES_MAX, json_string};
pub(crate) use publication::{Encodings, FeedEvents, WINDOW_BITS, parse_offset};
