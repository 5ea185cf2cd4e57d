//! A command of the control plane to a core.

use super::link::LinkBatch;
use super::moving::Barrier;
use super::tasks::Task;
use crate::app::Sent;
use crate::options::Options;
use crate::ports::{
    Broadcast, ClientConnection, Denial, Done, EventReply, FeedUpdate, Handover, Identity, Location,
    MovingSocket, Publish, RoomUpdate, SocketName, SocketRequest,
};
use bytes::Bytes;
use std::sync::Arc;
use stentor_frame::ConnId;
use stentor_hub::{Key, PresenceMessage, Room, SessionId};

/// A command of the control plane to a core.
pub enum ControlCommand {
    /// Publishes a message of this node.
    Publish(Publish),
    /// Delivers a message that another node published.
    Receive(Broadcast),
    /// Applies an update of a room from the engine.
    Room(Room, RoomUpdate),
    /// Applies another node's message about the members of a room.
    Presence(Room, u64, PresenceMessage),
    /// Removes the members of a dead node.
    LostNode(u64),
    /// Sends a session the answer to its request.
    Answer(SessionId, Box<Sent>),
    /// The answer to a question, by the number of its ticket.
    Decide(u64, Result<(), Denial>),
    /// The reply to an event, by the number of its ticket.
    Reply(u64, Box<Result<EventReply, Denial>>),
    /// The identity of a client, by the number of its question's ticket.
    Identify(u64, Box<Result<Arc<Identity>, Denial>>),
    /// Applies an update of a feed.
    Feed(Key, FeedUpdate),
    /// Adopts a connection that was outside of the data plane.
    Adopt(Box<ClientConnection>, Handover),
    /// The node of the session that a waiting request names.
    Located(ConnId, Location),
    /// Starts a task, whose work may take several turns.
    Task(Box<Task>),
    /// A socket that moves between nodes.
    Socket(Box<SocketCommand>),
    /// Entries of the application link. Their work may take several turns.
    Link(Box<LinkBatch>),
    /// The application link takes reports again.
    LinkSpace,
    /// Passes a barrier, which orders commands with the messages between cores.
    Barrier(Arc<Barrier>),
    /// Sets the options that apply from now on.
    Options(Arc<Options>, Arc<Barrier>),
    /// Stops (`true`) or resumes accepting connections.
    PauseAccepting(bool, Arc<Barrier>),
}

impl ControlCommand {
    /// Returns `true` if the command's work may take several turns. Its bytes then count until the work is
    /// done.
    pub(super) fn is_task(&self) -> bool {
        matches!(self, Self::Task(_) | Self::Link(_))
    }

    /// Approximate size.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Task(task) => task.bytes(),
            Self::Publish(message) => message.data.len(),
            Self::Receive(message) => message.bytes(),
            Self::Room(_, update) => update.bytes(),
            Self::Presence(_, _, message) => message.bytes(),
            Self::Answer(_, answer) => answer.bytes(),
            Self::Feed(_, FeedUpdate::Changed(change)) => change.bytes(),
            Self::Feed(_, FeedUpdate::At { document, patches, .. }) => {
                document.body.len() + patches.iter().map(Bytes::len).sum::<usize>()
            }
            Self::Socket(command) => command.bytes(),
            Self::Link(batch) => batch.bytes,
            Self::Reply(_, reply) => reply.as_ref().as_ref().map_or(0, EventReply::bytes),
            Self::Adopt(connection, _) => size_of::<ClientConnection>() + connection.input.len(),
            Self::LostNode(_)
            | Self::Feed(..)
            | Self::Decide(..)
            | Self::Identify(..)
            | Self::Barrier(_)
            | Self::Options(..)
            | Self::PauseAccepting(..)
            | Self::LinkSpace
            | Self::Located(..) => 0,
        }
    }
}

/// A command to a core about a socket that moves between nodes.
pub enum SocketCommand {
    /// Another node requests a socket.
    Request(SocketName, SocketRequest, Done<Option<MovingSocket>>),
    /// Announces a socket, for the question with this number.
    Expect(u64, MovingSocket, Done<bool>),
    /// Delivers the socket for a question. `None` if no node has it.
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
