//! Applications: the behaviour of a server for its sessions.
//!
//! Each core has one value of an [`Application`]. Its handlers run on that core's thread and return at once (no futures, no
//! locks). They act through a [`Context`].
//!
//! A *plain* session sends and receives messages over WebSocket, Engine.IO or SockJS. A Socket.IO client has a session in each
//! namespace to which it is connected, and the session sends and receives events.

mod actions;
mod at_once;
mod chat;
mod context;
mod echo;
mod effect;
mod hand_over;
mod identities;
mod limited;
mod outlet;
mod presence;
mod publish;
mod questions;
mod refused;
mod renew;
mod rooms;
mod rules;
mod scalar;
mod subscribe;

pub use chat::Chat;
pub use echo::Echo;
pub use refused::NotSubscribed;
use refused::overloaded;
pub use rooms::RoomsApp;

pub use crate::message::{Arguments, Envelope, Message};
pub use context::Context;

pub use actions::{Acks, Sent, Waiter};
pub(crate) use at_once::{AT_ONCE_BYTES_MAX, take_at_once, take_before_leave};
pub(crate) use context::CoreContext;
pub(crate) use context::public_id;
pub use context::{AskingSession, ENVELOPE_BYTES, HandlerScope, asking};
pub(crate) use effect::Effects;
pub use effect::{Alarm, Effect, PollAnswer, ToClient, ToConnection, ToSession};
pub use identities::{ClientIdentity, Due, Identities};
pub(crate) use identities::{is_same_principal, renews};
pub(crate) use limited::{handle_event, handle_message};
pub(crate) use outlet::Outlet;
pub(crate) use presence::{PresenceReply, error_reply, members_reply, write_notice};
pub(crate) use questions::{Answer, Feeds, QuestionLimits, Questions, Tickets};
pub use questions::{Decided, Refused};

use crate::identity::Sid;
use crate::ports::Denial;
use crate::rule::Rooms;
use bytes::Bytes;
use std::time::Duration;
use stentor_frame::ConnId;
use stentor_hub::{Notice, SessionId};
use stentor_wire::http1::Request;

/// The destination of an event's acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack(pub(crate) u64);

/// An event of a Socket.IO client.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The event's name.
    pub name: &'a str,
    /// The event's arguments.
    pub arguments: Arguments<'a>,
    /// The acknowledgement that the client requested, for [`Context::ack`].
    pub ack: Option<Ack>,
}

/// The request of a Socket.IO client to connect to a namespace.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceRequest<'a> {
    /// The id of the client's Engine.IO session, as in [`Context::client`].
    pub client: Sid,
    /// The namespace: `/`, or a name that begins with it.
    pub namespace: &'a str,
    /// The client's authentication data: the text of a JSON object.
    pub auth: &'a str,
    /// The query after the namespace in the CONNECT packet (clients of Engine.IO 3 only).
    pub query: &'a str,
    /// `true` if the client has recovered its socket: it is in its rooms and has been sent its missed messages.
    pub recovered: bool,
}

/// The answer to [`NamespaceRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The client is accepted.
    #[default]
    Accept,
    /// The namespace doesn't exist.
    Unknown,
    /// The client is refused.
    Refuse {
        /// The reason.
        message: String,
        /// Further data: the text of a JSON value.
        data: Option<String>,
    },
}

/// A request whose answer is [`Connect::Pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) ConnId);

/// The answer to a client that connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// The client is accepted.
    #[default]
    Accept,
    /// The client is accepted, with these headers in the first response.
    AcceptWith(Vec<(String, String)>),
    /// The application answers later, by [`Context::admit`], within `limits.request_timeout`.
    Pending,
    /// The client is refused.
    Refuse {
        /// An HTTP status, 400–599.
        status: u16,
        /// The reason, for people.
        message: String,
    },
}

