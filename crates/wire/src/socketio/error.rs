//! What a peer can do wrong in Socket.IO.

use std::fmt;

use stentor_json as json;

/// A fault in a packet. Every variant is the peer's doing; the connection is closed after any of them, as the reference
/// does (over polling with the Engine.IO packets `6` and `1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// A packet has no bytes.
    Empty,
    /// A packet's kind is none of `0` to `6`.
    UnknownKind,
    /// A packet that only the other side may send.
    WrongDirection,
    /// The number of attachments is missing, zero, or isn't ended by `-`.
    BadAttachmentCount,
    /// There are more attachments than [`Limits::attachments_max`](super::Limits::attachments_max).
    TooManyAttachments,
    /// A packet with its attachments exceeds [`Limits::packet_bytes_max`](super::Limits::packet_bytes_max).
    TooBig,
    /// An ack's id is missing, or has more than 64 bits, or an id is where none may be.
    BadId,
    /// There is no payload where there must be one.
    MissingPayload,
    /// There is a payload where there must be none, or one of the wrong type.
    BadPayload,
    /// The payload isn't JSON, or something follows it.
    BadJson,
    /// The payload is nested too deeply.
    TooDeep,
    /// An event's name is neither a string nor a number, or there is none.
    BadEventName,
    /// An event's name is one of [`RESERVED_EVENTS`](super::RESERVED_EVENTS).
    ReservedEventName,
    /// A placeholder names no attachment, or has other members than it should.
    BadPlaceholder,
    /// Text came while attachments were due.
    ExpectedAttachment,
    /// An attachment came while none was due.
    UnexpectedAttachment,
}

impl From<json::Error> for Error {
    fn from(error: json::Error) -> Error {
        match error {
            json::Error::TooDeep(_) => Error::TooDeep,
            json::Error::Utf8(_) | json::Error::Unexpected(_) | json::Error::Incomplete => Error::BadJson,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Empty => "a packet is empty",
            Error::UnknownKind => "a packet's kind is unknown",
            Error::WrongDirection => "a packet goes the wrong way",
            Error::BadAttachmentCount => "the number of attachments is malformed",
            Error::TooManyAttachments => "a packet has too many attachments",
            Error::TooBig => "a packet with its attachments is too big",
            Error::BadId => "an acknowledgement's id is missing or malformed",
            Error::MissingPayload => "a packet lacks its payload",
            Error::BadPayload => "a payload is not of the right type",
            Error::BadJson => "a payload is not JSON",
            Error::TooDeep => "a payload is nested too deeply",
            Error::BadEventName => "an event's name is neither a string nor a number",
            Error::ReservedEventName => "an event's name is reserved",
            Error::BadPlaceholder => "a placeholder is malformed",
            Error::ExpectedAttachment => "text came instead of an attachment",
            Error::UnexpectedAttachment => "an attachment belongs to no packet",
        })
    }
}

impl std::error::Error for Error {}
