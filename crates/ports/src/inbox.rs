//! The command inbox: how the rest of the process acts on the data plane, from any thread.
//!
//! Commands wait in an inbox per core, bounded in messages and bytes, and charged to the ledger. A call never blocks. A
//! command that doesn't fit into each inbox that it concerns has no effect, and is answered [`Busy`] or
//! [`CommandError::Busy`]: wait for [`crate::ControlPlane::space`], then try again.
//!
//! **Work is budgeted.** A core works on commands for sessions and rooms in slices, a bounded number of sessions per turn,
//! in the order in which they arrived. A command concerns the sessions that are there when a core visits them.
//! Publications and updates of feeds don't wait for these commands, so a caller that depends on the effect of a command
//! waits for its answer.

use super::{
    Broadcast, Denial, EventReply, Identity, MemberList, MembersQuery, MovingSocket, PublicId, Recheck,
    RoomList, RoomsQuery, SessionList, SocketName, SocketRequest, Ticket,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{
    CoreId, Data, Document, FeedState, HistoryMessage, Key, Patch, Position, PresenceMessage, Requester,
    Room, RoomError, Rooms, SessionId,
};

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

/// News of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedUpdate {
    /// A new version. The feed is live from now on.
    Document(Document),
    /// The same, with the patch from the previous version. A core that has another previous version ignores the patch.
    Patched(Document, Patch),
    /// A new version whose position another node of the cluster has assigned. The feed is live from now on. A version that
    /// isn't newer than the newest one of its epoch has no effect.
    At {
        /// The position.
        position: Position,
        /// The document.
        document: Document,
        /// JSON Patches (RFC 6902) that lead to it, oldest first, from consecutive versions.
        patches: Vec<Bytes>,
    },
    /// The document stays as it is (or there never was one); the state changed.
    State {
        /// The new state. `NotFound` means that there is no such key: subscribers are notified and unsubscribed.
        state: FeedState,
        /// Why, for people.
        reason: Arc<str>,
    },
    /// The control plane doesn't keep the feed any more: the data plane may drop its state. No effect while the feed has
    /// subscribers. Follows when a key without subscribers has been idle for long enough, and after a `NotFound` that
    /// the control plane doesn't remember.
    Forget,
    /// The feed isn't fetched for this session, which already waits for the maximum number of never-fetched keys
    /// (`limits.cold_keys_max`). Ends the subscription of this session only. Sent to the session's core, not to the
    /// key's home core.
    Refuse(Requester),
    /// The feed is as new here as it was in the engine when that was read for the given time
    /// ([`super::Broker::confirm_feed`]).
    Confirmed(u64),
}

/// News of a room with history that the engine orders ([`super::Broker::orders_history`]).
#[derive(Clone, Debug)]
pub enum RoomUpdate {
    /// The next message. Offsets grow, and no message is left out; if one may be missing, send [`Self::History`] instead.
    Message {
        /// Its position.
        position: Position,
        /// The event's name, if it has one.
        event: Option<Arc<str>>,
        /// The content.
        data: Data,
        /// Whose members are left out,
        except_rooms: Vec<Room>,
        /// and which sessions, of any node.
        except_sessions: Vec<PublicId>,
    },
    /// All messages that followed a position, oldest first. The first news of a room that gets subscribers, and what closes
    /// a gap.
    History {
        /// The position; offset 0 of [`Epoch::NONE`](stentor_hub::Epoch::NONE) if the room never had a message.
        after: Position,
        /// The messages.
        messages: Vec<HistoryMessage>,
    },
    /// The room is as new here as it was in the engine when [`super::Broker::confirm_history`] was called.
    Confirmed,
}

impl RoomUpdate {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message { data, except_rooms, except_sessions, .. } => {
                data.len() + size_of_val(&except_rooms[..]) + size_of_val(&except_sessions[..])
            }
            Self::History { messages, .. } => messages.iter().map(|message| message.data.len()).sum(),
            Self::Confirmed => 0,
        }
    }
}

/// The inbox is full. Wait for [`crate::ControlPlane::space`], then try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Why a command has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// An inbox is full, or memory is short. The command had no effect.
    Busy,
    /// The node stopped before it finished the command.
    Stopped,
}

/// Receives the answer to a command, exactly once. It runs on a core's thread, or within the call if the command is
/// refused, so it has to return at once.
pub struct Done<T>(Option<Receive<T>>);

type Receive<T> = Box<dyn FnOnce(Result<T, CommandError>) + Send>;

impl<T> Done<T> {
    /// Calls `receive` with the answer.
    pub fn new(receive: impl FnOnce(Result<T, CommandError>) + Send + 'static) -> Self {
        Self(Some(Box::new(receive)))
    }

    /// Gives the answer.
    pub fn answer(mut self, answer: Result<T, CommandError>) {
        if let Some(receive) = self.0.take() {
            receive(answer);
        }
    }
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        if let Some(receive) = self.0.take() {
            receive(Err(CommandError::Stopped));
        }
    }
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

/// What to do with the sessions of a [`Target`].
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

