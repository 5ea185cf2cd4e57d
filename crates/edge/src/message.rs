//! What applications and clients say to each other, before it is framed.

pub use stentor_ports::Arguments;

/// How publications are written for the plain sessions of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// `stentor.v1` messages.
    V1,
    /// Bodies only.
    Raw,
    /// Socket.IO events.
    SocketIo,
}

/// A message as it came from a client, or goes to one.
pub use stentor_wire::ws::Message;
