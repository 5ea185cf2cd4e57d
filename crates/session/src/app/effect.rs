//! Effects: requests of handlers and machines that concern a connection, a client, a session or a later time. Answers to the input
//! that is being handled aren't effects, because they are written into its buffer.

use super::{Connect, PresenceReply, Sent};
use crate::identity::{ClientId, End, Service};
use crate::ports::{Denial, Identity, MembersQuery};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use stentor_frame::ConnId;
use stentor_hub::{CoreId, Disconnect, SessionId, Topic};

/// One effect.
pub enum Effect {
    /// An effect on a connection.
    Connection(ConnId, ToConnection),
    /// An effect on a client.
    Client(ClientId, ToClient),
    /// An effect on a session.
    Session(SessionId, ToSession),
    /// Something is due at this time.
    Alarm(Instant, Alarm),
}

/// An effect on a connection.
pub enum ToConnection {
    /// Writes to the response that waits.
    Answer(PollAnswer),
    /// Sends what waits.
    Flush,
    /// Writes bytes of the protocol.
    Write(Vec<u8>),
    /// Closes a WebSocket with a Close frame.
    Close(u16, &'static str),
    /// Ends a WebSocket without a Close frame.
    End,
    /// Ends the connection at once: nothing that waits is sent.
    Abort,
    /// Closes a connection that holds more memory than is allowed now.
    RefuseInput,
    /// The application has decided about the request that waits.
    Admit(Connect),
}

/// An answer for the client that a response carries.
pub enum PollAnswer {
    /// Messages that wait for the client, or the reason of its end.
    Pending,
    /// A sign of life (SockJS).
    Heartbeat,
    /// At least one record (see [`crate::encode`]), for Engine.IO.
    Records(Vec<u8>),
    /// 503: the client has ended and should reconnect (Engine.IO).
    Unavailable,
}

/// An effect on a client.
pub enum ToClient {
    /// Ends the client with its sessions.
    End(End),
    /// Removes a client that has ended.
    Remove,
    /// Sends what waits, if a connection is there for it.
    Flush,
    /// Sets the timer again.
    Arm,
    /// Moves the client to another core, which keeps what it missed.
    Migrate(CoreId),
}

/// An effect on a session.
#[expect(missing_docs, reason = "the names of the variants' fields say what they are")]
pub enum ToSession {
    /// Sends a message.
    Send(Sent),
    /// Ends the session.
    Close(Disconnect),
    /// Ends the session with a code and words of the application's.
    CloseWith(u16, String),
    /// Lists members of a room for the client.
    ListMembers { query: MembersQuery, for_watcher: bool, reply: PresenceReply },
    /// The client has presented a newer token.
    Renew(Arc<Identity>),
    /// The client named a position in a room whose history it may not read.
    NoHistory(Topic),
    /// A subscription has ended because it isn't allowed any more.
    Withdrawn(Topic, Denial),
}

/// Something that is due at a time.
pub enum Alarm {
    /// The application has asked to be called, with this token.
    App(Service, u64),
    /// An acknowledgement that the application waits for.
    Ack(u64),
    /// Acknowledgements that a command waits for.
    Acks(Vec<u64>),
    /// Something that is written to a client.
    Write(ClientId, Vec<u8>),
}

/// The effects of a core that haven't been carried out. Effects on connections and clients come before the others: what a handler has
/// written leaves before its session ends.
#[derive(Default)]
pub struct Effects {
    near: VecDeque<Effect>,
    far: Vec<Effect>,
}

impl Effects {
    /// Adds an effect.
    #[inline]
    pub fn push(&mut self, effect: Effect) {
        match effect {
            Effect::Connection(_, ToConnection::Admit(_)) | Effect::Session(..) | Effect::Alarm(..) => {
                self.far.push(effect);
            }
            Effect::Connection(..) | Effect::Client(..) => self.near.push_back(effect),
        }
    }

    /// Whether all effects have been carried out.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty()
    }

    /// The next effect on a connection or client.
    #[inline]
    pub fn pop(&mut self) -> Option<Effect> {
        self.near.pop_front()
    }

    /// All other effects.
    pub fn take_others(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.far)
    }

    /// The number of effects that aren't on connections or clients.
    #[inline]
    pub(crate) fn mark(&self) -> usize {
        self.far.len()
    }

    /// Whether a session is to be closed since a [`Self::mark`].
    #[inline]
    pub(crate) fn closes_since(&self, mark: usize, session: SessionId) -> bool {
        self.far[mark..].iter().any(|effect| {
            matches!(effect, Effect::Session(of, ToSession::Close(_) | ToSession::CloseWith(..)) if *of == session)
        })
    }

    /// Whether something is to be sent to a session.
    pub(crate) fn sends_to(&self, session: SessionId) -> bool {
        self.far
            .iter()
            .any(|effect| matches!(effect, Effect::Session(of, ToSession::Send(_)) if *of == session))
    }
}
