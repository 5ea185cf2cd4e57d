//! What a peer can do wrong in HTTP/1.1, and the status that answers it.

use std::fmt;

/// A fault in the received bytes. Every variant is the peer's doing; after any of them the position of the next
/// message is unknown, so the connection is answered with [`Error::status`] and closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The head ended without being complete, or holds bytes after its end.
    Incomplete,
    /// A line ended with LF alone (RFC 9112 section 2.2 lets us refuse it).
    BareLineFeed,
    /// The head is larger than [`Limits::header_bytes_max`](super::Limits::header_bytes_max).
    HeadTooLarge,
    /// There are more headers than [`Limits::headers_max`](super::Limits::headers_max).
    TooManyHeaders,
    /// The target is longer than [`Limits::target_bytes_max`](super::Limits::target_bytes_max), or the first line
    /// alone fills the head.
    TargetTooLong,
    /// The first line of a request is not `method SP target SP version`.
    BadRequestLine,
    /// The first line of a response is not `version SP status SP reason`.
    BadStatusLine,
    /// The version is well-formed or not, but neither 1.0 nor 1.1.
    UnsupportedVersion,
    /// The target is in none of the four forms of RFC 9112 section 3.2, or has a fragment or a byte outside ASCII.
    BadTarget,
    /// A header's name or value has a byte it must not have, is folded, or has space before the colon.
    BadHeader,
    /// `Host` is missing in 1.1, present twice, or has an impossible value.
    BadHost,
    /// `Content-Length` is not one decimal number below 2^63, or is present twice.
    BadContentLength,
    /// `Transfer-Encoding` does not end with `chunked`, names it twice, or appears in HTTP/1.0.
    BadTransferEncoding,
    /// `Transfer-Encoding` names a coding besides `chunked`.
    UnsupportedTransferCoding,
    /// Both `Content-Length` and `Transfer-Encoding` are present.
    ConflictingLength,
    /// The framing of a chunked body is broken.
    BadChunk,
    /// The chunk extensions of one body exceed [`CHUNK_EXTENSION_BYTES_MAX`](super::CHUNK_EXTENSION_BYTES_MAX).
    ChunkExtensionTooLarge,
    /// The trailers of a chunked body are not header lines.
    BadTrailer,
    /// The trailers of one body exceed [`TRAILER_BYTES_MAX`](super::TRAILER_BYTES_MAX).
    TrailerTooLarge,
    /// A `%` is not followed by two hexadecimal digits, or what is decoded is not UTF-8.
    BadPercentEncoding,
}

impl Error {
    /// The status a server answers with.
    pub fn status(&self) -> u16 {
        match self {
            Error::TargetTooLong => 414,
            Error::HeadTooLarge | Error::TooManyHeaders | Error::TrailerTooLarge => 431,
            Error::UnsupportedTransferCoding => 501,
            Error::UnsupportedVersion => 505,
            Error::Incomplete
            | Error::BareLineFeed
            | Error::BadRequestLine
            | Error::BadStatusLine
            | Error::BadTarget
            | Error::BadHeader
            | Error::BadHost
            | Error::BadContentLength
            | Error::BadTransferEncoding
            | Error::ConflictingLength
            | Error::BadChunk
            | Error::ChunkExtensionTooLarge
            | Error::BadTrailer
            | Error::BadPercentEncoding => 400,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Incomplete => "the head is not one complete head",
            Error::BareLineFeed => "a line ends with LF alone",
            Error::HeadTooLarge => "the head is too large",
            Error::TooManyHeaders => "there are too many headers",
            Error::TargetTooLong => "the request target is too long",
            Error::BadRequestLine => "the request line is malformed",
            Error::BadStatusLine => "the status line is malformed",
            Error::UnsupportedVersion => "the HTTP version is neither 1.0 nor 1.1",
            Error::BadTarget => "the request target is malformed",
            Error::BadHeader => "a header is malformed",
            Error::BadHost => "Host is missing, repeated or malformed",
            Error::BadContentLength => "Content-Length is repeated or malformed",
            Error::BadTransferEncoding => "Transfer-Encoding is malformed",
            Error::UnsupportedTransferCoding => "a transfer coding is not supported",
            Error::ConflictingLength => "Content-Length and Transfer-Encoding are both present",
            Error::BadChunk => "the chunked body is malformed",
            Error::ChunkExtensionTooLarge => "the chunk extensions are too large",
            Error::BadTrailer => "the trailers are malformed",
            Error::TrailerTooLarge => "the trailers are too large",
            Error::BadPercentEncoding => "the percent-encoding is malformed",
        })
    }
}

impl std::error::Error for Error {}
