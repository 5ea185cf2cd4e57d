//! Errors of a SockJS peer, and their responses.

use std::fmt;

/// A fault in what the peer sent. Every variant is the peer's doing.
///
/// After a faulty body the session goes on, and none of its messages is delivered; after a faulty WebSocket message
/// the connection is closed with [`Error::CLOSE_CODE`] and [`Error::CLOSE_REASON`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// There is no body, no `d` in the form, or nothing in it; or the content type is none of those of a form or text.
    NoPayload,
    /// The payload is something else than an array.
    NotArray,
    /// An element of the array is no string.
    NotText,
    /// The payload is not JSON, or not UTF-8.
    BadJson,
    /// There are more messages than [`Limits::messages_max`](super::Limits::messages_max).
    TooManyMessages,
    /// `c` or `callback` is missing in the query.
    NoCallback,
    /// The callback is empty, too long, or has other characters than `[a-zA-Z0-9._-]`.
    BadCallback,
    /// A server's frame is none that SockJS knows.
    BadFrame,
    /// A server's frame is larger than the decoder's limit.
    FrameTooBig,
}

impl Error {
    /// The WebSocket close code after any of them.
    pub const CLOSE_CODE: u16 = 3000;
    /// The WebSocket close reason after any of them.
    pub const CLOSE_REASON: &str = "Broken framing.";

    /// The status a server answers with.
    pub fn status(&self) -> u16 {
        match self {
            Error::TooManyMessages => 413,
            Error::NoPayload
            | Error::NotArray
            | Error::NotText
            | Error::BadJson
            | Error::NoCallback
            | Error::BadCallback
            | Error::BadFrame
            | Error::FrameTooBig => 500,
        }
    }

    /// The body of that answer. The specification prescribes the words.
    pub fn body(&self) -> &'static str {
        match self {
            Error::NoPayload | Error::NotArray | Error::NotText => "Payload expected.",
            Error::BadJson => "Broken JSON encoding.",
            Error::TooManyMessages => "Too many messages.",
            Error::NoCallback => "\"callback\" parameter required",
            Error::BadCallback => "invalid \"callback\" parameter",
            Error::BadFrame | Error::FrameTooBig => "Broken framing.",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NoPayload => "there is no payload",
            Error::NotArray => "the payload is not an array",
            Error::NotText => "a message is not a string",
            Error::BadJson => "the payload is not JSON in UTF-8",
            Error::TooManyMessages => "there are too many messages",
            Error::NoCallback => "the callback is missing",
            Error::BadCallback => "the callback is malformed",
            Error::BadFrame => "a frame is malformed",
            Error::FrameTooBig => "a frame is too big",
        })
    }
}

impl std::error::Error for Error {}
