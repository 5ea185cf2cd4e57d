//! Messages between applications and clients, before they are framed.

pub use stentor_ports::Arguments;

/// The envelope in which publications are written for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// `stentor.v1` messages.
    V1,
    /// No envelope: only the content.
    Raw,
    /// Socket.IO events.
    SocketIo,
}

/// A message from or to a client.
pub use stentor_wire::ws::Message;
