//! What a peer can do wrong on an open WebSocket, and the close code that says so.

use std::fmt;

/// A violation by the peer. The connection is over: a close frame with [`Error::close_code`] is in the transmit buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// RSV2 or RSV3 is set, or RSV1 where no compressed message begins (RFC 6455 section 5.2, RFC 7692 section 6).
    ReservedBits,
    /// An opcode of 3 to 7 or 11 to 15.
    ReservedOpcode,
    /// A client's frame has no mask (RFC 6455 section 5.1).
    Unmasked,
    /// A server's frame has a mask (RFC 6455 section 5.1).
    Masked,
    /// A control frame is fragmented (RFC 6455 section 5.5).
    ControlFragmented,
    /// A control frame has more than 125 bytes (RFC 6455 section 5.5).
    ControlTooLong,
    /// A 64-bit length has its highest bit set (RFC 6455 section 5.2).
    BadLength,
    /// A continuation without a message to continue.
    UnexpectedContinuation,
    /// A new message before the last one ended.
    ExpectedContinuation,
    /// A close frame with a payload of one byte.
    BadClosePayload,
    /// A close code that must not travel (RFC 6455 section 7.4).
    BadCloseCode,
    /// A text message or close reason is not UTF-8.
    BadUtf8,
    /// A compressed message is not DEFLATE, or is cut off.
    BadDeflate,
    /// A message exceeds [`Limits::message_bytes_max`](super::Limits::message_bytes_max), compressed or inflated.
    MessageTooBig,
    /// A message has more frames than [`Limits::fragments_max`](super::Limits::fragments_max).
    TooManyFragments,
}

impl Error {
    /// Every violation, for documents and tests.
    pub const ALL: [Self; 15] = [
        Self::ReservedBits,
        Self::ReservedOpcode,
        Self::Unmasked,
        Self::Masked,
        Self::ControlFragmented,
        Self::ControlTooLong,
        Self::BadLength,
        Self::UnexpectedContinuation,
        Self::ExpectedContinuation,
        Self::BadClosePayload,
        Self::BadCloseCode,
        Self::BadUtf8,
        Self::BadDeflate,
        Self::MessageTooBig,
        Self::TooManyFragments,
    ];

    /// The close code we answer with: 1002, 1007 or 1009 (RFC 6455 section 7.4.1).
    pub fn close_code(&self) -> u16 {
        match self {
            Error::ReservedBits
            | Error::ReservedOpcode
            | Error::Unmasked
            | Error::Masked
            | Error::ControlFragmented
            | Error::ControlTooLong
            | Error::BadLength
            | Error::UnexpectedContinuation
            | Error::ExpectedContinuation
            | Error::BadClosePayload
            | Error::BadCloseCode => 1002,
            Error::BadUtf8 | Error::BadDeflate => 1007,
            Error::MessageTooBig | Error::TooManyFragments => 1009,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::ReservedBits => "a reserved bit is set",
            Error::ReservedOpcode => "an opcode is reserved",
            Error::Unmasked => "a client's frame is not masked",
            Error::Masked => "a server's frame is masked",
            Error::ControlFragmented => "a control frame is fragmented",
            Error::ControlTooLong => "a control frame is longer than 125 bytes",
            Error::BadLength => "a length has its highest bit set",
            Error::UnexpectedContinuation => "a continuation continues nothing",
            Error::ExpectedContinuation => "a message begins before the last one ended",
            Error::BadClosePayload => "a close frame has a payload of one byte",
            Error::BadCloseCode => "a close code is not allowed",
            Error::BadUtf8 => "text is not UTF-8",
            Error::BadDeflate => "compressed data is broken",
            Error::MessageTooBig => "a message is too big",
            Error::TooManyFragments => "a message has too many fragments",
        })
    }
}

impl std::error::Error for Error {}
