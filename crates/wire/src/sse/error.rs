//! Errors that a server can make in an event stream.

faults! {
    /// An error in the received stream, the server's fault. The standard allows almost everything. The client
    /// must give up the stream after an error.
    pub enum Error;
    /// An event, or a line, is larger than the decoder's limit.
    EventTooBig = "an event is too big",
}
