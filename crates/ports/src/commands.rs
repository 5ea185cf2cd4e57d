//! Commands: how the rest of the process acts on sessions and rooms, from any thread.
//!
//! Commands wait in an inbox per core, bounded in messages and bytes, and charged to the ledger. A call never blocks. A
//! command that doesn't fit into each inbox that it concerns has no effect, and is answered [`Busy`] or
//! [`CommandError::Busy`]: wait for [`ControlPlane::space`](crate::ControlPlane::space), then try again.
//!
//! **Work is budgeted.** A core works on commands for sessions and rooms in slices, a bounded number of sessions per turn,
//! in the order in which they arrived. A command concerns the sessions that are there when a core visits them.
//! Publications and updates of feeds don't wait for these commands, so a caller that depends on the effect of a command
//! waits for its answer.

use crate::{
    Busy, CommandError, Denial, Done, MemberList, MembersQuery, PublicId, Recheck, RoomList, RoomsQuery,
    SessionList,
};
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{CoreId, Data, Room, RoomError, Rooms, SessionId};

/// A message for a room.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The room.
    pub room: Room,
    /// The event's name, if it has one.
    pub event: Option<Arc<str>>,
    /// The content.
    pub data: Data,
}

/// Receives acknowledgements.
pub type Acknowledged = Arc<dyn Fn(Data) + Send + Sync>;

/// A session that a target names.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// Not decoded yet.
    Id(PublicId),
    /// A session of this node.
    Session(CoreId, SessionId),
    /// No session of this node. Another node may have it.
    Unknown(PublicId),
}

impl Named {
    fn id(&self) -> Option<PublicId> {
        match self {
            Self::Id(id) | Self::Unknown(id) => Some(*id),
            Self::Session(..) => None,
        }
    }
}

/// The sessions of one namespace that a command is for: the members of any of some rooms, and some sessions by id, without
/// the members of other rooms and without other sessions. Each session counts once.
///
/// Sessions of plain protocols (WebSocket, SockJS, Engine.IO without Socket.IO, Primus) are in the main namespace, `/`. All
/// sockets of a namespace are members of [`Room::all_members`]; plain sessions aren't.
#[derive(Clone, Debug)]
pub struct Target {
    /// The room of all sockets of the namespace.
    pub everybody: Room,
    /// Rooms whose members are meant.
    pub rooms: Vec<Room>,
    /// Sessions that are meant by id.
    pub sessions: Vec<Named>,
    /// Rooms whose members are left out.
    pub except_rooms: Vec<Room>,
    /// Sessions that are left out.
    pub except_sessions: Vec<Named>,
}

impl Target {
    /// No session of `namespace` yet.
    ///
    /// # Errors
    /// If the namespace doesn't have 1 to 256 bytes.
    pub fn of(namespace: &str) -> Result<Self, RoomError> {
        Ok(Self {
            everybody: Room::all_members(namespace)?,
            rooms: Vec::new(),
            sessions: Vec::new(),
            except_rooms: Vec::new(),
            except_sessions: Vec::new(),
        })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.everybody.namespace()
    }

    /// And all sockets of the namespace.
    pub fn everybody(mut self) -> Self {
        self.rooms.push(self.everybody.clone());
        self
    }

    /// And the members of a room.
    ///
    /// # Errors
    /// If the name doesn't have 1 to 256 bytes.
    pub fn room(mut self, name: &str) -> Result<Self, RoomError> {
        self.rooms.push(self.everybody.sibling(name)?);
        Ok(self)
    }

    /// And a session. One of another namespace is left out, and so is one that doesn't exist.
    pub fn session(mut self, id: PublicId) -> Self {
        self.sessions.push(Named::Id(id));
        self
    }

    /// But not the members of a room.
    ///
    /// # Errors
    /// If the name doesn't have 1 to 256 bytes.
    pub fn except_room(mut self, name: &str) -> Result<Self, RoomError> {
        self.except_rooms.push(self.everybody.sibling(name)?);
        Ok(self)
    }

    /// But not a session.
    pub fn except_session(mut self, id: PublicId) -> Self {
        self.except_sessions.push(Named::Id(id));
        self
    }

    /// The members of any of `rooms`, without those of `except_rooms`, all of the namespace whose sockets are the members of
    /// `all_members`.
    pub fn of_rooms(all_members: Room, rooms: Vec<Room>, except_rooms: Vec<Room>) -> Self {
        let (sessions, except_sessions) = (Vec::new(), Vec::new());
        Self { everybody: all_members, rooms, sessions, except_rooms, except_sessions }
    }

    /// The room of all sockets of the namespace.
    pub fn all_members(&self) -> &Room {
        &self.everybody
    }

    /// The rooms.
    pub fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    /// The rooms whose members are left out.
    pub fn except_rooms(&self) -> &[Room] {
        &self.except_rooms
    }

    /// The sessions that are named.
    pub fn session_ids(&self) -> impl Iterator<Item = PublicId> {
        self.sessions.iter().filter_map(Named::id)
    }

    /// The sessions that are left out.
    pub fn except_session_ids(&self) -> impl Iterator<Item = PublicId> {
        self.except_sessions.iter().filter_map(Named::id)
    }