/// Takes commands for the data plane, from any thread. No call blocks.
pub trait CommandInbox: Send + Sync {
    /// Sends a message to a room, here and on other nodes. Messages of one caller to one room keep their order.
    ///
    /// # Errors
    /// The core's inbox is full, the memory budget is used up, or messages wait for the [`super::Broker`]; nothing was
    /// sent.
    fn publish(&self, message: Publish) -> Result<(), Busy>;

    /// The same, and says when the message is kept: where an engine orders rooms with history, when the engine has it, or why not.
    /// Otherwise at once. With a key, the engine publishes the first of several messages to a room within five minutes; it is ignored
    /// if no engine orders the room ([`crate::DataPlane::is_ordered`]).
    fn publish_kept(&self, message: Publish, _key: Option<Arc<str>>, done: Done<Result<(), Denial>>) {
        done.answer(self.publish(message).map(Ok).map_err(|Busy| CommandError::Busy));
    }

    /// Delivers a message that was published on another node to the members on this one. It isn't handed to the
    /// [`super::Broker`]. Messages of one caller to the same rooms keep their order.
    ///
    /// # Errors
    /// The core's inbox is full or the memory budget is used up; nothing was delivered.
    fn receive(&self, message: Broadcast) -> Result<(), Busy>;

    /// As [`Self::receive`], but messages of one caller to all rooms of a namespace keep their order. None of the rooms keeps
    /// history. One core takes all of them.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    fn receive_in_order(&self, message: Broadcast) -> Result<(), Busy> {
        self.receive(message)
    }

    /// Sends news of a room with history to its home core, which delivers them at their positions. News of one room keep their
    /// order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy>;

    /// Answers a question to the [`Authorizer`](super::Authorizer) that was
    /// [`Decision::Pending`](super::Decision::Pending), or says whether the engine has a message
    /// ([`Broker::publish_with_history`](super::Broker::publish_with_history)). No effect if the client has gone, the time is over, or the question
    /// has been answered.
    ///
    /// # Errors
    /// The core's inbox is full; nothing was answered.
    fn decide(&self, ticket: Ticket, answer: Result<(), Denial>) -> Result<(), Busy>;

    /// Answers credentials for which the [`Authenticator`](super::Authenticator) had no answer yet
    /// ([`Authentication::Pending`](super::Authentication::Pending)). No effect if the client has gone or the time is over.
    ///
    /// # Errors
    /// The core's inbox is full; nothing was answered.
    fn identify(&self, _ticket: Ticket, _answer: Result<Arc<Identity>, Denial>) -> Result<(), Busy> {
        Ok(())
    }

    /// Looks at the identities of sessions again, on all cores, because tokens were revoked or permissions have changed. `done`
    /// receives how many sessions matched, and in `refused` how many of them ended.
    fn recheck(&self, _recheck: Recheck, done: Done<Concerned>) {
        done.answer(Ok(Concerned::default()));
    }

    /// Replies to an event that an [`EventSink`](super::EventSink) has taken, or says why not. If the client has gone, or the time
    /// is over, only messages to rooms are sent.
    ///
    /// # Errors
    /// The core's inbox is full; nothing was done.
    fn reply(&self, _ticket: Ticket, _reply: Result<EventReply, Denial>) -> Result<(), Busy> {
        Ok(())
    }

    /// Sends news of a feed to its home core. News of one key keep their order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy>;

    /// Does something with sessions.
    fn command(&self, target: Target, command: Command);

    /// Lists members of a room, those of all nodes.
    fn list_members(&self, _query: MembersQuery, done: Done<MemberList>) {
        done.answer(Ok(MemberList::default()));
    }

    /// Another node says who is in a room, or asks. Messages of one node about a room keep their order.
    ///
    /// # Errors
    /// The inbox of the home core is full; nothing was sent.
    fn update_presence(&self, _room: &Room, _node: u64, _message: PresenceMessage) -> Result<(), Busy> {
        Ok(())
    }

    /// A node is dead: its members leave.
    ///
    /// # Errors
    /// An inbox is full; nothing was sent.
    fn lose_node(&self, _node: u64) -> Result<(), Busy> {
        Ok(())
    }

    /// Lists rooms.
    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>);

    /// Whether a session with this id may be on this node. Otherwise a command for it has no effect.
    fn may_have(&self, _id: PublicId) -> bool {
        true
    }

    /// Another node asks for a socket of this one. `done` receives `None` if there is none.
    fn request_socket(&self, _name: SocketName, _request: SocketRequest, done: Done<Option<MovingSocket>>) {
        done.answer(Ok(None));
    }

    /// A socket that a client waits for comes from another node: it joins its rooms. `done` receives whether it is still waited
    /// for, after the interest in its rooms was reported ([`Broker::set_interest`](super::Broker::set_interest)).
    fn expect_socket(&self, _ticket: Ticket, _socket: MovingSocket, done: Done<bool>) {
        done.answer(Ok(false));
    }

    /// A socket that a client waits for has come, after [`Self::expect_socket`]; or `None`: it doesn't come. No effect if the
    /// client has gone, or the time is over.
    ///
    /// # Errors
    /// An inbox is full; the socket is lost.
    fn deliver_socket(&self, _ticket: Ticket, _socket: Option<MovingSocket>) -> Result<(), Busy> {
        Ok(())
    }
}
