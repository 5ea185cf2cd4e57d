//! Errors that a peer can make on an open WebSocket, and the close code for each.

faults! {
    /// A protocol violation by the peer. The connection is over: the transmit buffer has a close frame with
    /// [`Error::close_code`].
    pub enum Error;
    /// Returns the close code of our answer (RFC 6455 section 7.4.1).
    pub fn close_code;
    /// RSV2 or RSV3 is set, or RSV1 without a compressed message that begins (RFC 6455 section 5.2, RFC 7692
    /// section 6).
    ReservedBits = 1002, "a reserved bit is set",
    /// An opcode of 3 to 7 or 11 to 15.
    ReservedOpcode = 1002, "an opcode is reserved",
    /// A client's frame has no mask (RFC 6455 section 5.1).
    Unmasked = 1002, "a client's frame is not masked",
    /// A server's frame has a mask (RFC 6455 section 5.1).
    Masked = 1002, "a server's frame is masked",
    /// A control frame is fragmented (RFC 6455 section 5.5).
    ControlFragmented = 1002, "a control frame is fragmented",
    /// A control frame has more than 125 bytes (RFC 6455 section 5.5).
    ControlTooLong = 1002, "a control frame is longer than 125 bytes",
    /// A 64-bit length has its highest bit set (RFC 6455 section 5.2).
    BadLength = 1002, "a length has its highest bit set",
    /// A continuation without a message to continue.
    UnexpectedContinuation = 1002, "a continuation continues nothing",
    /// A new message before the last one ended.
    ExpectedContinuation = 1002, "a message begins before the last one ended",
    /// A close frame with a payload of one byte.
    BadClosePayload = 1002, "a close frame has a payload of one byte",
    /// A reserved close code (RFC 6455 section 7.4).
    BadCloseCode = 1002, "a close code is not allowed",
    /// A text message or close reason is not UTF-8.
    BadUtf8 = 1007, "text is not UTF-8",
    /// A compressed message is not DEFLATE, or is cut off.
    BadDeflate = 1007, "compressed data is broken",
    /// A message exceeds [`Limits::message_bytes_max`](super::Limits::message_bytes_max), compressed or inflated.
    MessageTooBig = 1009, "a message is too big",
    /// A message has more frames than [`Limits::fragments_max`](super::Limits::fragments_max).
    TooManyFragments = 1009, "a message has too many fragments",
}