    /// Approximate size.
    pub fn bytes(&self) -> usize {
        let rooms = self.rooms.iter().chain(&self.except_rooms);
        let rooms: usize = rooms.map(|room| size_of::<Room>() + room.name().len()).sum();
        size_of::<Self>() + rooms + (self.sessions.len() + self.except_sessions.len()) * size_of::<Named>()
    }
}

/// A command for the sessions of a [`Target`].
pub enum Command {
    /// Sends them a message. One to a single room that keeps history is kept there; one to several rooms isn't.
    Emit {
        /// The event's name. Without one, Socket.IO clients receive the event `message`.
        event: Option<Arc<str>>,
        /// The content.
        data: Data,
        /// Skips sessions whose connection isn't ready to send, as Socket.IO's `volatile`.
        volatile: bool,
        /// Receives how many sessions the message is for, including those that a volatile one skips.
        done: Done<Concerned>,
    },
    /// Sends them an event that clients of Socket.IO acknowledge; other clients receive it, and aren't counted. Unlike with
    /// [`Self::Emit`], members of rooms on other nodes don't receive it.
    Call {
        /// The event's name.
        event: Arc<str>,
        /// The content.
        data: Data,
        /// Later acknowledgements are ignored.
        timeout: Duration,
        /// Receives what each client acknowledges the event with, as [`Data::Arguments`], on a core's thread.
        answered: Acknowledged,
        /// Receives how many clients are to acknowledge it.
        done: Done<Concerned>,
    },
    /// Makes them members of rooms, with the policy `queue`.
    Join {
        /// Rooms of the target's namespace.
        rooms: Rooms,
        /// Receives how many sessions are members of all of them now.
        done: Done<Concerned>,
    },
    /// Ends their membership of rooms.
    Leave {
        /// Rooms of the target's namespace.
        rooms: Rooms,
        /// Receives how many sessions there are, members before or not.
        done: Done<Concerned>,
    },
    /// Ends them, for the reason `closed_by_application`.
    Disconnect {
        /// Ends the connection of a Socket.IO client, with its sockets in other namespaces. Otherwise the client leaves
        /// the namespace, and its connection stays open. Other clients have one session per connection.
        close: bool,
        /// Receives how many sessions ended.
        done: Done<Concerned>,
    },
    /// Lists them. Suspended sessions, whose clients are disconnected, are left out.
    Sessions {
        /// How many to list: at most [`SESSIONS_LISTED_MAX`](super::SESSIONS_LISTED_MAX). Others are counted only.
        limit: usize,
        /// Receives the list.
        done: Done<SessionList>,
    },
}

impl Command {
    /// Approximate size of the content.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Emit { data, .. } | Self::Call { data, .. } => data.len(),
            Self::Join { rooms, .. } | Self::Leave { rooms, .. } => rooms.iter().count() * size_of::<Room>(),
            Self::Disconnect { .. } | Self::Sessions { .. } => 0,
        }
    }

    /// Answers the command without an effect.
    pub fn fail(self, error: CommandError) {
        match self {
            Self::Emit { done, .. }
            | Self::Call { done, .. }
            | Self::Join { done, .. }
            | Self::Leave { done, .. }
            | Self::Disconnect { done, .. } => done.answer(Err(error)),
            Self::Sessions { done, .. } => done.answer(Err(error)),
        }
    }
}

/// How many sessions a command concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Sessions for which it was carried out.
    pub sessions: usize,
    /// Sessions that couldn't join a room, because they or their core have reached the maximum
    /// (`limits.subscriptions_max`, `limits.topics_max`).
    pub refused: usize,
    /// Names of nodes that didn't answer in time: their sessions aren't counted.
    pub missing_nodes: Vec<String>,
}

impl Concerned {
    /// `sessions` for which a command was carried out, all of this node.
    pub fn sessions(sessions: usize) -> Self {
        Self { sessions, ..Self::default() }
    }

    /// Adds the result of another core or node.
    pub fn merge(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.refused += other.refused;
        self.missing_nodes.extend(other.missing_nodes);
    }
}

/// Commands for sessions and rooms: the side of the data plane that the admin API, hooks and bridges call. No call blocks.
pub trait Commands: Send + Sync {
    /// Sends a message to a room, here and on other nodes. Messages of one caller to one room keep their order.
    ///
    /// # Errors
    /// The core's inbox is full, the memory budget is used up, or messages wait for the [`Broker`](crate::Broker); nothing was
    /// sent.
    fn publish(&self, message: Publish) -> Result<(), Busy>;

    /// Sends a message as [`Self::publish`], and answers when the message is kept: where an engine orders rooms with history, when the
    /// engine has it, or why not. Otherwise at once. With a key, the engine publishes the first of several messages to a room within
    /// five minutes; the key is ignored if no engine orders the room ([`Topology::is_ordered`](crate::Topology::is_ordered)).
    fn publish_kept(&self, message: Publish, key: Option<Arc<str>>, done: Done<Result<(), Denial>>);

    /// Does something with sessions.
    fn command(&self, target: Target, command: Command);

    /// Looks at the identities of sessions again, on all cores, because tokens were revoked or permissions have changed. `done`
    /// receives how many sessions matched, and in `refused` how many of them ended.
    fn recheck(&self, recheck: Recheck, done: Done<Concerned>);

    /// Lists members of a room, those of all nodes.
    fn list_members(&self, query: MembersQuery, done: Done<MemberList>);

    /// Lists rooms.
    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>);
}
