//! HTTP/1.1 (and 1.0) heads and body framing, RFC 9110 and RFC 9112, for both roles.
//!
//! [`HeadScanner`] finds the end of a head. [`parse_request`] and [`parse_response`] parse it into values
//! that borrow the head. [`BodyDecoder`] then extracts the body from the stream.
//!
//! The parser is stricter than RFC 9112 wherever two readers of the same bytes could disagree about the end
//! of a message: a bare LF or CR, NUL, folded headers, space before a colon, Content-Length twice or together
//! with Transfer-Encoding, and a transfer coding other than exactly `chunked` are errors. The connection must
//! be closed after any error.
//!
//! Deliberately absent: HTTP/2, trailers (checked, counted, dropped), content codings, `Expect` other than
//! `100-continue`, Upgrade (see [`crate::ws::handshake`]).

mod body;
mod error;
mod forwarded;
mod head;
mod list;
mod query;
mod write;

pub use body::{BodyDecoder, BodyKind, CHUNK_EXTENSION_BYTES_MAX, Decoded, TRAILER_BYTES_MAX};
pub use error::Error;
pub use forwarded::{Hop, forwarded, forwarded_host, x_forwarded_for, x_forwarded_host};
pub use head::{
    Head, HeadScanner, Headers, Limits, Message, Request, Response, Version, find_header, parse_request,
    parse_response,
};
pub use list::tokens;
pub(crate) use list::{is_token, split_unquoted, trim};
pub use query::{percent_decode, query_pairs};
pub(crate) use write::write_headers;
pub use write::{write_chunk, write_header, write_last_chunk, write_request_head, write_response_head};

#[cfg(test)]
mod tests;
