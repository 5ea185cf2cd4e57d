//! Errors that a peer can make in Socket.IO.

use stentor_json as json;

faults! {
    /// An error in a packet. Every variant is the peer's fault. The connection is closed after any of them,
    /// as in the reference (over polling with the Engine.IO packets `6` and `1`).
    pub enum Error;
    /// A packet has no bytes.
    Empty = "a packet is empty",
    /// The kind of a packet isn't one of `0` to `6`.
    UnknownKind = "a packet's kind is unknown",
    /// The packet may only be sent in the other direction.
    WrongDirection = "a packet goes the wrong way",
    /// The number of attachments is missing, zero, or not followed by `-`.
    BadAttachmentCount = "the number of attachments is malformed",
    /// There are more attachments than [`Limits::attachments_max`](super::Limits::attachments_max).
    TooManyAttachments = "a packet has too many attachments",
    /// A packet with its attachments exceeds [`Limits::packet_bytes_max`](super::Limits::packet_bytes_max).
    TooBig = "a packet with its attachments is too big",
    /// The id of an ack is missing or has more than 64 bits, or a packet that must not have an id has one.
    BadId = "an acknowledgement's id is missing or malformed",
    /// A required payload is missing.
    MissingPayload = "a packet lacks its payload",
    /// A payload has the wrong type, or is not allowed.
    BadPayload = "a payload is not of the right type",
    /// The payload isn't JSON, or is followed by other characters.
    BadJson = "a payload is not JSON",
    /// The payload is nested too deeply.
    TooDeep = "a payload is nested too deeply",
    /// An event's name is missing, or neither a string nor a number.
    BadEventName = "an event's name is neither a string nor a number",
    /// An event's name is one of [`RESERVED_EVENTS`](super::RESERVED_EVENTS).
    ReservedEventName = "an event's name is reserved",
    /// A placeholder refers to no attachment, or has malformed members.
    BadPlaceholder = "a placeholder is malformed",
    /// Text arrived while attachments were missing.
    ExpectedAttachment = "text came instead of an attachment",
    /// An attachment arrived while none was expected.
    UnexpectedAttachment = "an attachment belongs to no packet",
}

impl From<json::Error> for Error {
    fn from(error: json::Error) -> Error {
        match error {
            json::Error::TooDeep(_) => Error::TooDeep,
            json::Error::Utf8(_) | json::Error::Unexpected(_) | json::Error::Incomplete => Error::BadJson,
        }
    }
}
