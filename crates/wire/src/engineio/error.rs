//! What a peer can do wrong with packets and payloads.

use std::fmt;

/// A fault in a packet or a payload. Every variant is the peer's doing, and ends the session: a WebSocket is closed, a
/// POST is answered with [`Error::status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// A packet has no bytes, not even its kind.
    EmptyPacket,
    /// A packet's kind is none of `0` to `6`.
    UnknownPacketKind,
    /// Binary data is in a packet that is no message.
    BinaryNotMessage,
    /// What should be base64 isn't.
    BadBase64,
    /// What should be text isn't UTF-8.
    BadUtf8,
    /// A body has no bytes.
    EmptyPayload,
    /// A packet's length (protocol 3) isn't a number, or doesn't end where it should.
    BadLength,
    /// A packet is shorter than its length says (protocol 3), or its length ends inside a character.
    Truncated,
    /// A payload has more packets than the caller allows.
    TooManyPackets,
    /// The form of a JSONP POST hasn't exactly one field `d`.
    BadForm,
    /// The handshake in an open packet isn't what it should be: the server erred.
    BadOpen,
}

impl Error {
    /// The status a server answers with.
    pub fn status(&self) -> u16 {
        match self {
            Error::TooManyPackets => 413,
            Error::EmptyPacket
            | Error::UnknownPacketKind
            | Error::BinaryNotMessage
            | Error::BadBase64
            | Error::BadUtf8
            | Error::EmptyPayload
            | Error::BadLength
            | Error::Truncated
            | Error::BadForm
            | Error::BadOpen => 400,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::EmptyPacket => "a packet is empty",
            Error::UnknownPacketKind => "a packet's kind is unknown",
            Error::BinaryNotMessage => "a packet with binary data is no message",
            Error::BadBase64 => "base64 is malformed",
            Error::BadUtf8 => "text is not UTF-8",
            Error::EmptyPayload => "the payload is empty",
            Error::BadLength => "a packet's length is malformed",
            Error::Truncated => "a packet is shorter than its length",
            Error::TooManyPackets => "a payload has too many packets",
            Error::BadForm => "the form has not exactly one field d",
            Error::BadOpen => "the handshake is malformed",
        })
    }
}

impl std::error::Error for Error {}
