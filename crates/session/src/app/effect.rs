//! Effects: actions that handlers and machines cause on a connection, a client, a session or at a later time. Answers to the
//! current input aren't effects: the handler writes them into the connection's output buffer.

use super::{Connect, PresenceReply, Sent};
use crate::identity::{ClientId, End, Service};
use crate::ports::{Denial, Identity, MembersQuery};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use stentor_frame::ConnId;
use stentor_hub::{CoreId, Disconnect, SessionId, Topic};

/// Work that the core carries out after a handler has returned.
pub enum Effect {
    /// An effect on a connection.
    Connection(ConnId, ToConnection),
    /// An effect on a client.
    Client(ClientId, ToClient),
    /// An effect on a session.
    Session(SessionId, ToSession),
    /// Sets off an alarm at this time.
    Alarm(Instant, Alarm),
}

/// An effect on a connection.
pub enum ToConnection {
    /// Writes an answer to the waiting response.
    Answer(PollAnswer),
    /// Sends the connection's pending data.
    Flush,
    /// Appends encoded bytes to the connection's replies and flushes them.
    Write(Vec<u8>),
    /// Closes a WebSocket with a Close frame.
    Close(u16, &'static str),
    /// Ends a WebSocket without a Close frame.
    End,
    /// Ends the connection at once, without sending pending data.
    Abort,
    /// Closes a connection that holds more memory than is currently allowed.
    RefuseInput,
    /// Answers the waiting request with the application's decision.
    Admit(Connect),
}

/// The content of a response to a client.
pub enum PollAnswer {
    /// The client's pending messages, or the reason why the client has ended.
    Pending,
    /// A heartbeat (SockJS).
    Heartbeat,
    /// At least one record (see [`crate::encode`]), for Engine.IO.
    Records(Vec<u8>),
    /// Status 503: the session has ended, and the client should reconnect (Engine.IO).
    Unavailable,
}

/// An effect on a client.
pub enum ToClient {
    /// Ends the client with its sessions.
    End(End),
    /// Removes a client that has ended.
    Remove,
    /// Sends the client's pending messages, if it has a connection.
    Flush,
    /// Sets the client's timer again.
    Arm,
    /// Moves the client to another core, which has the client's missed messages.
    Migrate(CoreId),
}

/// An effect on a session.
#[expect(missing_docs, reason = "the names of the variants' fields say what they are")]
pub enum ToSession {
    /// Sends a message.
    Send(Sent),
    /// Writes answers in the session's encoding.
    Write(Vec<u8>),
    /// Ends the session.
    Close(Disconnect),
    /// Ends the session with a code and a reason of the application.
    CloseWith(u16, String),
    /// Lists members of a room for the client.
    ListMembers { query: MembersQuery, for_watcher: bool, reply: PresenceReply },
    /// Replaces the identity, because the client has presented a newer token.
    Renew(Arc<Identity>),
    /// Notifies the client that it has missed messages of a room, because it may not read the room's history.
    NoHistory(Topic),
    /// Notifies the client that a subscription has ended because it is no longer allowed.
    Withdrawn(Topic, Denial),
}

/// An action at a later time.
pub enum Alarm {
    /// Calls the application of a service with this token.
    App(Service, u64),
    /// Ends the application's wait for an acknowledgement.
    Ack(u64),
    /// Ends a command's wait for acknowledgements.
    Acks(Vec<u64>),
    /// Ends the wait for acknowledgements of clients of workers.
    LinkCall(u32),
    /// Writes bytes to a client.
    Write(ClientId, Vec<u8>),
}

/// The pending effects of a core. Effects on connections and clients, and answers, come before the others, so the messages of a
/// handler are sent before its session ends.
#[derive(Default)]
pub(crate) struct Effects {
    near: VecDeque<Effect>,
    far: Vec<Effect>,
}

impl Effects {
    /// Adds an effect.
    #[inline]
    pub(crate) fn push(&mut self, effect: Effect) {
        match effect {
            Effect::Session(_, ToSession::Write(_)) => self.near.push_back(effect),
            Effect::Connection(_, ToConnection::Admit(_)) | Effect::Session(..) | Effect::Alarm(..) => {
                self.far.push(effect);
            }
            Effect::Connection(..) | Effect::Client(..) => self.near.push_back(effect),
        }
    }

    /// Returns `true` if all effects have been carried out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty()
    }

    /// Takes the next effect on a connection or client, or the next answer to a session.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Effect> {
        self.near.pop_front()
    }

    /// Takes all other effects.
    pub(crate) fn take_others(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.far)
    }

    /// The number of other effects.
    #[inline]
    pub(crate) fn mark(&self) -> usize {
        self.far.len()
    }

    /// Returns `true` if an effect that was added after [`Self::mark`] closes the session.
    #[inline]
    pub(crate) fn closes_since(&self, mark: usize, session: SessionId) -> bool {
        self.far[mark..].iter().any(|effect| {
            matches!(effect, Effect::Session(of, ToSession::Close(_) | ToSession::CloseWith(..)) if *of == session)
        })
    }

    /// Returns `true` if an effect sends a message to the session.
    pub(crate) fn sends_to(&self, session: SessionId) -> bool {
        self.far
            .iter()
            .any(|effect| matches!(effect, Effect::Session(of, ToSession::Send(_)) if *of == session))
    }
}
