//! Messages between applications and clients, before they are framed.

pub use stentor_ports::Arguments;

/// The form in which publications are written for the plain sessions of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// `stentor.v1` messages.
    V1,
    /// Bodies only.
    Raw,
    /// Socket.IO events.
    SocketIo,
}

/// A message from a client or for one.
pub use stentor_wire::ws::Message;