/// The application's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// An HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// Other headers.
    pub headers: Vec<(String, String)>,
    /// The content, or its first part if the rest follows in `later`.
    pub body: Bytes,
    /// Further pieces, each with its delay after the previous one. The answer is then chunked.
    pub later: Vec<(Duration, Bytes)>,
}

/// The behaviour of a server for its sessions. All handlers run on the core that owns the session.
pub trait Application {
    /// The default envelope of publications for plain sessions. Clients may request another one.
    fn envelope(&self) -> Envelope {
        Envelope::Raw
    }

    /// Answers a GET request for a path that isn't one of the server's own. `None` is answered with status 404.
    fn page(&mut self, _ctx: &mut Context<'_>, _request: &Request<'_>) -> Option<Page> {
        None
    }

    /// Decides whether a client may connect.
    fn connect(&mut self, _ctx: &mut Context<'_>, _request: &Request<'_>) -> Connect {
        Connect::Accept
    }

    /// Decides whether a Socket.IO client may connect to a namespace. By default, only the main namespace exists. On a node
    /// with several cores, a client that reconnects may be moved to this core after `connect` and
    /// [`Application::client_disconnected`] were called on another core. If a client reconnects before the server notices
    /// the loss of its previous connection, this handler is called before `closed` and `client_disconnected` for the
    /// previous connection.
    fn connect_namespace(&mut self, _ctx: &mut Context<'_>, request: &NamespaceRequest<'_>) -> Admission {
        if request.namespace == "/" { Admission::Accept } else { Admission::Unknown }
    }

    /// A Socket.IO client has connected to a namespace and has received the answer. `id` is the socket's id. A `recovered`
    /// client is still in its rooms, whatever authentication data it presents now.
    fn joined(
        &mut self,
        _ctx: &mut Context<'_>,
        _session: SessionId,
        _request: &NamespaceRequest<'_>,
        _id: &str,
    ) {
    }

    /// Handles an event of a Socket.IO client, like [`Self::message`].
    fn event(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _event: &Event<'_>) {}

    /// Called when a client has acknowledged an event of [`Context::emit_with_ack`], or when the acknowledgement has timed out
    /// (without arguments).
    fn acked(
        &mut self,
        _ctx: &mut Context<'_>,
        _session: SessionId,
        _token: u64,
        _answer: Option<Arguments<'_>>,
    ) {
    }

    /// An Engine.IO client has disconnected, with all of its sessions.
    fn client_disconnected(&mut self, _ctx: &mut Context<'_>, _client: Sid) {}

    /// A plain session has begun.
    fn opened(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _envelope: Envelope) {}

    /// Handles a message of a client. If it causes a question that is answered later ([`Context::subscribe`],
    /// [`Context::publish`]), the client's further messages wait.
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>);

    /// Notifies a client that its message exceeds a limit of its session (`[session_limits]`) and isn't handled.
    fn refuse_message(
        &mut self,
        _ctx: &mut Context<'_>,
        _session: SessionId,
        _message: Message<'_>,
        _denial: &Denial,
    ) {
    }

    /// Notifies a client that its event exceeds a limit. By default, the error is the argument of the acknowledgement, if
    /// the client requested one.
    fn refuse_event(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        event: &Event<'_>,
        denial: &Denial,
    ) {
        if let Some(ack) = event.ack {
            ctx.ack(session, ack, Arguments { json: &rules::failed(denial), attachments: &[] });
        }
    }

    /// Handles a notice about a subscription of a session.
    fn notice(&mut self, _ctx: &mut Context<'_>, _notice: &Notice) {}

    /// A session has ended.
    fn closed(&mut self, _ctx: &mut Context<'_>, _session: SessionId) {}

    /// The options have changed. `_rooms` are the new options of rooms.
    fn configure(&mut self, _rooms: &Rooms) {}

    /// A timer of [`Context::after`] has fired.
    fn timer(&mut self, _ctx: &mut Context<'_>, _token: u64) {}
}
