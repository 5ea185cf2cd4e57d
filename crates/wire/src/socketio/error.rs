//! What a peer can do wrong in Socket.IO.

use stentor_json as json;

faults! {
    /// A fault in a packet. Every variant is the peer's doing; the connection is closed after any of them, as the reference
    /// does (over polling with the Engine.IO packets `6` and `1`).
    pub enum Error;
    /// A packet has no bytes.
    Empty = "a packet is empty",
    /// A packet's kind is none of `0` to `6`.
    UnknownKind = "a packet's kind is unknown",
    /// A packet that only the other side may send.
    WrongDirection = "a packet goes the wrong way",
    /// The number of attachments is missing, zero, or isn't ended by `-`.
    BadAttachmentCount = "the number of attachments is malformed",
    /// There are more attachments than [`Limits::attachments_max`](super::Limits::attachments_max).
    TooManyAttachments = "a packet has too many attachments",
    /// A packet with its attachments exceeds [`Limits::packet_bytes_max`](super::Limits::packet_bytes_max).
    TooBig = "a packet with its attachments is too big",
    /// An ack's id is missing, or has more than 64 bits, or an id is where none may be.
    BadId = "an acknowledgement's id is missing or malformed",
    /// There is no payload where there must be one.
    MissingPayload = "a packet lacks its payload",
    /// There is a payload where there must be none, or one of the wrong type.
    BadPayload = "a payload is not of the right type",
    /// The payload isn't JSON, or something follows it.
    BadJson = "a payload is not JSON",
    /// The payload is nested too deeply.
    TooDeep = "a payload is nested too deeply",
    /// An event's name is neither a string nor a number, or there is none.
    BadEventName = "an event's name is neither a string nor a number",
    /// An event's name is one of [`RESERVED_EVENTS`](super::RESERVED_EVENTS).
    ReservedEventName = "an event's name is reserved",
    /// A placeholder names no attachment, or has other members than it should.
    BadPlaceholder = "a placeholder is malformed",
    /// Text came while attachments were due.
    ExpectedAttachment = "text came instead of an attachment",
    /// An attachment came while none was due.
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
