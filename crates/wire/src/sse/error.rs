//! What a server can do wrong in an event stream.

faults! {
    /// A fault in the received stream, the server's doing. Almost everything is allowed there; the stream must be given
    /// up after one.
    pub enum Error;
    /// An event, or a line, is larger than the decoder's limit.
    EventTooBig = "an event is too big",
}
