//! What machines ask for that concerns another machine or a connection.

use crate::identity::{ClientId, End};
use std::time::Instant;
use stentor_frame::ConnId;
use stentor_hub::CoreId;

/// The answer to a poll of Engine.IO.
#[derive(Debug)]
pub(crate) enum PollAnswer {
    /// These records (see [`crate::encode`]), at least one.
    Records(Vec<u8>),
    /// 503: the client has ended and should reconnect.
    Unavailable,
}

/// One effect. Effects are carried out in order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Ends a client.
    EndClient(ClientId, End),
    /// Removes a client that has ended.
    RemoveClient(ClientId),
    /// Sends what waits for a client, if a connection is there for it.
    FlushClient(ClientId),
    /// Sets the client's timer again.
    ArmClient(ClientId),
    /// Writes to a client at this time.
    WriteLater(Instant, ClientId, Vec<u8>),
    /// Moves a client to another core, which keeps what it missed.
    MigrateClient(ClientId, CoreId),
    /// Answers the poll that waits on a connection.
    AnswerPoll { conn: ConnId, answer: PollAnswer },
    /// Tells the receiver of a SockJS client that it has ended.
    TellReceiver { client: ClientId, conn: ConnId },
    /// Sends what waits for a connection.
    FlushConnection(usize),
    /// Writes these bytes to a connection.
    Write { conn: ConnId, bytes: Vec<u8> },
    /// Closes a WebSocket with a Close frame.
    CloseSocket { conn: ConnId, code: u16, reason: &'static str },
    /// Ends a WebSocket without a Close frame.
    CutSocket(ConnId),
    /// Closes a connection that holds more memory than is allowed now.
    RefuseInput(ConnId),
}
