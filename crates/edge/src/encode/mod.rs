//! What Stentor writes to clients: publications, encoded once per format and node, and messages to one session.
//!
//! | module | contents |
//! |---|---|
//! | `format` | the wire formats of publications |
//! | `publication` | encodes a publication in a format |
//! | `content` | what a publication says to plain sessions, before it is framed |
//! | `events` | publications as Server-Sent Events |
//! | `session` | messages, events and acknowledgements to one session |
//! | `frame` | WebSocket frames, chunks, and records that wait for a poll |
//! | `json` | JSON strings and values |
//!
//! Nothing here knows a connection, a core or the driver's sockets.

mod content;
mod events;
mod format;
mod frame;
mod json;
mod publication;
mod session;

pub use format::CUSTOM_PROTOCOLS_MAX;
pub(crate) use format::Format;
pub(crate) use frame::{
    BINARY, RECORD_HEAD_BYTES, TEXT, frame, records, sockjs_frame, unchunked, unchunked_bytes,
};
pub(crate) use json::{ERROR_BYTES_MAX, json_error_text, json_string};
pub(crate) use publication::{FeedEvents, Formats, WINDOW_BITS, parse_offset};
pub(crate) use session::{EngineWriter, FrameTarget, Writer};
