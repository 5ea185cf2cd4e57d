//! What the control plane asks of a core.

use super::moving::Barrier;
use super::tasks::Task;
use crate::app::Sent;
use crate::ports::{
    Broadcast, ClientConnection, Denial, Done, EventReply, FeedUpdate, Handover, Identity, Location,
    MovingSocket, Publish, RoomUpdate, SocketName, SocketRequest,
};
use crate::settings::Settings;
use bytes::Bytes;
use std::sync::Arc;
use stentor_frame::ConnId;
use stentor_hub::{Key, PresenceMessage, Room, SessionId};

/// What the control plane asks of a core.
pub(crate) enum ControlCommand {
    Publish(Publish),
    /// From another node.
    Receive(Broadcast),
    Room(Room, RoomUpdate),
    /// From another node.
    Presence(Room, u64, PresenceMessage),
    LostNode(u64),
    /// What a session asked for.
    Answer(SessionId, Box<Sent>),
    /// The answer to a question, by the number of its ticket.
    Decide(u64, Result<(), Denial>),
    /// The reply to an event, by the number of its ticket.
    Reply(u64, Box<Result<EventReply, Denial>>),
    /// Who a client is, by the number of the ticket.
    Identify(u64, Box<Result<Arc<Identity>, Denial>>),
    Feed(Key, FeedUpdate),
    /// A connection from outside of the data plane.
    Adopt(Box<ClientConnection>, Handover),
    /// Where the session is that a waiting request names.
    Located(ConnId, Location),
    Task(Box<Task>),
    Socket(Box<SocketCommand>),
    Barrier(Arc<Barrier>),
    Settings(Arc<Settings>, Arc<Barrier>),
    /// Whether to accept no connections for now.
    PauseAccepting(bool, Arc<Barrier>),
}

impl ControlCommand {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Task(task) => task.bytes(),
            Self::Publish(message) => message.data.len(),
            Self::Receive(message) => message.bytes(),
            Self::Room(_, update) => update.bytes(),
            Self::Presence(_, _, message) => message.bytes(),
            Self::Answer(_, answer) => answer.bytes(),
            Self::Feed(_, FeedUpdate::Document(document)) => document.body.len(),
            Self::Feed(_, FeedUpdate::At { document, patches, .. }) => {
                document.body.len() + patches.iter().map(Bytes::len).sum::<usize>()
            }
            Self::Feed(_, FeedUpdate::Patched(document, patch)) => {
                document.body.len() + patch.operations.len()
            }
            Self::Socket(command) => command.bytes(),
            Self::Reply(_, reply) => reply.as_ref().as_ref().map_or(0, EventReply::bytes),
            Self::Adopt(connection, _) => size_of::<ClientConnection>() + connection.input.len(),
            Self::LostNode(_)
            | Self::Feed(..)
            | Self::Decide(..)
            | Self::Identify(..)
            | Self::Barrier(_)
            | Self::Settings(..)
            | Self::PauseAccepting(..)
            | Self::Located(..) => 0,
        }
    }
}

/// A command to a core about a socket that moves between nodes.
pub(crate) enum SocketCommand {
    Request(SocketName, SocketRequest, Done<Option<MovingSocket>>),
    /// For the question of this number.
    Expect(u64, MovingSocket, Done<bool>),
    Deliver(u64, Option<MovingSocket>),
}

impl SocketCommand {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Expect(_, socket, _) | Self::Deliver(_, Some(socket)) => socket.bytes(),
            Self::Request(..) | Self::Deliver(_, None) => size_of::<SocketName>(),
        }
    }
}
