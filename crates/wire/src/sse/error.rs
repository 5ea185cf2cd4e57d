//! What a server can do wrong in an event stream.

use std::fmt;

/// A fault in the received stream, the server's doing. Almost everything is allowed there; the stream must be given
/// up after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// An event, or a line, is larger than the decoder's limit.
    EventTooBig,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::EventTooBig => "an event is too big",
        })
    }
}

impl std::error::Error for Error {}
