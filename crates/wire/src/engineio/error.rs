//! Errors that a peer can make in packets and payloads.

faults! {
    /// An error in a packet or a payload. Every variant is the peer's fault and ends the session: a WebSocket
    /// is closed, a POST is answered with [`Error::status`].
    pub enum Error;
    /// Returns the HTTP status of the server's response.
    pub fn status;
    /// A packet has no bytes, so it lacks a kind.
    EmptyPacket = 400, "a packet is empty",
    /// The kind of a packet isn't one of `0` to `6`.
    UnknownPacketKind = 400, "a packet's kind is unknown",
    /// A packet other than a message has binary data.
    BinaryNotMessage = 400, "a packet with binary data is no message",
    /// Base64 data is malformed.
    BadBase64 = 400, "base64 is malformed",
    /// Text isn't valid UTF-8.
    BadUtf8 = 400, "text is not UTF-8",
    /// A body has no bytes.
    EmptyPayload = 400, "the payload is empty",
    /// The length of a packet (protocol 3) isn't a number, or has no terminator.
    BadLength = 400, "a packet's length is malformed",
    /// A packet is shorter than its length (protocol 3), or its length ends inside a character.
    Truncated = 400, "a packet is shorter than its length",
    /// A payload has more packets than the caller allows.
    TooManyPackets = 413, "a payload has too many packets",
    /// The form of a JSONP POST doesn't have exactly one field `d`.
    BadForm = 400, "the form has not exactly one field d",
    /// The handshake in an open packet is malformed. Here the server is at fault.
    BadOpen = 400, "the handshake is malformed",
}
