//! Commands, by which the rest of the process acts on sessions and rooms, from any thread.
//!
//! Commands wait in an inbox per core, bounded in messages and bytes, and charged to the ledger. A call never blocks. A
//! command that doesn't fit into each inbox that it concerns has no effect, and is answered [`Busy`] or
//! [`CommandError::Busy`]: wait for [`ControlPlane::space`](crate::ControlPlane::space), then try again.
//!
//! **Work is budgeted.** A core works on commands for sessions and rooms in slices, a bounded number of sessions per turn,
//! in the order in which they arrived. A command acts on the sessions that exist when a core visits them.
//! Publications and updates of feeds don't wait for these commands, so a caller that depends on the effect of a command
//! waits for its answer.

use crate::{
    Busy, CommandError, Denial, Done, LinkApp, MemberList, MembersQuery, PublicId, Recheck, RoomList,
    RoomsQuery, SessionList, SessionsQuery, SubscriberCounts,
};
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{CoreId, Data, Key, Room, RoomError, Rooms, SessionId};

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

/// Receives acknowledgements. The caller of [`Command::Call`] keeps a clone until it has enough of them. Other nodes' acknowledgements are
/// passed on as long as the clone exists.
pub type Acknowledged = Arc<dyn Fn(Data) + Send + Sync>;

/// A session that a [`Target`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// An id that hasn't been decoded yet.
    Id(PublicId),
    /// A session of this node.
    Session(CoreId, SessionId),
    /// An id that names no session of this node. Another node may have the session.
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

/// Selects sessions of one namespace for a command: the members of rooms and individual sessions, except the members of other
/// rooms and other individual sessions. Each session counts once.
///
/// Sessions of plain protocols (WebSocket, SockJS, Engine.IO without Socket.IO, Primus) are in the main namespace, `/`. All
/// sockets of a namespace are members of [`Room::all_members`]; plain sessions aren't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The room of all sockets of the namespace.
    pub everybody: Room,
    /// Rooms whose members are selected.
    pub rooms: Vec<Room>,
    /// Sessions that are selected by id.
    pub sessions: Vec<Named>,
    /// Rooms whose members are left out.
    pub except_rooms: Vec<Room>,
    /// Sessions that are left out.
    pub except_sessions: Vec<Named>,
}

impl Target {
    /// Selects no session of `namespace` yet.
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

    /// Adds all sockets of the namespace.
    pub fn everybody(mut self) -> Self {
        self.rooms.push(self.everybody.clone());
        self
    }

    /// Adds the members of a room.
    ///
    /// # Errors
    /// If the name doesn't have 1 to 256 bytes.
    pub fn room(mut self, name: &str) -> Result<Self, RoomError> {
        self.rooms.push(self.everybody.sibling(name)?);
        Ok(self)
    }

    /// Adds a session. It is ignored if it doesn't exist or belongs to another namespace.
    pub fn session(mut self, id: PublicId) -> Self {
        self.sessions.push(Named::Id(id));
        self
    }

    /// Leaves out the members of a room.
    ///
    /// # Errors
    /// If the name doesn't have 1 to 256 bytes.
    pub fn except_room(mut self, name: &str) -> Result<Self, RoomError> {
        self.except_rooms.push(self.everybody.sibling(name)?);
        Ok(self)
    }

    /// Leaves out a session.
    pub fn except_session(mut self, id: PublicId) -> Self {
        self.except_sessions.push(Named::Id(id));
        self
    }

    /// Selects the members of any of `rooms`, without the members of `except_rooms`. All rooms are of the namespace whose sockets
    /// are the members of `all_members`.
    pub fn of_rooms(all_members: Room, rooms: Vec<Room>, except_rooms: Vec<Room>) -> Self {
        let (sessions, except_sessions) = (Vec::new(), Vec::new());
        Self { everybody: all_members, rooms, sessions, except_rooms, except_sessions }
    }

    /// `true` if the target selects neither rooms nor sessions.
    pub fn is_empty(&self) -> bool {
        self.rooms.is_empty() && self.sessions.is_empty()
    }

    /// Reduces the target to the sessions selected by id that aren't members of its rooms.
    pub fn only_sessions(mut self) -> Self {
        self.except_rooms.append(&mut self.rooms);
        self
    }

    /// The ids of the selected sessions.
    pub fn session_ids(&self) -> impl Iterator<Item = PublicId> {
        self.sessions.iter().filter_map(Named::id)
    }

    /// The ids of the sessions that are left out.
    pub fn except_session_ids(&self) -> impl Iterator<Item = PublicId> {
        self.except_sessions.iter().filter_map(Named::id)
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let rooms = self.rooms.iter().chain(&self.except_rooms);
        let rooms: usize = rooms.map(|room| size_of::<Room>() + room.name().len()).sum();
        size_of::<Self>() + rooms + (self.sessions.len() + self.except_sessions.len()) * size_of::<Named>()
    }
}

