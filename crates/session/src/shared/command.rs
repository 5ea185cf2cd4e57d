//! A command of the control plane to a core.

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

/// A command of the control plane to a core.
pub enum ControlCommand {
    /// Publishes a message of this node.
    Publish(Publish),
    /// A message from another node.
    Receive(Broadcast),
    /// A room's news from the engine.
    Room(Room, RoomUpdate),
    /// A message from another node.
    Presence(Room, u64, PresenceMessage),
    /// Another node is dead.
    LostNode(u64),
    /// The answer to a session's request.
    Answer(SessionId, Box<Sent>),
    /// The answer to a question, by the number of its ticket.
    Decide(u64, Result<(), Denial>),
    /// The reply to an event, by the number of its ticket.
    Reply(u64, Box<Result<EventReply, Denial>>),
    /// The identity of a client, by the number of the ticket.
    Identify(u64, Box<Result<Arc<Identity>, Denial>>),
    /// A feed's news.
    Feed(Key, FeedUpdate),
    /// A connection from outside of the data plane.
    Adopt(Box<ClientConnection>, Handover),
    /// The node of the session that a waiting request names.
    Located(ConnId, Location),
    /// Work that takes more than a turn.
    Task(Box<Task>),
    /// A socket that moves between nodes.
    Socket(Box<SocketCommand>),
    /// Orders commands with the mail between cores.
    Barrier(Arc<Barrier>),
    /// Options that apply from now on.
    Settings(Arc<Settings>, Arc<Barrier>),
    /// Whether to accept no connections for now.
    PauseAccepting(bool, Arc<Barrier>),
}

impl ControlCommand {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
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
pub enum SocketCommand {
    /// Another node asks for a socket.
    Request(SocketName, SocketRequest, Done<Option<MovingSocket>>),
    /// Announces a socket, for the question with this number.
    Expect(u64, MovingSocket, Done<bool>),
    /// The socket for a question has come, or there is none.
    Deliver(u64, Option<MovingSocket>),
}

impl SocketCommand {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Expect(_, socket, _) | Self::Deliver(_, Some(socket)) => socket.bytes(),
            Self::Request(..) | Self::Deliver(_, None) => size_of::<SocketName>(),
        }
    }
}
