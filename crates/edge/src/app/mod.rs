//! Applications: what a server does with its sessions.
//!
//! One value of an [`Application`] lives on each core; its handlers run on that core's thread and return at
//! once (no futures, no locks). It acts through a [`Context`]. Acknowledgements, namespaces and admission
//! that waits for an answer come with Socket.IO.

mod chat;
mod echo;
mod rooms;

pub use chat::Chat;
pub use echo::Echo;
pub use rooms::RoomsApp;

use crate::format::Formats;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{
    CoreId, Data, Disconnect, Emit, Hub, Notice, Policy, Position, Room, SessionId, SubscribeError, Topic,
};
use stentor_wire::http1::Request;
use stentor_wire::ws::{self, Opcode};

/// A message as it came from a client, or goes to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Text in UTF-8.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

/// The answer to a client that wants to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// Welcome.
    #[default]
    Accept,
    /// Not welcome.
    Refuse {
        /// An HTTP status, 400–599.
        status: u16,
        /// Why, for people.
        message: String,
    },
}

/// How publications are written for the plain sessions of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// `stentor.v1` messages.
    V1,
    /// Bodies only.
    Raw,
}

/// What a server does with its sessions. All handlers run on the core that owns the session.
pub trait Application {
    /// How publications reach plain sessions that don't ask for something else.
    fn envelope(&self) -> Envelope {
        Envelope::Raw
    }

    /// A client wants to connect.
    fn connect(&mut self, _ctx: &mut Context<'_>, _request: &Request<'_>) -> Connect {
        Connect::Accept
    }

    /// A session has begun.
    fn opened(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _envelope: Envelope) {}

    /// A client has sent a message.
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>);

    /// A session has to be told about one of its subscriptions.
    fn notice(&mut self, _ctx: &mut Context<'_>, _notice: &Notice) {}

    /// A session has ended.
    fn closed(&mut self, _ctx: &mut Context<'_>, _session: SessionId) {}

    /// A timer of [`Context::after`] has fired.
    fn timer(&mut self, _ctx: &mut Context<'_>, _token: u64) {}
}

/// What a handler may do.
pub struct Context<'a> {
    pub(crate) hub: &'a mut Hub<Formats>,
    /// Answers to the client whose message is being handled, framed.
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) current: Option<SessionId>,
    pub(crate) envelope: Envelope,
    pub(crate) actions: &'a mut Vec<Action>,
    pub(crate) now: Instant,
    pub(crate) core: CoreId,
    pub(crate) seed: [u64; 2],
    pub(crate) heartbeat_interval: Duration,
    pub(crate) json_depth_max: usize,
    /// The process is over its budget for memory.
    pub(crate) is_overloaded: bool,
    /// About how many bytes the handler has published: its connection may have to wait for other cores.
    pub(crate) published_bytes: usize,
}

/// About how many bytes a message takes besides its data, where it is counted before it is encoded.
pub(crate) const ENVELOPE_BYTES: usize = 64;

/// What a handler asked for that concerns other connections, done after it has returned.
pub(crate) enum Action {
    Send { session: SessionId, opcode: Opcode, payload: Vec<u8> },
    Close { session: SessionId, why: Disconnect },
    After { at: Instant, token: u64 },
}

impl Context<'_> {
    /// The time of this turn of the core.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether the process is over its budget for memory (`limits.memory_bytes_max`): better not to publish.
    pub fn is_overloaded(&self) -> bool {
        self.is_overloaded
    }

    /// How publications are written for the session that this call is about.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// Sends a message to one session of this core, before what it is owed of its topics.
    pub fn send(&mut self, session: SessionId, message: Message<'_>) {
        let (opcode, payload) = match message {
            Message::Text(text) => (Opcode::Text, text.as_bytes()),
            Message::Binary(bytes) => (Opcode::Binary, bytes),
        };
        if self.current == Some(session) {
            ws::encode(self.out, opcode, payload, false, None);
        } else {
            self.actions.push(Action::Send { session, opcode, payload: payload.to_vec() });
        }
    }

    /// Ends a session after this handler. Nothing more of it is handled.
    pub fn close(&mut self, session: SessionId, why: Disconnect) {
        self.actions.push(Action::Close { session, why });
    }

    /// Makes a session of this core a member of a room.
    pub fn join(&mut self, session: SessionId, room: &Room, policy: Policy) -> Result<(), SubscribeError> {
        self.subscribe(session, &Topic::Room(room.clone()), policy, None)
    }

    /// Subscribes a session of this core; `since` is what the client has.
    pub fn subscribe(
        &mut self,
        session: SessionId,
        topic: &Topic,
        policy: Policy,
        since: Option<Position>,
    ) -> Result<(), SubscribeError> {
        self.hub.handle_subscribe(session, topic, policy, since)
    }

    /// Ends a subscription and says whether there was one.
    pub fn unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        self.hub.handle_unsubscribe(session, topic)
    }

    /// Publishes to a room, on all cores.
    pub fn publish(&mut self, room: &Room, event: Option<Arc<str>>, data: Data, how: Emit) {
        self.published_bytes += data.len() + ENVELOPE_BYTES;
        self.hub.handle_publish(self.now, room, event, data, how);
    }

    /// Leaves `session` out of what is published with the result.
    pub fn except(&self, session: SessionId) -> Emit {
        Emit::default().except_session(self.core, session)
    }

    /// Calls [`Application::timer`] with `token` after `duration`.
    pub fn after(&mut self, duration: Duration, token: u64) {
        self.actions.push(Action::After { at: self.now + duration, token });
    }
}
