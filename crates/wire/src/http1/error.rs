//! Errors that a peer can make in HTTP/1.1, and the status for each.

faults! {
    /// An error in the received bytes. Every variant is the peer's fault. Afterwards the start of the next
    /// message is unknown, so the server answers with [`Error::status`] and closes the connection.
    pub enum Error;
    /// Returns the HTTP status of the server's response.
    pub fn status;
    /// The head ends early, or holds bytes after its end.
    Incomplete = 400, "the head is not one complete head",
    /// A line ended with LF alone (RFC 9112 section 2.2 allows a recipient to refuse it).
    BareLineFeed = 400, "a line ends with LF alone",
    /// The head is larger than [`Limits::header_bytes_max`](super::Limits::header_bytes_max).
    HeadTooLarge = 431, "the head is too large",
    /// There are more headers than [`Limits::headers_max`](super::Limits::headers_max).
    TooManyHeaders = 431, "there are too many headers",
    /// The first line alone is larger than [`Limits::header_bytes_max`](super::Limits::header_bytes_max).
    TargetTooLong = 414, "the request target is too long",
    /// The first line of a request is not `method SP target SP version`.
    BadRequestLine = 400, "the request line is malformed",
    /// The first line of a response is not `version SP status SP reason`.
    BadStatusLine = 400, "the status line is malformed",
    /// The version is malformed, or neither 1.0 nor 1.1.
    UnsupportedVersion = 505, "the HTTP version is neither 1.0 nor 1.1",
    /// The target is in none of the four forms of RFC 9112 section 3.2, or has a fragment or a byte outside ASCII.
    BadTarget = 400, "the request target is malformed",
    /// A header's name or value has a byte it must not have, is folded, or has space before the colon.
    BadHeader = 400, "a header is malformed",
    /// `Host` is missing in 1.1, present twice, or has an impossible value.
    BadHost = 400, "Host is missing, repeated or malformed",
    /// `Content-Length` is not one decimal number below 2^63, or occurs twice.
    BadContentLength = 400, "Content-Length is repeated or malformed",
    /// `Transfer-Encoding` does not end with `chunked`, names it twice, or appears in HTTP/1.0.
    BadTransferEncoding = 400, "Transfer-Encoding is malformed",
    /// `Transfer-Encoding` names a coding besides `chunked`.
    UnsupportedTransferCoding = 501, "a transfer coding is not supported",
    /// Both `Content-Length` and `Transfer-Encoding` are present.
    ConflictingLength = 400, "Content-Length and Transfer-Encoding are both present",
    /// The framing of a chunked body is broken.
    BadChunk = 400, "the chunked body is malformed",
    /// The chunk extensions of one body exceed [`CHUNK_EXTENSION_BYTES_MAX`](super::CHUNK_EXTENSION_BYTES_MAX).
    ChunkExtensionTooLarge = 400, "the chunk extensions are too large",
    /// The trailers of a chunked body are not header lines.
    BadTrailer = 400, "the trailers are malformed",
    /// The trailers of one body exceed [`TRAILER_BYTES_MAX`](super::TRAILER_BYTES_MAX).
    TrailerTooLarge = 431, "the trailers are too large",
    /// A `%` is not followed by two hexadecimal digits, or the decoded bytes are not UTF-8.
    BadPercentEncoding = 400, "the percent-encoding is malformed",
}
