//! What a peer can do wrong with packets and payloads.

faults! {
    /// A fault in a packet or a payload. Every variant is the peer's doing, and ends the session: a WebSocket is closed, a
    /// POST is answered with [`Error::status`].
    pub enum Error;
    /// The status a server answers with.
    pub fn status;
    /// A packet has no bytes, not even its kind.
    EmptyPacket = 400, "a packet is empty",
    /// A packet's kind is none of `0` to `6`.
    UnknownPacketKind = 400, "a packet's kind is unknown",
    /// Binary data is in a packet that is no message.
    BinaryNotMessage = 400, "a packet with binary data is no message",
    /// What should be base64 isn't.
    BadBase64 = 400, "base64 is malformed",
    /// What should be text isn't UTF-8.
    BadUtf8 = 400, "text is not UTF-8",
    /// A body has no bytes.
    EmptyPayload = 400, "the payload is empty",
    /// A packet's length (protocol 3) isn't a number, or doesn't end where it should.
    BadLength = 400, "a packet's length is malformed",
    /// A packet is shorter than its length says (protocol 3), or its length ends inside a character.
    Truncated = 400, "a packet is shorter than its length",
    /// A payload has more packets than the caller allows.
    TooManyPackets = 413, "a payload has too many packets",
    /// The form of a JSONP POST hasn't exactly one field `d`.
    BadForm = 400, "the form has not exactly one field d",
    /// The handshake in an open packet isn't what it should be: the server erred.
    BadOpen = 400, "the handshake is malformed",
}