/// A command for the sessions of a [`Target`].
pub enum Command {
    /// Sends a message. A message to a single room with history is added to the history; a message to several rooms isn't.
    Emit {
        /// The event's name. Without one, Socket.IO clients receive the event `message`.
        event: Option<Arc<str>>,
        /// The content.
        data: Data,
        /// Skips sessions whose connection isn't ready to send, as Socket.IO's `volatile`.
        volatile: bool,
        /// Receives the number of sessions that the message is for. Sessions that a volatile message skips are included.
        done: Done<Concerned>,
    },
    /// Sends an event that Socket.IO clients acknowledge. Other clients receive the event and aren't counted. Sessions of all
    /// nodes of a cluster receive it, but not those of Socket.IO's own servers in a namespace that is shared with them.
    Call {
        /// The event's name.
        event: Arc<str>,
        /// The content.
        data: Data,
        /// Time to wait for acknowledgements. Later ones are ignored.
        timeout: Duration,
        /// Receives each client's acknowledgement, as [`Data::Arguments`], on a core's thread.
        answered: Acknowledged,
        /// Receives the number of clients that are expected to acknowledge the event.
        done: Done<Concerned>,
    },
    /// Makes the sessions members of rooms, with the policy `queue`.
    Join {
        /// Rooms of the target's namespace.
        rooms: Rooms,
        /// Receives the number of sessions that are now members of all the rooms.
        done: Done<Concerned>,
    },
    /// Removes the sessions from rooms.
    Leave {
        /// Rooms of the target's namespace.
        rooms: Rooms,
        /// Receives the number of sessions, including those that weren't members.
        done: Done<Concerned>,
    },
    /// Ends the sessions, for the reason `closed_by_application`.
    Disconnect {
        /// Ends the connection of a Socket.IO client, with its sockets in other namespaces. Otherwise the client leaves
        /// the namespace, and its connection stays open. Other clients have one session per connection.
        close: bool,
        /// Receives the number of sessions that ended.
        done: Done<Concerned>,
    },
    /// Lists the sessions. Suspended sessions, whose clients are disconnected, are left out.
    Sessions {
        /// Maximum number of sessions to list: at most [`SESSIONS_LISTED_MAX`](super::SESSIONS_LISTED_MAX). Further
        /// sessions are only counted.
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

    /// Answers the command without carrying it out.
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

/// The number of sessions that a command concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Sessions for which the command was carried out.
    pub sessions: usize,
    /// Sessions that couldn't join a room, because the session or its core has reached its maximum
    /// (`limits.subscriptions_max`, `limits.topics_max`).
    pub refused: usize,
    /// Names of nodes that didn't answer in time: their sessions aren't counted.
    pub missing_nodes: Vec<String>,
}

impl Concerned {
    /// The result of a command that was carried out for `sessions` sessions of this node.
    pub fn sessions(sessions: usize) -> Self {
        Self { sessions, ..Self::default() }
    }

    /// Adds the result of another core or node.
    pub fn merge(&mut self, other: Self) {
        self.sessions = self.sessions.saturating_add(other.sessions);
        self.refused = self.refused.saturating_add(other.refused);
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

    /// Sends a message like [`Self::publish`]. If an engine orders the room's history, `done` receives whether the engine
    /// has stored the message; otherwise it is answered at once. Of several messages with the same key within five minutes,
    /// the engine publishes only the first. The key is ignored if no engine orders the room
    /// ([`Topology::is_ordered`](crate::Topology::is_ordered)).
    fn publish_kept(&self, message: Publish, key: Option<Arc<str>>, done: Done<Result<(), Denial>>);

    /// Carries out an action on sessions.
    fn command(&self, target: Target, command: Command);

    /// Checks the identities of sessions again, on all cores, because tokens were revoked or permissions have changed. `done`
    /// receives the number of sessions that matched, and in `refused` the number of them that ended.
    fn recheck(&self, recheck: Recheck, done: Done<Concerned>);

    /// Lists members of a room on all nodes.
    fn list_members(&self, query: MembersQuery, done: Done<MemberList>);

    /// Lists rooms.
    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>);

    /// Lists sessions of this node, of all protocols and namespaces, the ones with the fullest send buffers first.
    fn list_sessions(&self, query: SessionsQuery, done: Done<SessionList>);

    /// Counts the subscribers of feed keys.
    fn count_subscribers(&self, keys: Vec<Key>, done: Done<SubscriberCounts>);

    /// Carries out an action on the sockets of an application of this node whose clients are served by workers. A socket's id is a room of
    /// its own. Named sessions of the target are ignored. An event reaches clients that speak Socket.IO's own
    /// parser.
    fn command_link(&self, app: LinkApp, target: Target, command: Command);

    /// Lists rooms of an application of this node whose clients are served by workers.
    fn list_link_rooms(&self, app: LinkApp, query: RoomsQuery, done: Done<RoomList>);
}
