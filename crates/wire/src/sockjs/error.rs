//! Errors of a SockJS peer, and their responses.

faults! {
    /// An error in the peer's input. Every variant is the peer's fault.
    ///
    /// After a faulty body the session continues, and none of the body's messages is delivered. After a
    /// faulty WebSocket message the connection is closed with [`Error::CLOSE_CODE`] and
    /// [`Error::CLOSE_REASON`].
    pub enum Error;
    /// Returns the HTTP status of the server's response.
    pub fn status;
    /// The body is missing or empty, the form has no field `d` or an empty one, or the content type is
    /// neither a form's nor text.
    NoPayload = 500, "there is no payload",
    /// The payload isn't an array.
    NotArray = 500, "the payload is not an array",
    /// An element of the array is no string.
    NotText = 500, "a message is not a string",
    /// The payload is not JSON, or not UTF-8.
    BadJson = 500, "the payload is not JSON in UTF-8",
    /// There are more messages than [`Limits::messages_max`](super::Limits::messages_max).
    TooManyMessages = 413, "there are too many messages",
    /// `c` or `callback` is missing in the query.
    NoCallback = 500, "the callback is missing",
    /// The callback is empty, too long, or has other characters than `[a-zA-Z0-9._-]`.
    BadCallback = 500, "the callback is malformed",
    /// A server's frame is unknown to SockJS.
    BadFrame = 500, "a frame is malformed",
    /// A server's frame is larger than the decoder's limit.
    FrameTooBig = 500, "a frame is too big",
}

impl Error {
    /// The WebSocket close code after every error.
    pub const CLOSE_CODE: u16 = 3000;
    /// The WebSocket close reason after every error.
    pub const CLOSE_REASON: &str = "Broken framing.";

    /// Returns the body of the response. The specification prescribes the texts.
    pub fn body(&self) -> &'static str {
        match self {
            Error::NoPayload | Error::NotArray | Error::NotText => "Payload expected.",
            Error::BadJson => "Broken JSON encoding.",
            Error::TooManyMessages => "Too many messages.",
            Error::NoCallback => "\"callback\" parameter required",
            Error::BadCallback => "invalid \"callback\" parameter",
            Error::BadFrame | Error::FrameTooBig => "Broken framing.",
        }
    }
}
